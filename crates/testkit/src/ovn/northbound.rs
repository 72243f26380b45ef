use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::UnixStream;

use super::{DATABASE, ServerName, Tls, schema, tool};
use crate::command::{output, output_with_input};
use crate::daemon::Daemon;
use crate::{ReservedPort, Scratch, Signal, eventually};

/// Far longer than anything takes on an idle machine; the rest is for the neighbours.
const READY: Duration = Duration::from_mins(1);

/// The OVN northbound database without the rest of OVN: one `ovsdb-server`, or several as a raft cluster.
///
/// Members are numbered from 0 and keep their addresses over restarts.
#[derive(Debug)]
pub struct Northbound {
    // Before `dir`: a server must have ended when its directory is removed.
    members: Vec<Member>,
    tls: Option<Tls>,
    dir: Scratch,
}

#[derive(Debug)]
struct Member {
    daemon: Daemon,
    tcp: ReservedPort,
    ssl: Option<ReservedPort>,
    /// Where the other members find it; `None` outside a cluster.
    raft: Option<ReservedPort>,
}

impl Northbound {
    /// One server with a database file of its own.
    pub async fn standalone() -> Result<Self> {
        Self::start(1, false, None).await
    }

    /// One server that also listens for TLS and then wants a client's certificate.
    pub async fn standalone_tls(name: ServerName) -> Result<Self> {
        Self::start(1, false, Some(name)).await
    }

    /// A raft cluster. One member is enough for what only clustered databases do, such as resuming a monitor.
    pub async fn cluster(members: usize) -> Result<Self> {
        Self::start(members, true, None).await
    }

    async fn start(members: usize, clustered: bool, tls: Option<ServerName>) -> Result<Self> {
        let dir = Scratch::new("nb")?;
        let tls = tls.map(|name| Tls::new(name, &dir.join("tls"))).transpose()?;
        let mut nb = Self { members: Vec::new(), tls, dir };
        for index in 0..members {
            let (tcp, ssl) = (ReservedPort::new()?, nb.tls.is_some().then(ReservedPort::new).transpose()?);
            let server = nb.server(index, &tcp, ssl.as_ref())?;
            let daemon = Daemon::new(&format!("nb{index}"), &server, nb.dir.path())?;
            nb.members.push(Member { daemon, tcp, ssl, raft: clustered.then(ReservedPort::new).transpose()? });
            nb.create_database(index).await?;
            nb.restart(index).await?;
        }
        nb.nbctl(["init"]).await?;
        Ok(nb)
    }

    fn server(&self, index: usize, tcp: &ReservedPort, ssl: Option<&ReservedPort>) -> Result<Command> {
        let mut server = tool("ovsdb-server", self.dir.path())?;
        server
            .arg("-vsyslog:off")
            .arg(format!("--unixctl={}", self.control(index).display()))
            .arg(format!("--remote=punix:{}", self.socket(index).display()))
            .arg(format!("--remote=ptcp:{}:127.0.0.1", tcp.number()));
        if let (Some(port), Some(tls)) = (ssl, &self.tls) {
            server
                .arg(format!("--remote=pssl:{}:127.0.0.1", port.number()))
                .arg(format!("--private-key={}", tls.server.key.display()))
                .arg(format!("--certificate={}", tls.server.certificate.display()))
                .arg(format!("--ca-cert={}", tls.authority.display()));
        }
        server.arg(self.database(index));
        Ok(server)
    }

    async fn create_database(&self, index: usize) -> Result<()> {
        let member = &self.members[index];
        let mut create = tool("ovsdb-tool", self.dir.path())?;
        match (&member.raft, &self.members[0].raft) {
            (Some(own), Some(first)) if index > 0 => create
                .args(["join-cluster".as_ref(), self.database(index).as_os_str(), DATABASE.as_ref()])
                .args([format!("tcp:{}", own.address()), format!("tcp:{}", first.address())]),
            (Some(own), _) => create
                .args(["create-cluster".as_ref(), self.database(index).as_os_str(), schema()?.as_os_str()])
                .arg(format!("tcp:{}", own.address())),
            (None, _) => create.args(["create".as_ref(), self.database(index).as_os_str(), schema()?.as_os_str()]),
        };
        output(create).await.map(drop)
    }

    /// How many members it has, running or not.
    #[must_use]
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// `unix:<path>` of a member. A client on it is never probed by the server.
    #[must_use]
    pub fn unix(&self, member: usize) -> String {
        format!("unix:{}", self.socket(member).display())
    }

    /// `tcp:127.0.0.1:<port>` of a member.
    #[must_use]
    pub fn tcp(&self, member: usize) -> String {
        format!("tcp:{}", self.tcp_address(member))
    }

    /// The address to put a [`Proxy`](crate::proxy::Proxy) before.
    #[must_use]
    pub fn tcp_address(&self, member: usize) -> SocketAddr {
        self.members[member].tcp.address()
    }

    /// `ssl:127.0.0.1:<port>` of a server started with TLS.
    pub fn ssl(&self, member: usize) -> Result<String> {
        let port = self.members[member].ssl.as_ref().context("this server was started without TLS")?;
        Ok(format!("ssl:{}", port.address()))
    }

    /// The certificates of a server started with TLS.
    pub fn tls(&self) -> Result<&Tls> {
        self.tls.as_ref().context("this server was started without TLS")
    }

    /// Every member's TCP address, comma separated, as OVN's programs take it.
    #[must_use]
    pub fn remotes(&self) -> String {
        (0..self.members()).map(|index| self.tcp(index)).collect::<Vec<_>>().join(",")
    }

    /// Sends a signal to a member.
    pub fn signal(&self, member: usize, signal: Signal) -> Result<()> {
        self.members[member].daemon.process()?.signal(signal)
    }

    /// Ends a member with `signal` (SIGKILL, SIGTERM) and waits until it is gone.
    pub async fn stop(&mut self, member: usize, signal: Signal) -> Result<()> {
        self.members[member].daemon.stop(signal).await
    }

    /// Starts a member that was stopped, on the addresses and the file that it had, and waits until it serves.
    pub async fn restart(&mut self, index: usize) -> Result<()> {
        let socket = self.socket(index);
        self.members[index].daemon.start(READY, async || Ok(UnixStream::connect(&socket).await?)).await?;
        // Without quorum a member never gets `connected`: whoever restarts the first of two lost ones waits later.
        if self.has_quorum() {
            let mut wait = self.client("wait", &self.unix(index))?;
            wait.args([DATABASE, "connected"]);
            output(wait).await?;
        }
        Ok(())
    }

    fn has_quorum(&self) -> bool {
        let running = self.members.iter().filter(|member| member.daemon.is_running()).count();
        running * 2 > self.members.len()
    }

    /// The member that leads. Waits while there is none; an error if the election does not end.
    pub async fn leader(&self) -> Result<usize> {
        eventually("a raft leader", READY, async || {
            for index in 0..self.members() {
                // Little time for each: one of them may be stopped.
                let answer = self.appctl_within(1, index, ["cluster/status", DATABASE]).await;
                if answer.is_ok_and(|status| status.lines().any(|line| line == "Role: leader")) {
                    return Ok(index);
                }
            }
            Err("no member says that it leads")
        })
        .await
    }

    /// Runs `ovn-nbctl` on the leader.
    pub async fn nbctl<S: AsRef<str>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        let mut nbctl = tool("ovn-nbctl", self.dir.path())?;
        nbctl.arg(format!("--db={}", self.remotes())).arg("--timeout=50");
        nbctl.args(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        output(nbctl).await
    }

    /// Runs `ovs-appctl` on a member.
    pub async fn appctl<S: AsRef<str>>(&self, member: usize, args: impl IntoIterator<Item = S>) -> Result<String> {
        self.appctl_within(60, member, args).await
    }

    async fn appctl_within<S: AsRef<str>>(
        &self,
        seconds: u8,
        member: usize,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String> {
        let mut appctl = tool("ovs-appctl", self.dir.path())?;
        appctl.arg(format!("--timeout={seconds}")).arg("-t").arg(self.control(member));
        appctl.args(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        output(appctl).await
    }

    /// Throws every client of a member out.
    pub async fn disconnect_clients(&self, member: usize) -> Result<()> {
        self.appctl(member, ["ovsdb-server/reconnect"]).await.map(drop)
    }

    /// Makes a standalone server refuse writes (`not allowed`), or take them again.
    pub async fn set_read_only(&self, read_only: bool) -> Result<()> {
        if read_only {
            // It becomes the backup of a server that is not there.
            self.appctl(0, ["ovsdb-server/set-active-ovsdb-server", "tcp:127.0.0.1:1"]).await?;
            self.appctl(0, ["ovsdb-server/connect-active-ovsdb-server"]).await?;
        } else {
            self.appctl(0, ["ovsdb-server/disconnect-active-ovsdb-server"]).await?;
        }
        Ok(())
    }

    /// Writes the contents to `file`.
    pub async fn backup(&self, file: &Path) -> Result<()> {
        let mut backup = self.client("backup", &self.remotes())?;
        backup.arg(DATABASE);
        let contents = output(backup).await?;
        fs::write(file, contents).with_context(|| format!("write {}", file.display()))
    }

    /// Replaces the contents by those of `file`. Every row comes back under a new UUID.
    pub async fn restore(&self, file: &Path) -> Result<()> {
        let mut restore = self.client("restore", &self.remotes())?;
        restore.arg(DATABASE);
        let contents = File::open(file).with_context(|| format!("open {}", file.display()))?;
        output_with_input(restore, contents.into()).await.map(drop)
    }

    /// Copies the file of a standalone server as it is, ids and all.
    pub fn copy(&self, to: &Path) -> Result<()> {
        fs::copy(self.database(0), to).map(drop).with_context(|| format!("copy to {}", to.display()))
    }

    /// Puts such a copy in the place of the file: every row that it has keeps its UUID.
    pub async fn put_back(&mut self, copy: &Path) -> Result<()> {
        ensure!(self.members[0].raft.is_none(), "only the file of a standalone server can be put back");
        self.stop(0, Signal::SIGTERM).await?;
        fs::copy(copy, self.database(0)).with_context(|| format!("copy {}", copy.display()))?;
        self.restart(0).await
    }

    /// Converts the database to another schema, as an upgrade of OVN does.
    pub async fn convert(&self, schema: &Path) -> Result<()> {
        let mut convert = self.client("convert", &self.remotes())?;
        convert.arg(schema);
        output(convert).await.map(drop)
    }

    /// Replaces a standalone server by one with an empty database on the same addresses: a rebuilt `ovn-central`.
    pub async fn rebuild_empty(&mut self) -> Result<()> {
        ensure!(self.members[0].raft.is_none(), "only a standalone server can be rebuilt");
        self.stop(0, Signal::SIGTERM).await?;
        fs::remove_file(self.database(0))?;
        self.create_database(0).await?;
        self.restart(0).await?;
        self.nbctl(["init"]).await.map(drop)
    }

    /// The comments of the transactions that a standalone server has committed since its database was last compacted,
    /// in the order of their commits; those without a comment are left out.
    pub async fn comments(&self) -> Result<Vec<String>> {
        ensure!(self.members[0].raft.is_none(), "only a standalone server's log can be read");
        let mut show = tool("ovsdb-tool", self.dir.path())?;
        show.arg("show-log").arg(self.database(0));
        let records = output(show).await?;
        let comments = records.lines().filter_map(|line| line.strip_prefix("record ")?.split('"').nth(1));
        // The first record is the schema, whose first quoted word is the database's name.
        Ok(comments.skip(1).map(str::to_owned).collect())
    }

    /// What a member has logged.
    pub fn log(&self, member: usize) -> Result<String> {
        Ok(self.members[member].daemon.process()?.log())
    }

    fn client(&self, verb: &str, remotes: &str) -> Result<Command> {
        let mut client = tool("ovsdb-client", self.dir.path())?;
        client.args(["--timeout=50", verb, remotes]);
        Ok(client)
    }

    fn database(&self, member: usize) -> PathBuf {
        self.dir.join(format!("nb{member}.db"))
    }

    fn socket(&self, member: usize) -> PathBuf {
        self.dir.join(format!("nb{member}.sock"))
    }

    fn control(&self, member: usize) -> PathBuf {
        self.dir.join(format!("nb{member}.ctl"))
    }
}
