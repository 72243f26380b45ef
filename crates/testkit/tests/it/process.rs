use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use groundcrew_testkit::process::Process;
use groundcrew_testkit::{Scratch, Signal, eventually};

const SOON: Duration = Duration::from_mins(1);

fn sleeper(dir: &Scratch) -> Process {
    let mut sleep = Command::new("sleep");
    sleep.arg("1000");
    Process::spawn("sleeper", &sleep, dir.path()).unwrap()
}

fn state(pid: impl std::fmt::Display) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[tokio::test]
async fn a_child_survives_the_thread_that_asked_for_it() {
    let dir = Scratch::new("process").unwrap();
    let child = std::thread::scope(|threads| threads.spawn(|| sleeper(&dir)).join().unwrap());
    // Had the thread been its parent, the signal would be there before the thread could be joined.
    child.signal(Signal::SIGSTOP).unwrap();
    assert_eq!(state(child.pid()), Some('T'));
    assert_eq!(child.exit_status().unwrap(), None);
}

#[tokio::test]
async fn a_stopped_child_ends_when_dropped() {
    let dir = Scratch::new("process").unwrap();
    let child = sleeper(&dir);
    let pid = child.pid();
    child.signal(Signal::SIGSTOP).unwrap();
    drop(child);
    assert_eq!(state(pid), None);
}

#[tokio::test]
async fn what_a_child_says_is_in_its_log_and_its_end_is_told() {
    let dir = Scratch::new("process").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo out; echo err >&2; exit 3"]);
    let child = Process::spawn("talker", &shell, dir.path()).unwrap();
    assert_eq!(child.wait_exit(SOON).await.unwrap().code(), Some(3));
    assert_eq!(child.log(), "out\nerr\n");
    let refused = child.signal(Signal::SIGTERM).unwrap_err().to_string();
    assert!(refused.contains("talker: it has ended"), "{refused}");
}

#[tokio::test]
async fn a_child_that_dies_instead_of_serving_tells_why_at_once() {
    let dir = Scratch::new("process").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo no such port; exit 1"]);
    let child = Process::spawn("server", &shell, dir.path()).unwrap();
    let never = child.wait_ready::<()>(Duration::from_mins(10), async || anyhow::bail!("refused")).await;
    let reason = format!("{:#}", never.unwrap_err());
    assert!(reason.contains("no such port"), "{reason}");
}

/// This binary again, with a test that only runs here.
fn victim(test: &str, dir: &Scratch) -> Process {
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", &format!("process::{test}"), "--ignored", "--nocapture"]);
    Process::spawn("victim", &victim, dir.path()).unwrap()
}

/// What the victim has told: the pid of its child and the path of its files.
async fn told(victim: &Process) -> (String, PathBuf) {
    eventually("the victim has told", SOON, async || {
        let log = victim.log();
        let line = log.lines().find_map(|line| line.split_once("victim: ")).ok_or("not yet")?.1.to_owned();
        let (pid, path) = line.split_once(' ').ok_or("half a line")?;
        Ok::<_, &str>((pid.to_owned(), path.into()))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn children_and_files_go_with_a_killed_test_process() {
    let dir = Scratch::new("process").unwrap();
    let victim = victim("starts_a_child_and_waits_to_be_killed", &dir);
    let (child, scratch) = told(&victim).await;
    assert!(state(&child).is_some() && scratch.is_dir());

    victim.end(Signal::SIGKILL).await.unwrap();
    eventually("its child ends", SOON, async || match state(&child) {
        // An orphan's zombie is for PID 1 to reap.
        None | Some('Z') => Ok(()),
        Some(other) => Err(other),
    })
    .await
    .unwrap();
    gone(&scratch).await;
}

#[tokio::test]
async fn the_logs_of_a_failed_test_are_kept() {
    let dir = Scratch::new("process").unwrap();
    let victim = victim("starts_a_child_and_panics", &dir);
    let (_, scratch) = told(&victim).await;
    assert!(!victim.wait_exit(SOON).await.unwrap().success());
    let root = scratch.parent().unwrap();
    assert!(victim.log().contains(&format!("the logs are kept in {}", root.display())), "{}", victim.log());
    // The sweeper's last deed.
    gone(&root.join("keep")).await;
    assert!(scratch.join("sleeper.log").is_file());
    fs::remove_dir_all(root).unwrap();
}

async fn gone(path: &Path) {
    let what = format!("{} is gone", path.display());
    eventually(&what, SOON, async || if path.exists() { Err("still there") } else { Ok(()) }).await.unwrap();
}

#[tokio::test]
#[ignore = "the victim of children_and_files_go_with_a_killed_test_process"]
async fn starts_a_child_and_waits_to_be_killed() {
    let dir = Scratch::new("victim").unwrap();
    let child = sleeper(&dir);
    println!("victim: {} {}\n", child.pid(), dir.path().display());
    child.wait_exit(Duration::from_mins(1)).await.unwrap();
}

#[tokio::test]
#[ignore = "the victim of the_logs_of_a_failed_test_are_kept"]
async fn starts_a_child_and_panics() {
    let dir = Scratch::new("victim").unwrap();
    let child = sleeper(&dir);
    println!("victim: {} {}\n", child.pid(), dir.path().display());
    panic!("as it should");
}
