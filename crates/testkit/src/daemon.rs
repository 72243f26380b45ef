use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::Signal;
use crate::command::copy;
use crate::process::{Process, bind_to_parent};

/// A part of a fixture that can be stopped, and started again as it was.
#[derive(Debug)]
pub(crate) struct Daemon {
    name: String,
    command: Command,
    dir: PathBuf,
    process: Option<Process>,
}

impl Daemon {
    /// Does not start it yet. Its log will be in `dir`.
    pub(crate) fn new(name: &str, command: &Command, dir: &Path) -> Result<Self> {
        Ok(Self::bound(name, bind_to_parent(command)?, dir))
    }

    /// The same for a command that has a parent-death signal already.
    pub(crate) fn bound(name: &str, command: Command, dir: &Path) -> Self {
        Self { name: name.to_owned(), command, dir: dir.to_owned(), process: None }
    }

    /// Starts it and waits until `ready` answers.
    pub(crate) async fn start<T>(&mut self, within: Duration, ready: impl AsyncFnMut() -> Result<T>) -> Result<()> {
        ensure!(self.process.is_none(), "{} is running", self.name);
        let process = Process::spawn_bound(&self.name, copy(&self.command), &self.dir)?;
        process.wait_ready(within, ready).await?;
        self.process = Some(process);
        Ok(())
    }

    /// Ends it with `signal` and waits until it is gone.
    pub(crate) async fn stop(&mut self, signal: Signal) -> Result<()> {
        self.process()?.end(signal).await?;
        self.process = None;
        Ok(())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    pub(crate) fn process(&self) -> Result<&Process> {
        self.process.as_ref().with_context(|| format!("{} is stopped", self.name))
    }
}
