//! Every command of the tutorial and of the guide for providers, run as it stands there.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use groundcrew_testkit::Scratch;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The blocks of a page that a shell can run, one after another.
fn commands(page: &str) -> String {
    let text = fs::read_to_string(repository().join("docs").join(page)).unwrap();
    let mut script = String::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside => {
                script.push_str(line);
                script.push('\n');
            }
            _ => {}
        }
    }
    assert!(script.lines().count() > 1, "no commands in {page}");
    script
}

/// Runs a script by what reads it from standard input.
fn run(mut command: Command, script: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{said}\n{errors}");
    said.into_owned()
}

#[test]
fn the_tutorial_works_as_it_is_written() {
    let mut playground = Command::new(env!("CARGO_BIN_EXE_demo"));
    playground.arg("--playground");
    // What fails in the middle of a pipe or of a block ends the script, and so does a command that waits for what never comes.
    let said = run(playground, &format!("set -x\n{}", commands("tutorial.md")));
    for told in ["pod1", "pod2", "DriftRepaired", "groundcrew_drift_repaired_total"] {
        assert!(said.contains(told), "{told} is not in:\n{said}");
    }
}

/// As docs/explain.md has it: a link of that name on the path is all that kubectl needs.
#[test]
fn kubectl_finds_the_plugin_by_its_name() {
    let found = Command::new(repository().join("hack/setup")).args(["which", "kubectl"]).output().unwrap();
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    let kubectl = String::from_utf8(found.stdout).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_demo")).with_file_name("groundcrew");
    assert!(program.is_file(), "{} is missing: run `make docs-test`", program.display());
    let path = Scratch::new("plugin").unwrap();
    std::os::unix::fs::symlink(program, path.join("kubectl-groundcrew")).unwrap();
    let mut line = Command::new(kubectl.trim());
    line.args(["groundcrew", "explain", "service", "--help"]).env("PATH", path.path());
    let said = run(line, "");
    assert!(said.contains("Usage: kubectl groundcrew explain service"), "{said}");
}

#[test]
fn the_guide_for_providers_works_as_it_is_written() {
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail"]).current_dir(repository());
    run(bash, &commands("write-a-provider.md"));
}
