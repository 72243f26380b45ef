//! How the process behaves as a process.

use std::time::Duration;

use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::process::Process;
use groundcrew_testkit::{ReservedPort, Scratch, Signal, eventually};

use crate::lab::{Lab, SHORT_LEASE, SOON};

#[tokio::test]
async fn an_unreachable_api_server_is_waited_for_told_and_not_fatal() {
    let lab = Lab::new("unreachable").await;
    let nobody = ReservedPort::new().unwrap();
    let astray = lab.control_plane.admin().through(nobody.address()).unwrap();
    let early = Controller::spawn("early", lab.command(&astray), lab.scratch.path()).unwrap();

    let why = eventually("it says what it waits for", SOON, async || match early.get("/readyz").await? {
        (503, why) if why.contains("refused") => Ok(why),
        other => Err(anyhow::anyhow!("{other:?}")),
    });
    let why = why.await.unwrap();
    assert!(why.starts_with("waiting for the Kubernetes API: "), "{why}");
    assert_eq!(early.get("/healthz").await.unwrap(), (200, "ok\n".to_owned()), "but it is alive");
    early.process.signal(Signal::SIGTERM).unwrap();
    assert!(early.process.wait_exit(SOON).await.unwrap().success());
}

#[tokio::test]
async fn a_hung_api_server_fails_neither_liveness_nor_the_shutdown() {
    let lab = Lab::with_lease("hung", SHORT_LEASE).await;
    let proxy = groundcrew_testkit::proxy::Proxy::before(lab.control_plane.address()).await.unwrap();
    let through = lab.control_plane.admin().through(proxy.address()).unwrap();
    let mut command = lab.command(&through);
    command.args(["--shutdown-budget", "1s"]);
    let hello = Controller::start("hung", command, lab.scratch.path(), SOON).await.unwrap();
    lab.until_leads(&hello).await;
    proxy.partition();
    lab.create("web").await;
    hello.until_metric("groundcrew_leader_leading_bool", SOON, |leading| leading < 0.5).await.unwrap();
    assert_eq!(hello.get("/healthz").await.unwrap().0, 200);

    proxy.heal();
    lab.until_served("web", Duration::from_mins(1)).await;
    proxy.partition();
    hello.process.signal(Signal::SIGTERM).unwrap();
    assert!(hello.process.wait_exit(SOON).await.unwrap().success());
}

#[tokio::test]
async fn a_wrong_flag_is_one_line_and_exit_code_2() {
    let scratch = Scratch::new("flags").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_provider-hello"));
    command.args(["--directory", "x", "--range", "192.0.2.0/24", "--lease-duration", "1s"]);
    let process = Process::spawn("flags", &command, scratch.path()).unwrap();
    assert_eq!(process.wait_exit(SOON).await.unwrap().code(), Some(2));
    let said = process.log();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("--lease-duration"), "{said}");
}

#[tokio::test]
async fn a_taken_port_is_told_with_its_flag() {
    let lab = Lab::new("port").await;
    let first = lab.start("first").await;
    let mut command = lab.command(lab.control_plane.admin());
    command.args(["--admin-address", &first.admin().to_string()]);
    let process = Process::spawn("second", &command, lab.scratch.path()).unwrap();
    assert_eq!(process.wait_exit(SOON).await.unwrap().code(), Some(1));
    assert!(process.log().contains("--admin-address"), "{}", process.log());
}
