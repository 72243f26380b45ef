//! How the demo talks: numbered steps, and commands with what they really said.

use std::fmt::{self, Display};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};

/// The teller, who knows the step it is at.
#[derive(Default)]
pub(crate) struct Story {
    number: u32,
    title: &'static str,
}

impl Story {
    pub(crate) fn step(&mut self, title: &'static str) -> Result<()> {
        (self.number, self.title) = (self.number + 1, title);
        print(&format!("\n{self}\n"))
    }

    #[allow(clippy::unused_self, reason = "one speaks through the story, so that it reads as one")]
    pub(crate) fn say(&self, line: impl Display) -> Result<()> {
        print(&format!("{}\n", format!("   {line}").trim_end()))
    }

    /// A command as one would type it, and what it said.
    pub(crate) fn shell(&self, command: impl Display, said: &str) -> Result<()> {
        self.say(format_args!("$ {command}"))?;
        let said = said.trim_end();
        (if said.is_empty() { "(nothing)" } else { said }).lines().try_for_each(|line| self.say(line))
    }
}

impl Display for Story {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}. {}", self.number, self.title)
    }
}

/// A measured time, in the unit in which the whole demo is told.
pub(crate) fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// Not `println`, which panics when the reader has gone.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
}

pub(crate) fn exit_code(end: Result<()>) -> ExitCode {
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "\n{error:#}");
            ExitCode::FAILURE
        }
    }
}
