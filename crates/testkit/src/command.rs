//! Short-lived programs: found, run to their end, with their words in the error.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::timeout;

/// Daemons live in these; the PATH of an ordinary user often lacks them.
const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// What runs longer than this hangs.
const DEADLINE: Duration = Duration::from_mins(2);

/// The path of an installed program; `setup` is the group of `hack/setup` that installs it.
pub(crate) fn find(program: &str, setup: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SBIN.map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
        .with_context(|| format!("{program} is missing: run `hack/setup {setup}`"))
}

/// The path of a program that Debian does not have; `hack/setup` knows where it put them.
pub(crate) async fn find_pinned(program: &str) -> Result<PathBuf> {
    let mut setup = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/setup"));
    setup.args(["which", program]);
    Ok(output(setup).await?.trim_end().into())
}

/// Runs `command` and gives its standard output.
pub(crate) async fn output(command: Command) -> Result<String> {
    run(command, Stdio::null(), DEADLINE).await
}

/// The same for one that may take longer than most.
pub(crate) async fn output_within(deadline: Duration, command: Command) -> Result<String> {
    run(command, Stdio::null(), deadline).await
}

/// Runs `command` with `input` as its standard input and gives its standard output.
pub(crate) async fn output_with_input(command: Command, input: Stdio) -> Result<String> {
    run(command, input, DEADLINE).await
}

async fn run(command: Command, input: Stdio, deadline: Duration) -> Result<String> {
    let said = describe(&command);
    let mut command = tokio::process::Command::from(command);
    command.stdin(input).kill_on_drop(true);
    let output = timeout(deadline, command.output())
        .await
        .with_context(|| format!("no end of `{said}` within {deadline:?}"))?
        .with_context(|| format!("start `{said}`"))?;
    if !output.status.success() {
        // Some tell their errors as they tell everything else.
        let words = [&output.stderr, &output.stdout].map(|words| String::from_utf8_lossy(words).trim().to_owned());
        bail!("`{said}`: {}: {}", output.status, words.join("\n").trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command as one would type it, without directories.
pub(crate) fn describe(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default();
    std::iter::once(name).chain(command.get_args()).map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// `command`, started by `program args`: one that becomes what it starts.
pub(crate) fn through<S: AsRef<OsStr>>(
    program: PathBuf,
    args: impl IntoIterator<Item = S>,
    command: &Command,
) -> Command {
    let mut outer = Command::new(program);
    outer.args(args).arg(command.get_program());
    with_rest_of(outer, command)
}

/// The same command once more.
pub(crate) fn copy(command: &Command) -> Command {
    with_rest_of(Command::new(command.get_program()), command)
}

fn with_rest_of(mut new: Command, command: &Command) -> Command {
    new.args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => new.env(key, value),
            None => new.env_remove(key),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        new.current_dir(dir);
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_is_missing_is_named_with_what_installs_it() {
        let missing = find("no-such-program", "ovn").unwrap_err().to_string();
        assert_eq!(missing, "no-such-program is missing: run `hack/setup ovn`");
        let mut which = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/setup"));
        let nowhere = std::env::temp_dir().join("groundcrew-no-cache");
        which.args(["which", "kube-apiserver"]).env("XDG_CACHE_HOME", nowhere).env("PATH", "/usr/bin:/bin");
        which.env_remove("KUBEBUILDER_ASSETS");
        let missing = output(which).await.unwrap_err().to_string();
        assert!(missing.contains("kube-apiserver is missing: run `hack/setup kube`"), "{missing}");
    }
}
