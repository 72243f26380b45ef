//! The demo that a newcomer sees first.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use groundcrew_testkit::Scratch;

#[test]
fn the_demo_ends_by_itself_tells_the_outage_and_leaves_ovn_empty() {
    let demo = Command::new(env!("CARGO_BIN_EXE_demo")).output().unwrap();
    let said = String::from_utf8(demo.stdout).unwrap();
    assert!(demo.status.success(), "{said}\n{}", String::from_utf8_lossy(&demo.stderr));
    let outage = said.lines().find_map(|line| line.trim().strip_prefix("the outage took")?.strip_suffix(" ms"));
    let outage: u64 = outage.unwrap_or_else(|| panic!("no outage in:\n{said}")).trim().parse().unwrap();
    // A machine full of other tests decides how long it is; that nobody waited for a poll can be told on any.
    assert!(outage < 60_000, "{said}");
    let (_, end) = said.split_once("OVN is empty:").unwrap_or_else(|| panic!("no end in:\n{said}"));
    assert_eq!(end.matches("(nothing)").count(), 3, "{said}");
}

#[test]
fn a_demo_that_fails_names_the_step_and_keeps_the_logs() {
    let dir = Scratch::new("broken").unwrap();
    let etcd = dir.join("etcd");
    fs::write(&etcd, "#!/bin/sh\necho the disk is full\nexit 1\n").unwrap();
    fs::set_permissions(&etcd, fs::Permissions::from_mode(0o755)).unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"));
    let demo = demo.env("KUBEBUILDER_ASSETS", dir.path()).env("TMPDIR", dir.path()).output().unwrap();
    let said = String::from_utf8(demo.stderr).unwrap();
    assert!(!demo.status.success() && said.contains("step 1. ") && said.contains("the disk is full"), "{said}");
    let (_, logs) = said.split_once("process are in ").unwrap();
    assert!(Path::new(logs.trim()).join("kube-0/etcd.log").is_file(), "{said}");
}
