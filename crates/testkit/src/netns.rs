//! Network namespaces without names: each is held open by a child and goes with it, so nothing can be left behind.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::Pid;

use crate::command::{find, output, through};
use crate::process::{Process, bind_to_parent};

const READY: Duration = Duration::from_mins(1);

/// Where namespaces can be made: here for root, in a user namespace of our own for everybody else.
#[derive(Debug)]
pub(crate) struct Sandbox {
    /// Keeps the user namespace.
    user: Option<Process>,
}

impl Sandbox {
    /// Finds out what this user may do.
    pub(crate) async fn new(dir: &Path) -> Result<Self> {
        let attempt = async |flags: &[&str]| {
            let mut attempt = Command::new(find("unshare", "base")?);
            attempt.args(flags).args(["--", "true"]);
            output(attempt).await
        };
        if attempt(&["--net"]).await.is_ok() {
            return Ok(Self { user: None });
        }
        attempt(&["--user", "--map-root-user", "--net"]).await.context(
            "network namespaces are refused: run the tests as root, or allow them with \
             `sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0` (whichever exists)",
        )?;
        Ok(Self { user: Some(hold("userns", unshare(&["--user", "--map-root-user"])?, dir).await?) })
    }

    /// A new namespace with nothing but a loopback device, which is up.
    pub(crate) async fn netns(&self, name: &str, dir: &Path) -> Result<Netns> {
        let user = self.user.as_ref().map(Process::pid);
        let mut holder = unshare(&["--net"])?;
        if let Some(user) = user {
            holder = enter(user, &["--user", "--preserve-credentials"], &holder)?;
        }
        let holder = hold(&format!("netns-{name}"), holder, dir).await?;
        let netns = Netns { holder, user: user.is_some() };
        netns.ip(["link", "set", "lo", "up"]).await?;
        Ok(netns)
    }
}

/// One network namespace.
#[derive(Debug)]
pub(crate) struct Netns {
    holder: Process,
    user: bool,
}

impl Netns {
    /// `command` inside.
    pub(crate) fn inside(&self, command: &Command) -> Result<Command> {
        let flags: &[&str] = if self.user { &["--user", "--preserve-credentials", "--net"] } else { &["--net"] };
        enter(self.holder.pid(), flags, command)
    }

    /// `command` inside, for a child that must not outlive us.
    pub(crate) fn inside_bound(&self, command: &Command) -> Result<Command> {
        // The parent-death signal is lost on the way into a user namespace: it has to be set inside.
        self.inside(&bind_to_parent(command)?)
    }

    /// Runs `ip` inside.
    pub(crate) async fn ip<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        self.run("ip", args).await
    }

    /// Runs a program of the group `ovn` inside.
    pub(crate) async fn run<S: AsRef<OsStr>>(
        &self,
        program: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String> {
        let mut command = Command::new(find(program, "ovn")?);
        command.args(args);
        output(self.inside(&command)?).await
    }

    /// What `ip link ... netns <this>` takes.
    pub(crate) fn pid(&self) -> Pid {
        self.holder.pid()
    }
}

fn enter(target: Pid, flags: &[&str], command: &Command) -> Result<Command> {
    let target = target.to_string();
    let args = ["--target", &target].into_iter().chain(flags.iter().copied()).chain(["--"]);
    Ok(through(find("nsenter", "base")?, args, command))
}

fn unshare(flags: &[&str]) -> Result<Command> {
    let mut sleep = Command::new(find("sleep", "base")?);
    sleep.arg("infinity");
    let args = flags.iter().copied().chain(["--"]);
    Ok(through(find("unshare", "base")?, args, &bind_to_parent(&sleep)?))
}

/// Starts a holder; it has made its namespaces when it has become `sleep`.
async fn hold(name: &str, command: Command, dir: &Path) -> Result<Process> {
    let holder = Process::spawn_bound(name, command, dir)?;
    let comm = format!("/proc/{}/comm", holder.pid());
    holder
        .wait_ready(READY, async || {
            let program = fs::read_to_string(&comm)?;
            anyhow::ensure!(program == "sleep\n", "it is still {program}");
            Ok(())
        })
        .await?;
    Ok(holder)
}
