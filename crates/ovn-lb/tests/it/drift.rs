//! What others do to our load balancers is seen at once, named, put right and told.

use std::time::{Duration, Instant};

use groundcrew_testkit::ovn::Northbound;
use groundcrew_testkit::ovn::lab::{CHASSIS, EXTERNAL_SWITCH, ROUTER, ROUTER_ADDRESS, ROUTER_MAC, SWITCH};
use groundcrew_testkit::proxy::Proxy;
use groundcrew_testkit::{Signal, eventually};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::data_path::{World, reaches};
use crate::harness::{Controller, Project, SOON, rows};

/// How long the brake leaves a Service alone at first.
const HOLD: Duration = Duration::from_secs(10);

/// How often this kind of drift was found so far.
pub(crate) async fn found(controller: &Controller, kind: &str) -> u64 {
    let page = crate::harness::get(controller.admin, "/metrics").await.unwrap().1;
    let is_it =
        |line: &&str| line.starts_with("groundcrew_drift_found_total{") && line.contains(&format!("\"{kind}\""));
    let counts = page.lines().filter(is_it).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    counts.sum()
}

/// How often something could not be written, or not even be tried.
async fn failures(controller: &Controller) -> u64 {
    let page = crate::harness::get(controller.admin, "/metrics").await.unwrap().1;
    let series = [
        r#"groundcrew_ovn_commits_total{outcome="failed"}"#,
        r#"groundcrew_service_reconciles_total{outcome="unavailable"}"#,
    ];
    let of = |series: &str| page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse::<u64>().ok());
    series.into_iter().filter_map(of).sum()
}

async fn until_failing(controller: &Controller, so_far: u64) {
    eventually("a write fails", SOON, async || match failures(controller).await {
        n if n > so_far => Ok(()),
        n => Err(format!("{n} failures")),
    })
    .await
    .unwrap();
}

pub(crate) async fn until_found(controller: &Controller, kind: &str, times: u64) {
    eventually(&format!("{kind} is reported"), SOON, async || match found(controller, kind).await {
        n if n >= times => Ok(()),
        n => Err(format!("{n} times")),
    })
    .await
    .unwrap();
}

pub(crate) async fn name_of(northbound: &Northbound, service: &str) -> String {
    let mark = format!("external_ids:groundcrew-service={service}");
    let said = northbound.nbctl(["--bare", "--columns=name", "find", "Load_Balancer", &mark]).await.unwrap();
    said.trim().to_owned()
}

/// Everything that the drifts of these tests touch.
pub(crate) async fn picture(northbound: &Northbound) -> String {
    let mut picture = rows(northbound).await;
    for table in ["Logical_Router", "Logical_Switch"] {
        let members = ["--columns=name,load_balancer", "list", table];
        picture += &northbound.nbctl(members).await.unwrap();
    }
    picture
}

#[tokio::test]
async fn each_kind_of_drift_is_named_and_put_right() {
    let project = Project::new("kinds").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    // Two Services, because one of them alone would be changed too often to be put right at once.
    let (one, other) = (project.served("one").await, project.served("other").await);
    let (first, second) = (name_of(&northbound, "one").await, name_of(&northbound, "other").await);
    let (router, switch) = (project.namespace.clone(), format!("{}-default", project.namespace));
    let before = picture(&northbound).await;
    let spoils: &[(&str, &[&str])] = &[
        ("row_missing", &["lb-del", &first]),
        ("router_detached", &["lr-lb-del", &router, &first]),
        ("switch_detached", &["ls-lb-del", &switch, &first]),
        ("vips", &["set", "load_balancer", &first, &format!("vips:\"{one}:80\"=\"10.9.9.9:1\"")]),
        ("vips", &["clear", "load_balancer", &second, "vips"]),
        ("options", &["set", "load_balancer", &second, "options:reject=false"]),
        ("selection_fields", &["set", "load_balancer", &second, "selection_fields=ip_src"]),
        ("protocol", &["set", "load_balancer", &second, "protocol=udp"]),
        ("name", &["set", "load_balancer", &second, "name=other"]),
        ("marks", &["remove", "load_balancer", &second, "external_ids", "groundcrew-uid"]),
    ];
    let mut counts = std::collections::BTreeMap::<_, u64>::new();
    for (kind, spoil) in spoils {
        northbound.nbctl(*spoil).await.unwrap();
        let times = counts.entry(*kind).or_default();
        *times += 1;
        until_found(&controller, kind, *times).await;
        eventually(&format!("{spoil:?} is undone"), SOON, async || {
            let now = picture(&northbound).await;
            if now == before { Ok(()) } else { Err(now) }
        })
        .await
        .unwrap();
    }
    // A second row with our marks and the same for the same Service.
    let marks: Vec<_> = before.lines().filter(|line| line.starts_with("external_ids")).collect();
    assert_eq!(marks.len(), 2);
    let copy = format!("external_ids:groundcrew-cluster={}", project.namespace);
    let uid = project.services().get("one").await.unwrap().metadata.uid.unwrap();
    let more = [
        format!("external_ids:groundcrew-uid={uid}"),
        format!("external_ids:groundcrew-namespace={}", project.namespace),
        "external_ids:groundcrew-service=one".to_owned(),
    ];
    let duplicate = ["create", "load_balancer", "name=twin", &copy].into_iter().chain(more.iter().map(String::as_str));
    northbound.nbctl(duplicate).await.unwrap();
    until_found(&controller, "duplicate", 1).await;
    assert_eq!(picture(&northbound).await, before);
    assert_eq!(project.until_served("other").await, other);
    controller.stop().await;
}

/// kube-ovn's own rows, and one whose name it does not know either.
async fn add_others(northbound: &Northbound) {
    for name in ["vpc-x-tcp-load", "vpc-x-udp-load", "cluster-tcp-loadbalancer"] {
        northbound.nbctl(["lb-add", name, "10.96.0.10:53", "10.16.0.2:53"]).await.unwrap();
    }
}

/// As kube-ovn does it at each start as leader: every row whose name it does not know, in one transaction.
async fn collect(northbound: &Northbound) {
    let names = northbound.nbctl(["--bare", "--columns=name", "list", "Load_Balancer"]).await.unwrap();
    let unknown = names.split_whitespace().filter(|name| !name.starts_with("vpc-") && !name.starts_with("cluster-"));
    let transaction: Vec<_> = unknown.flat_map(|name| ["--", "lb-del", name]).skip(1).collect();
    northbound.nbctl(transaction).await.unwrap();
}

#[tokio::test]
async fn a_collection_by_name_is_undone_in_a_few_transactions_each_of_three_times() {
    const SERVICES: u8 = 15;
    let project = Project::new("collection").await;
    let northbound = project.northbound().await;
    project.pool(SERVICES).await;
    add_others(&northbound).await;
    let controller = project.controller(&northbound).await;
    for n in 0..SERVICES {
        project.endpoints(&format!("web-{n}"), 8080, &["10.1.0.41"]).await;
        project.create(&format!("web-{n}"), json!({})).await;
    }
    for n in 0..SERVICES {
        project.until_reason(&format!("web-{n}"), "Served").await;
    }
    let before = picture(&northbound).await;
    let commits = r#"groundcrew_ovn_commits_total{outcome="ok"}"#;
    for round in 1..=3 {
        let so_far = controller.metric(commits).await;
        collect(&northbound).await;
        eventually("everything is back", SOON, async || {
            let now = picture(&northbound).await;
            if now == before { Ok(()) } else { Err(now) }
        })
        .await
        .unwrap();
        let spent = controller.metric(commits).await - so_far;
        assert!(spent <= 5.0, "{spent} transactions in round {round}");
    }
    let held = controller.metric("groundcrew_drift_flapping_services").await;
    assert!(held < 0.5, "{held} are held back, though three times a minute are no fight");
    until_found(&controller, "row_missing", 3 * u64::from(SERVICES)).await;
    let events: Api<Event> = Api::default_namespaced(project.client.clone());
    let summary = format!("{SERVICES} Services were changed");
    eventually("the mass drift is told once for all", SOON, async || {
        let told = events.list(&ListParams::default()).await?;
        let notes = told.items.iter().filter_map(|event| event.note.as_deref());
        anyhow::ensure!(notes.into_iter().any(|note| note.starts_with(&summary)), "no {summary}");
        Ok(())
    })
    .await
    .unwrap();
    // Rounds that come within half a second of each other are told as one.
    let told = controller.metric(r#"groundcrew_drift_mass_total{cause="unknown_writer"}"#).await;
    assert!(told <= 3.0, "{told} summaries of three rounds");
    controller.stop().await;
}

#[tokio::test]
async fn a_service_deleted_while_its_row_is_put_back_is_not_resurrected() {
    let project = Project::new("resurrected").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    let empty = picture(&northbound).await;
    for round in 0..5 {
        project.served("web").await;
        let row = name_of(&northbound, "web").await;
        let gone = ["lb-del", row.as_str()];
        let delete = DeleteParams::default();
        let services = project.services();
        let (deleted, removed) = tokio::join!(services.delete("web", &delete), northbound.nbctl(gone));
        deleted.unwrap();
        // Where the Service was quicker there is no row to delete any more.
        let _ = removed;
        project.until_gone("web").await;
        assert_eq!(picture(&northbound).await, empty, "round {round}");
    }
    controller.stop().await;
}

#[tokio::test]
async fn a_writer_in_a_tight_loop_is_held_off_and_other_services_are_not() {
    let project = Project::new("tight").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    project.served("contested").await;
    project.served("calm").await;
    let contested = name_of(&northbound, "contested").await;
    let calm = name_of(&northbound, "calm").await;
    let commits = r#"groundcrew_ovn_commits_total{outcome="ok"}"#;
    let so_far = controller.metric(commits).await;
    let told = project.until("contested", "it is told that it is held back", |service| {
        let conditions = service.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|c| c.type_ == "groundcrew.dev/DriftFlapping" && c.status == "True").map(drop)
    });
    let spoiling = async {
        loop {
            northbound.nbctl(["--if-exists", "lb-del", &contested]).await.unwrap();
        }
    };
    let began = Instant::now();
    tokio::select! {
        () = told => {}
        () = spoiling => {}
    }
    // In as few commands as can be: it is left alone for ten seconds.
    northbound.nbctl(["--if-exists", "lb-del", &contested, "--", "lb-del", &calm]).await.unwrap();
    let list = ["--bare", "--columns=name", "list", "Load_Balancer"];
    let back = project.until_nbctl(&northbound, &list, "the calm one is back", |said| said.contains(&calm)).await;
    let spent = controller.metric(commits).await - so_far;
    // On a machine that took longer than the hold lasts, it is over.
    if began.elapsed() < HOLD {
        assert!(!back.contains(&contested), "it is left alone for a while: {back}");
        assert!(spent <= 11.0, "{spent} transactions for ten repairs of one and one of the other");
    }
    controller.stop().await;
}

#[tokio::test]
async fn drift_while_ovn_hangs_or_is_read_only_is_put_right_after() {
    let project = Project::new("later").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let proxy = Proxy::before(northbound.tcp_address(0)).await.unwrap();
    let controller = project.start(&format!("tcp:{}", proxy.address()), &[]).await;
    controller.until_ready().await;
    project.served("web").await;
    let before = picture(&northbound).await;
    let row = name_of(&northbound, "web").await;
    let undone = async |what: &str| {
        eventually(what, SOON, async || {
            let now = picture(&northbound).await;
            if now == before { Ok(()) } else { Err(now) }
        })
        .await
        .unwrap();
    };

    let so_far = failures(&controller).await;
    northbound.signal(0, Signal::SIGSTOP).unwrap();
    let deleting = tokio::spawn({
        let (remote, row) = (northbound.unix(0), row.clone());
        async move {
            let mut command = tokio::process::Command::new("ovn-nbctl");
            command.args(["--db", &remote, "--no-leader-only", "lb-del", &row]).kill_on_drop(true);
            command.status().await
        }
    });
    // Something that has to be written, and cannot be: the deletion waits in the server before it is over.
    project.endpoints("web", 8080, &["10.1.0.42"]).await;
    until_failing(&controller, so_far).await;
    assert!(!deleting.is_finished(), "the server hangs");
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    northbound.signal(0, Signal::SIGCONT).unwrap();
    assert!(deleting.await.unwrap().unwrap().success());
    undone("the row is back after the hang").await;

    // It is told only when nothing can be written any more.
    proxy.partition();
    northbound.nbctl(["lr-lb-del", &project.namespace, &row]).await.unwrap();
    northbound.set_read_only(true).await.unwrap();
    let so_far = failures(&controller).await;
    proxy.heal();
    until_failing(&controller, so_far).await;
    assert_ne!(picture(&northbound).await, before);
    northbound.set_read_only(false).await.unwrap();
    undone("the row is attached after the read-only time").await;
    controller.stop().await;
}

#[tokio::test]
async fn packets_flow_again_after_every_kind_of_drift() {
    let world = World::alone("drift-packets", 148).await;
    let vip = world.serve("web", json!({})).await[0];
    let northbound = world.lab.northbound();
    let row = name_of(northbound, "web").await;
    let (outside, inside) = (world.lab.client(), world.lab.pod(2));
    let spoils: &[(&str, &[&str])] = &[
        ("row gone", &["lb-del", &row]),
        ("router detached", &["lr-lb-del", ROUTER, &row]),
        ("switch detached", &["ls-lb-del", SWITCH, &row]),
        ("VIP changed", &["set", "load_balancer", &row, &format!("vips:\"{vip}:80\"=\"10.1.9.9:1\"")]),
    ];
    for (what, spoil) in spoils {
        let before = picture(northbound).await;
        northbound.nbctl(*spoil).await.unwrap();
        eventually(&format!("{what}: undone"), SOON, async || {
            let now = picture(northbound).await;
            if now == before { Ok(()) } else { Err(now) }
        })
        .await
        .unwrap();
        world.lab.wait_hypervisor().await.unwrap();
        for client in [outside, inside] {
            reaches(client, vip, what).await;
        }
    }
    northbound.nbctl(["lr-del", ROUTER]).await.unwrap();
    world.project.until_reason("web", "RouterMissing").await;
    let router = format!(
        "lr-add {ROUTER} -- lrp-add {ROUTER} {ROUTER}-{EXTERNAL_SWITCH} {ROUTER_MAC} {ROUTER_ADDRESS}/24 \
         -- lrp-set-gateway-chassis {ROUTER}-{EXTERNAL_SWITCH} {CHASSIS} 10 \
         -- lrp-add {ROUTER} {ROUTER}-{SWITCH} 0a:00:00:00:01:01 10.1.0.1/16"
    );
    northbound.nbctl(router.split_whitespace()).await.unwrap();
    world.project.until_reason("web", "Served").await;
    world.lab.wait_hypervisor().await.unwrap();
    for client in [outside, inside] {
        reaches(client, vip, "the new router serves").await;
    }
}
