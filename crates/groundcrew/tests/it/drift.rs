//! Who took the load balancers is told by the controller that owns them, and by the watcher of kube-dc's.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::{Scratch, Signal, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::lab::{Lab, SHORT_LEASE, SOON};

/// kube-ovn-controller's Lease, held by `holder`.
async fn lease(lab: &Lab, holder: &str) {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "kube-ovn-controller" }, "spec": { "holderIdentity": holder },
    });
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let params = PatchParams::apply("test").force();
    leases.patch("kube-ovn-controller", &params, &Patch::Apply(lease)).await.unwrap();
}

#[tokio::test]
async fn the_owner_of_the_rows_repairs_a_collection_and_names_it() {
    let lab = Lab::new("collected").await;
    lease(&lab, "kube-ovn-controller-a").await;
    lab.northbound().nbctl(["lb-add", "vpc-x-tcp-load", "10.96.0.1:443", "10.1.0.1:6443"]).await.unwrap();
    let controller = lab.spawn("owner", |command| command.args(["--kube-ovn-namespace", &lab.namespace]));
    lab.until_leads(&controller).await;
    for name in ["web", "api"] {
        lab.create(name).await;
        lab.until_served(name).await;
    }
    let before = lab.rows().await;
    lease(&lab, "kube-ovn-controller-b").await;
    eventually("the new leader was noticed", SOON, async || {
        ensure!(controller.process.log().contains("has a new leader"), "not yet");
        Ok(())
    })
    .await
    .unwrap();

    // As kube-ovn does it: all that it does not know, in one transaction.
    let line = before.iter().filter(|name| *name != "vpc-x-tcp-load").flat_map(|name| ["--", "lb-del", name]).skip(1);
    lab.northbound().nbctl(line).await.unwrap();
    let found = "groundcrew_drift_repaired_total{cause=\"kube_ovn_collection\",kind=\"row_missing\"}";
    controller.until_metric(found, SOON, |found| (found - 2.0).abs() < 0.1).await.unwrap();
    assert_eq!(lab.rows().await, before);
    let events: Api<Event> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let note = eventually("the Service is told", SOON, async || {
        let all = events.list(&ListParams::default()).await?.items;
        let told = all.into_iter().find(|event| event.reason.as_deref() == Some("DriftRepaired"));
        told.and_then(|event| event.note).ok_or_else(|| anyhow!("no such Event"))
    })
    .await
    .unwrap();
    assert!(note.contains("kube-ovn-controller-b became leader"), "{note}");
    assert!(controller.process.log().contains("GC_INTERVAL=0"), "the log has the remedy");
}

/// The row of a Service.
async fn row(lab: &Lab, service: &str) -> String {
    let mark = format!("external_ids:groundcrew-service={service}");
    let said = lab.northbound().nbctl(["--bare", "--columns=name", "find", "Load_Balancer", &mark]).await.unwrap();
    said.trim().to_owned()
}

async fn until_repaired(controller: &Controller, kind: &str, cause: &str, times: f64) {
    let series = format!("groundcrew_drift_repaired_total{{cause=\"{cause}\",kind=\"{kind}\"}}");
    controller.until_metric(&series, SOON, |repaired| (repaired - times).abs() < 0.1).await.unwrap();
}

#[tokio::test]
async fn the_owner_of_the_rows_tells_causes_apart_that_come_close_to_each_other() {
    let lab = Lab::new("causes").await;
    let controller = lab.spawn("owner", |command| command.args(["--kube-ovn-namespace", &lab.namespace]));
    lab.until_leads(&controller).await;
    for name in ["web", "api", "mail"] {
        lab.create(name).await;
        lab.until_served(name).await;
    }
    let (web, api) = (row(&lab, "web").await, row(&lab, "api").await);
    let northbound = lab.northbound();

    northbound.nbctl(["lb-del", &web]).await.unwrap();
    // Two changes that are read at once are one.
    eventually("the first was seen by itself", SOON, async || {
        ensure!(row(&lab, "web").await == web, "it is not put right");
        Ok(())
    })
    .await
    .unwrap();
    // By no means the work of whoever deleted the other.
    northbound.nbctl(["set", "load_balancer", &api, "options:reject=false"]).await.unwrap();
    until_repaired(&controller, "row_missing", "manual_delete", 1.0).await;
    until_repaired(&controller, "options", "unknown_writer", 1.0).await;

    northbound.nbctl(["lr-del", &lab.namespace, "--", "lr-add", &lab.namespace]).await.unwrap();
    until_repaired(&controller, "router_detached", "router_recreated", 3.0).await;
    let switch = format!("{}-default", lab.namespace);
    northbound.nbctl(["ls-del", &switch, "--", "ls-add", &switch]).await.unwrap();
    until_repaired(&controller, "switch_detached", "router_recreated", 3.0).await;
}

/// Waits until a Service says that its router is gone.
async fn until_routerless(lab: &Lab, name: &str) {
    eventually(&format!("{name} says that its router is gone"), SOON, async || {
        let status = lab.services().get(name).await?.status;
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        ensure!(conditions.iter().any(|condition| condition.reason == "RouterMissing"), "{conditions:?}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_router_that_was_gone_for_a_while_is_blamed_when_it_is_back() {
    let lab = Lab::new("routerless").await;
    let controller = lab.spawn("owner", |command| command.args(["--kube-ovn-namespace", &lab.namespace]));
    lab.until_leads(&controller).await;
    for name in ["web", "api"] {
        lab.create(name).await;
        lab.until_served(name).await;
    }
    let before = lab.rows().await;
    lab.northbound().nbctl(["lr-del", &lab.namespace]).await.unwrap();
    // Between the two there is nothing that could be put right.
    for name in ["web", "api"] {
        until_routerless(&lab, name).await;
    }
    lab.northbound().nbctl(["lr-add", &lab.namespace]).await.unwrap();
    // A look that was under way just then found that the router was missing.
    eventually("both are put right, and told whose fault it was", SOON, async || {
        let mut told = 0.0;
        for kind in ["router_detached", "router_missing"] {
            let series = format!("groundcrew_drift_repaired_total{{cause=\"router_recreated\",kind=\"{kind}\"}}");
            told += controller.metric(&series).await.unwrap_or_default();
        }
        ensure!(told > 1.5, "{told}");
        Ok(())
    })
    .await
    .unwrap();
    let attached = lab.northbound().nbctl(["lr-lb-list", &lab.namespace]).await.unwrap();
    for name in ["web", "api"] {
        assert!(attached.contains(&format!("{}:80", lab.address(name).await)), "{attached}");
    }
    assert_eq!(lab.rows().await, before);
}

/// Waits until a Service was told by whom it was changed, in these words.
async fn until_told(lab: &Lab, name: &str, words: &str) {
    let events: Api<Event> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let told = eventually(&format!("{name} is told of {words}"), SOON, async || {
        let all = events.list(&ListParams::default()).await?.items;
        let about = |event: &Event| event.regarding.as_ref().is_some_and(|object| object.name.as_deref() == Some(name));
        let mut repairs =
            all.into_iter().filter(|event| event.reason.as_deref() == Some("DriftRepaired") && about(event));
        repairs.next().and_then(|event| event.note).ok_or_else(|| anyhow!("no such Event"))
    })
    .await
    .unwrap();
    assert!(told.contains(words), "{told}");
}

/// Every cause to which any drift was put down.
async fn blamed(controller: &Controller) -> BTreeSet<String> {
    let (_, page) = controller.get("/metrics").await.unwrap();
    let found = page.lines().filter_map(|line| line.strip_prefix("groundcrew_drift_found_total{cause=\""));
    let counted = found.filter(|line| !line.ends_with(" 0"));
    counted.filter_map(|line| Some(line.split_once('"')?.0.to_owned())).collect()
}

/// Both Services are served as before.
async fn assert_served(lab: &Lab, names: [&str; 2], rows: &[String]) {
    assert_eq!(lab.rows().await, rows);
    let switch = format!("{}-default", lab.namespace);
    for list in [["lr-lb-list", &lab.namespace], ["ls-lb-list", &switch]] {
        let attached = lab.northbound().nbctl(list).await.unwrap();
        for name in names {
            assert!(attached.contains(&format!("{}:80", lab.address(name).await)), "{attached}");
        }
    }
}

#[tokio::test]
async fn an_emptied_database_is_filled_again_and_told_as_such() {
    let mut lab = Lab::new("emptied").await;
    let controller = lab.spawn("owner", |command| command.args(["--kube-ovn-namespace", &lab.namespace]));
    lab.until_leads(&controller).await;
    for name in ["web", "api"] {
        lab.create(name).await;
        lab.until_served(name).await;
    }
    let before = lab.rows().await;
    lab.rebuild_ovn().await;
    // It was seen empty.
    for name in ["web", "api"] {
        until_routerless(&lab, name).await;
    }
    lab.connect().await;
    for name in ["web", "api"] {
        until_told(&lab, name, "an emptied or rebuilt northbound database").await;
    }
    assert_eq!(blamed(&controller).await, BTreeSet::from(["database_emptied".to_owned()]));
    assert_served(&lab, ["web", "api"], &before).await;
}

#[tokio::test]
async fn a_database_that_was_rebuilt_before_anybody_looked_is_told_as_such() {
    // Nobody else may lead while the leader stands still.
    let mut lab = Lab::with_lease("rebuilt", Duration::from_mins(1)).await;
    let controller = lab.spawn("owner", |command| command.args(["--kube-ovn-namespace", &lab.namespace]));
    lab.until_leads(&controller).await;
    for name in ["web", "api"] {
        lab.create(name).await;
        lab.until_served(name).await;
    }
    let before = lab.rows().await;
    controller.process.signal(Signal::SIGSTOP).unwrap();
    lab.rebuild_ovn().await;
    lab.connect().await;
    controller.process.signal(Signal::SIGCONT).unwrap();
    until_repaired(&controller, "row_missing", "database_emptied", 2.0).await;
    for name in ["web", "api"] {
        until_told(&lab, name, "an emptied or rebuilt northbound database").await;
    }
    assert_eq!(blamed(&controller).await, BTreeSet::from(["database_emptied".to_owned()]));
    assert_served(&lab, ["web", "api"], &before).await;
}

#[tokio::test]
async fn a_database_restored_from_a_backup_is_completed_and_told_as_such() {
    let lab = Lab::new("restored").await;
    let controller = lab.spawn("owner", |command| command.args(["--kube-ovn-namespace", &lab.namespace]));
    lab.until_leads(&controller).await;
    lab.create("old").await;
    lab.until_served("old").await;
    let scratch = Scratch::new("backup").unwrap();
    lab.northbound().backup(&scratch.join("nb")).await.unwrap();
    lab.create("new").await;
    lab.until_served("new").await;
    let before = lab.rows().await;
    lab.northbound().restore(&scratch.join("nb")).await.unwrap();
    // The other one is in the backup, and has lost nothing.
    until_repaired(&controller, "row_missing", "database_restored", 1.0).await;
    until_told(&lab, "new", "a restore of the northbound database").await;
    assert_eq!(blamed(&controller).await, BTreeSet::from(["database_restored".to_owned()]));
    assert_served(&lab, ["old", "new"], &before).await;
}

#[tokio::test]
async fn drift_during_a_hand_over_is_put_right_and_told_by_the_successor() {
    let lab = Lab::with_lease("succeeded", SHORT_LEASE).await;
    let first = lab.spawn("first", |command| command);
    lab.until_leads(&first).await;
    lab.create("web").await;
    lab.until_served("web").await;
    // It finds the Service as it should be, whenever its watches tell: what differs later is drift.
    let second = lab.start("second").await;
    let (before, row) = (lab.rows().await, row(&lab, "web").await);
    eventually("the second has seen it", SOON, async || {
        let seen = second.metric("groundcrew_services").await?;
        if seen > 0.5 { Ok(()) } else { Err(anyhow!("{seen}")) }
    })
    .await
    .unwrap();
    // Nobody leads when it happens.
    first.process.signal(Signal::SIGKILL).unwrap();
    lab.northbound().nbctl(["lb-del", &row]).await.unwrap();
    until_repaired(&second, "row_missing", "manual_delete", 1.0).await;
    assert_eq!(lab.rows().await, before);
}

#[tokio::test]
async fn the_watcher_as_a_process_wakes_the_manager_for_a_lost_row() {
    let lab = Lab::new("watched").await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
        "spec": { "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{ "port": 80 }] },
    });
    lab.services().create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } } });
    lab.services().patch_status("web", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let row = format!("{}-web-tcp", lab.namespace);
    lab.northbound().nbctl(["lb-add", &row, "192.0.2.7:80", "10.1.0.41:8080"]).await.unwrap();
    let watcher = lab.watcher("watcher").await;
    watcher.until_metric("groundcrew_watcher_services", SOON, |n| n > 0.5).await.unwrap();
    lab.northbound().nbctl(["lb-del", &row]).await.unwrap();
    eventually("the manager is woken", SOON, async || {
        let service: Service = lab.services().get("web").await?;
        let annotations = service.metadata.annotations.unwrap_or_default();
        ensure!(annotations.contains_key("kube-dc.com/lb-resync-timestamp"), "{annotations:?}");
        Ok(())
    })
    .await
    .unwrap();
}
