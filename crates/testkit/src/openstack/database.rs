//! A `MariaDB`, which only the services of one cloud talk to: over a unix socket, without passwords.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::{Uid, User};

use super::wsgi::program;
use crate::Signal;
use crate::command::{find, output};
use crate::daemon::Daemon;
use crate::ovn::listens;

const READY: Duration = Duration::from_mins(2);

/// A running server.
#[derive(Debug)]
pub(super) struct Database {
    daemon: Daemon,
    socket: PathBuf,
}

impl Database {
    /// Makes an empty data directory `mysql` in `dir`.
    pub(super) async fn create(dir: &Path) -> Result<()> {
        let mut create = Command::new(find("mariadb-install-db", "openstack")?);
        create
            .arg("--no-defaults")
            .arg(format!("--datadir={}", data(dir).display()))
            .arg(format!("--user={}", user()?))
            .args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"])
            .args(SMALL);
        output(create).await.map(drop)
    }

    /// Starts one on the data in `dir`, with these databases.
    pub(super) async fn start(dir: &Path, databases: &[&str]) -> Result<Self> {
        let wanted: Vec<_> = databases.iter().map(|name| format!("CREATE DATABASE IF NOT EXISTS {name};")).collect();
        let wanted_file = dir.join("databases.sql");
        std::fs::write(&wanted_file, wanted.join("\n"))?;
        let mut server = Command::new(find("mariadbd", "openstack")?);
        server
            .arg("--no-defaults")
            .arg(format!("--datadir={}", data(dir).display()))
            .arg(format!("--socket={}", socket(dir).display()))
            .arg(format!("--pid-file={}", dir.join("mysql.pid").display()))
            .arg(format!("--init-file={}", wanted_file.display()))
            .arg(format!("--user={}", user()?))
            .args(["--skip-networking", "--max-connections=500", "--performance-schema=off"])
            .args(["--character-set-server=utf8mb3", "--collation-server=utf8mb3_general_ci"])
            .args(SMALL);
        let mut daemon = Daemon::new("mariadb", &server, dir)?;
        daemon.start(READY, listens(socket(dir))).await?;
        Ok(Self { daemon, socket: socket(dir) })
    }

    /// Changes something in it, behind everybody's back.
    pub(super) async fn execute(&self, environment: &Path, statement: &str) -> Result<()> {
        const EXECUTE: &str = "import pymysql, sys
connection = pymysql.connect(user='root', unix_socket=sys.argv[1], autocommit=True)
sys.exit(connection.cursor().execute(sys.argv[2]) == 0 and 'no row fits')";
        let mut execute = program(environment, "python");
        execute.args(["-c", EXECUTE]).arg(&self.socket).arg(statement);
        output(execute).await.map(drop)
    }

    /// Ends it so that its data can be copied.
    pub(super) async fn stop(mut self) -> Result<()> {
        self.daemon.stop(Signal::SIGTERM).await
    }
}

/// Nothing here has to survive the machine, and a small log is a small copy.
const SMALL: [&str; 3] = ["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-log-file-size=8M"];

/// Where a service finds the database of this name.
pub(super) fn url(dir: &Path, name: &str) -> String {
    format!("mysql+pymysql://root@localhost/{name}?unix_socket={}", socket(dir).display())
}

/// What the databases are made of: another one cannot be trusted to read them.
pub(super) async fn version() -> Result<String> {
    let mut version = Command::new(find("mariadbd", "openstack")?);
    version.args(["--no-defaults", "--version"]);
    output(version).await
}

pub(super) fn data(dir: &Path) -> PathBuf {
    dir.join("mysql")
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("mysql.sock")
}

/// Who runs the tests. Root has to say that it means to be root.
pub(super) fn user() -> Result<String> {
    Ok(User::from_uid(Uid::current())?.with_context(|| format!("user {} has no name", Uid::current()))?.name)
}
