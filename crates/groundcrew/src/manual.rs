//! Completions for shells, and manual pages.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

const PROGRAM: &str = "groundcrew";

/// The script that a shell reads.
pub(crate) fn completions<Line: CommandFactory>(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Line::command(), PROGRAM, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes one page for the program and one for each command, and says where.
pub(crate) fn write<Line: CommandFactory>(directory: &Path) -> anyhow::Result<String> {
    let place = || format!("cannot write to {}", directory.display());
    std::fs::create_dir_all(directory).with_context(place)?;
    clap_mangen::generate_to(Line::command(), directory).with_context(place)?;
    Ok(format!("written to {}\n", directory.display()))
}
