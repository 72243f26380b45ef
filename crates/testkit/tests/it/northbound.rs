use std::fs;
use std::time::Duration;

use groundcrew_testkit::ovn::{self, Northbound, ServerName};
use groundcrew_testkit::{Scratch, Signal, eventually};
use tokio::process::Command;

const SOON: Duration = Duration::from_mins(1);

async fn switches(nb: &Northbound) -> Vec<String> {
    let list = nb.nbctl(["--bare", "--columns=name", "list", "Logical_Switch"]).await.unwrap();
    list.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_server_keeps_rows_and_address_over_a_kill() {
    let mut nb = Northbound::standalone().await.unwrap();
    let before = nb.tcp(0);
    nb.nbctl(["ls-add", "one"]).await.unwrap();
    nb.stop(0, Signal::SIGKILL).await.unwrap();
    assert!(nb.signal(0, Signal::SIGCONT).unwrap_err().to_string().contains("nb0 is stopped"));
    nb.restart(0).await.unwrap();
    assert_eq!((nb.tcp(0), switches(&nb).await), (before, vec!["one".to_owned()]));
}

#[tokio::test]
async fn a_stopped_server_hangs_and_goes_on() {
    let nb = Northbound::standalone().await.unwrap();
    nb.signal(0, Signal::SIGSTOP).unwrap();
    let hung = nb.nbctl(["--timeout=1", "ls-list"]).await;
    assert!(format!("{:#}", hung.unwrap_err()).contains("signal"), "ovn-nbctl is ended by its own alarm");
    nb.signal(0, Signal::SIGCONT).unwrap();
    nb.nbctl(["ls-list"]).await.unwrap();
}

#[tokio::test]
async fn a_cluster_elects_another_leader() {
    let mut nb = Northbound::cluster(3).await.unwrap();
    nb.nbctl(["ls-add", "one"]).await.unwrap();
    let first = nb.leader().await.unwrap();
    nb.stop(first, Signal::SIGKILL).await.unwrap();
    let second = nb.leader().await.unwrap();
    assert_ne!(first, second);
    assert_eq!(switches(&nb).await, ["one"]);
    nb.restart(first).await.unwrap();
    let status = nb.appctl(first, ["cluster/status", "OVN_Northbound"]).await.unwrap();
    assert!(status.contains("Status: cluster member"), "{status}");
}

#[tokio::test]
async fn a_stopped_leader_is_replaced() {
    let nb = Northbound::cluster(3).await.unwrap();
    let first = nb.leader().await.unwrap();
    nb.signal(first, Signal::SIGSTOP).unwrap();
    assert_ne!(nb.leader().await.unwrap(), first);
}

#[tokio::test]
async fn a_cluster_without_quorum_starts_again_member_by_member() {
    let mut nb = Northbound::cluster(3).await.unwrap();
    nb.nbctl(["ls-add", "one"]).await.unwrap();
    for member in 0..3 {
        nb.stop(member, Signal::SIGTERM).await.unwrap();
    }
    for member in 0..3 {
        nb.restart(member).await.unwrap();
    }
    nb.leader().await.unwrap();
    assert_eq!(switches(&nb).await, ["one"]);
}

#[tokio::test]
async fn one_member_makes_a_cluster() {
    let nb = Northbound::cluster(1).await.unwrap();
    assert_eq!(nb.leader().await.unwrap(), 0);
}

#[tokio::test]
async fn a_backup_brings_rows_back_under_new_uuids() {
    let nb = Northbound::standalone().await.unwrap();
    let dir = Scratch::new("backup").unwrap();
    let uuid = ["--bare", "--columns=_uuid", "list", "Logical_Switch"];
    nb.nbctl(["ls-add", "one"]).await.unwrap();
    let before = nb.nbctl(uuid).await.unwrap();
    nb.backup(&dir.join("nb")).await.unwrap();
    nb.nbctl(["ls-del", "one"]).await.unwrap();
    nb.restore(&dir.join("nb")).await.unwrap();
    assert_eq!(switches(&nb).await, ["one"]);
    assert_ne!(nb.nbctl(uuid).await.unwrap(), before);
}

#[tokio::test]
async fn a_schema_is_converted_under_a_running_server() {
    let nb = Northbound::standalone().await.unwrap();
    let dir = Scratch::new("convert").unwrap();
    let schema = fs::read_to_string(ovn::schema().unwrap()).unwrap();
    let added =
        schema.replacen(r#""tables": {"#, r#""tables": { "Added": {"columns": {"n": {"type": "integer"}}},"#, 1);
    fs::write(dir.join("schema"), added).unwrap();
    nb.convert(&dir.join("schema")).await.unwrap();
    nb.nbctl(["ls-add", "one"]).await.unwrap();
    let refused = nb.nbctl(["list", "Added"]).await.unwrap_err().to_string();
    assert!(refused.contains("unknown table"), "ovn-nbctl knows its own tables only: {refused}");
    let mut dump = Command::new("ovsdb-client");
    let dump = dump.args(["dump", &nb.unix(0), "OVN_Northbound", "Added"]).output().await.unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
}

#[tokio::test]
async fn a_read_only_server_refuses_until_it_is_told_otherwise() {
    let nb = Northbound::standalone().await.unwrap();
    nb.set_read_only(true).await.unwrap();
    let refused = format!("{:#}", nb.nbctl(["ls-add", "one"]).await.unwrap_err());
    assert!(refused.contains("not allowed"), "{refused}");
    nb.set_read_only(false).await.unwrap();
    nb.nbctl(["ls-add", "one"]).await.unwrap();
}

#[tokio::test]
async fn a_rebuilt_server_is_empty_at_the_old_address() {
    let mut nb = Northbound::standalone().await.unwrap();
    let before = nb.tcp(0);
    nb.nbctl(["ls-add", "one"]).await.unwrap();
    nb.rebuild_empty().await.unwrap();
    assert_eq!((nb.tcp(0), switches(&nb).await), (before, vec![]));
}

#[tokio::test]
async fn tls_lets_in_who_has_a_certificate_of_its_authority() {
    for name in [ServerName::Loopback, ServerName::OvsPki] {
        let nb = Northbound::standalone_tls(name).await.unwrap();
        let tls = nb.tls().unwrap();
        let list = async |identity: &groundcrew_testkit::pki::Identity, seconds: u8| {
            Command::new("ovn-nbctl")
                .arg(format!("--db={}", nb.ssl(0).unwrap()))
                .arg(format!("--timeout={seconds}"))
                .args(["-p".as_ref(), identity.key.as_os_str()])
                .args(["-c".as_ref(), identity.certificate.as_os_str(), "-C".as_ref(), tls.authority.as_os_str()])
                .arg("ls-list")
                .output()
                .await
                .unwrap()
        };
        let welcome = list(&tls.client, 60).await;
        assert!(welcome.status.success(), "{name:?}: {}", String::from_utf8_lossy(&welcome.stderr));
        // It tries again and again until its time is over.
        assert!(!list(&tls.stranger, 3).await.status.success(), "{name:?}");
    }
}

#[tokio::test]
async fn clients_are_thrown_out_on_demand() {
    let nb = Northbound::standalone().await.unwrap();
    let mut monitor = Command::new("ovsdb-client");
    monitor.args(["monitor", &nb.tcp(0), "OVN_Northbound", "NB_Global", "nb_cfg"]).kill_on_drop(true);
    let mut monitor = monitor.stdout(std::process::Stdio::null()).spawn().unwrap();
    eventually("the monitor is connected", SOON, async || {
        let remotes = nb.appctl(0, ["memory/show"]).await?;
        anyhow::ensure!(remotes.contains("monitors:1"), remotes);
        Ok(())
    })
    .await
    .unwrap();
    nb.disconnect_clients(0).await.unwrap();
    let ended = tokio::time::timeout(SOON, monitor.wait()).await.unwrap().unwrap();
    assert!(!ended.success());
}
