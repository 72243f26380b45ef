//! Child processes that cannot outlive the test process.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::command::{describe, find, through};
use crate::eventually;

/// A running child with its log. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Mutex<Child>,
    pid: Pid,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; both its outputs are appended to `<name>.log` in `dir`.
    ///
    /// The child gets SIGKILL when this process ends in whatever way.
    pub fn spawn(name: &str, command: &Command, dir: &Path) -> Result<Self> {
        Self::spawn_bound(name, bind_to_parent(command)?, dir)
    }

    /// Starts a command that [`bind_to_parent`] has seen.
    pub(crate) fn spawn_bound(name: &str, mut command: Command, dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let out = OpenOptions::new().create(true).append(true).open(&log);
        let out = out.with_context(|| format!("open {}", log.display()))?;
        let said = describe(&command);
        command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
        let child = spawn_from_immortal_thread(command).with_context(|| format!("start `{said}`"))?;
        let pid = Pid::from_raw(child.id().cast_signed());
        Ok(Self { name: name.to_owned(), child: Mutex::new(child), pid, log })
    }

    /// The process number.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal; after SIGSTOP, waits until every thread has stopped. An error if the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // Not reaped under our feet: a pid of our own unreaped child is never anybody else's.
        let mut child = self.child();
        if let Some(status) = child.try_wait()? {
            return Err(anyhow!("{signal} for {}: it has ended ({status})", self.name));
        }
        kill(self.pid, signal).with_context(|| format!("{signal} for {}", self.name))?;
        if signal == Signal::SIGSTOP {
            // On a busy machine its threads may answer for a while before one of them sees the signal.
            let stopped_or_ended = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            waitid(Id::Pid(self.pid), stopped_or_ended).with_context(|| format!("wait until {} stops", self.name))?;
        }
        Ok(())
    }

    /// How it ended, if it has.
    pub fn exit_status(&self) -> Result<Option<ExitStatus>> {
        Ok(self.child().try_wait()?)
    }

    /// Waits for its end.
    pub async fn wait_exit(&self, within: Duration) -> Result<ExitStatus> {
        eventually(&format!("the end of {}", self.name), within, async || {
            self.exit_status()?.with_context(|| format!("process {} is running", self.pid))
        })
        .await
    }

    /// Sends `signal` and waits for the end that it should bring.
    pub async fn end(&self, signal: Signal) -> Result<ExitStatus> {
        self.signal(signal)?;
        self.wait_exit(Duration::from_mins(1)).await
    }

    /// Everything that it has written.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The last lines of the log, for an error message.
    #[must_use]
    pub fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// Waits until `ready` answers; ends at once with the last words of a process that died instead.
    pub async fn wait_ready<T>(&self, within: Duration, mut ready: impl AsyncFnMut() -> Result<T>) -> Result<T> {
        let what = format!("{} is ready", self.name);
        let answer = eventually(&what, within, async || {
            if let Some(status) = self.exit_status()? {
                return Ok(Err(anyhow!("{} ended ({status}):\n{}", self.name, self.last_words())));
            }
            ready().await.map(Ok)
        });
        answer.await.with_context(|| format!("log of {}:\n{}", self.name, self.last_words()))?
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut child = self.child();
        // SIGKILL ends a stopped process as well; a child that has ended already makes both of these do nothing.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The same command with a parent-death signal. `setpriv` sets it and becomes the program itself, so the child's pid
/// is the program's; doing it here between fork and exec would need unsafe code. A child that asks for the signal after
/// this process ended would never get it, but it has another parent by then, and does not start.
pub(crate) fn bind_to_parent(command: &Command) -> Result<Command> {
    const UNLESS_ORPHANED: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;
    let parent = std::process::id().to_string();
    let args = ["--pdeathsig", "KILL", "--", "/bin/sh", "-c", UNLESS_ORPHANED, &parent];
    Ok(through(find("setpriv", "base")?, args, command))
}

/// The parent-death signal comes when the *thread* ends that made the child, and every test is a thread of its own.
fn spawn_from_immortal_thread(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static ORDERS: LazyLock<Mutex<mpsc::Sender<Order>>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                let _ = reply.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (reply, answer) = mpsc::channel();
    let orders = ORDERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    orders.send((command, reply)).map_err(io::Error::other)?;
    answer.recv().map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{copy, output};

    #[tokio::test]
    async fn a_child_that_was_orphaned_before_it_asked_for_the_signal_does_not_start() {
        let mut program = Command::new("echo");
        program.arg("started");
        let bound = bind_to_parent(&program).unwrap();
        assert_eq!(output(copy(&bound)).await.unwrap(), "started\n");
        // As for an orphan, its parent is not who bound it.
        let orphan = through("sh".into(), ["-c", r#""$@"; echo "ended with $?""#, "sh"], &bound);
        assert_eq!(output(orphan).await.unwrap(), "ended with 1\n");
    }
}
