//! What others do to our rows is undone, and what is theirs stays.

use groundcrew_testkit::Scratch;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::harness::{Project, rows};

#[tokio::test]
async fn a_row_deleted_by_somebody_else_is_back() {
    let project = Project::new("deleted").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    project.served("web").await;
    let before = rows(&northbound).await;
    // As kube-ovn's start-up collection does it: all of them in one transaction.
    northbound.nbctl(["lb-del", &name_of(&before)]).await.unwrap();
    project
        .until_nbctl(&northbound, &["lr-lb-list", &project.namespace], "the row is back", |said| !said.is_empty())
        .await;
    assert_eq!(rows(&northbound).await, before);
}

#[tokio::test]
async fn a_row_changed_behind_our_back_is_repaired_whatever_was_changed() {
    let project = Project::new("changed").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    let vip = format!("{}:80", project.served("web").await);
    let before = rows(&northbound).await;
    let name = name_of(&before);
    let list = ["--columns=_uuid,name,protocol,vips,options,external_ids", "list", "Load_Balancer"];
    for spoil in [
        ["set", "load_balancer", &name, &format!("vips:\"{vip}\"=\"10.9.9.9:1\"")],
        ["clear", "load_balancer", &name, "options"],
        ["set", "load_balancer", &name, "protocol=udp"],
        ["clear", "load_balancer", &name, "external_ids"],
        ["set", "load_balancer", &name, "name=other"],
        ["lr-lb-del", &project.namespace, &name, ""],
    ] {
        northbound.nbctl(spoil.iter().filter(|arg| !arg.is_empty())).await.unwrap();
        project.until_nbctl(&northbound, &list, &format!("{spoil:?} is undone"), |said| said == before).await;
        let (router, attached) = (["lr-lb-list", project.namespace.as_str()], "the row is on its router");
        project.until_nbctl(&northbound, &router, attached, |said| said.contains(&vip)).await;
    }
}

#[tokio::test]
async fn a_row_put_where_its_clients_are_not_is_taken_off_again() {
    let project = Project::new("misplaced").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    // With affinity clients outside and inside have a row each.
    project.create("web", json!({ "sessionAffinity": "ClientIP" })).await;
    project.until_served("web").await;
    let switch = format!("{}-default", project.namespace);
    let (router_list, switch_list) = (["lr-lb-list", &*project.namespace], ["ls-lb-list", &*switch]);
    let before = [northbound.nbctl(router_list).await.unwrap(), northbound.nbctl(switch_list).await.unwrap()];
    let uuid = |list: &str| list.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let (outside, inside) = (uuid(&before[0]), uuid(&before[1]));
    assert_ne!(outside, inside);
    for (put, list, was) in [
        (["ls-lb-add", &*switch, &*outside], switch_list, &before[1]),
        (["lr-lb-add", &*project.namespace, &*inside], router_list, &before[0]),
    ] {
        northbound.nbctl(put).await.unwrap();
        project.until_nbctl(&northbound, &list, &format!("{put:?} is undone"), |said| said == was).await;
    }
}

#[tokio::test]
async fn a_router_made_anew_under_its_old_name_is_attached_again() {
    let project = Project::new("router").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    let address = project.served("web").await;
    let router = project.namespace.as_str();
    northbound.nbctl(["lr-del", router]).await.unwrap();
    let message = project.until_reason("web", "RouterMissing").await;
    assert!(message.contains(router), "{message}");
    northbound.nbctl(["lr-add", router]).await.unwrap();
    let attached = ["lr-lb-list", router];
    project.until_nbctl(&northbound, &attached, "the new router has it", |said| said.contains(&address)).await;
    project.until_reason("web", "Served").await;
}

#[tokio::test]
async fn a_service_that_is_deleted_while_its_router_is_gone_leaves_nothing() {
    let project = Project::new("routerless").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    project.served("web").await;
    northbound.nbctl(["lr-del", &project.namespace]).await.unwrap();
    project.until_reason("web", "RouterMissing").await;
    project.delete("web").await;
    assert_eq!(northbound.nbctl(["lb-list"]).await.unwrap(), "");
    let switch = format!("{}-default", project.namespace);
    assert_eq!(northbound.nbctl(["ls-lb-list", &switch]).await.unwrap(), "");
    assert_eq!(project.eip_list().await, []);
}

#[tokio::test]
async fn of_two_routers_or_two_rows_with_one_name_none_is_taken_for_the_other() {
    let project = Project::new("namesakes").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    let address = project.served("web").await;
    project.until_reason("web", "Served").await;
    let before = rows(&northbound).await;
    let router = project.namespace.as_str();
    let twin = northbound.nbctl(["create", "Logical_Router", &format!("name={router}")]).await.unwrap();
    let message = project.until_reason("web", "RouterAmbiguous").await;
    assert!(message.contains(router), "{message}");
    assert_eq!(rows(&northbound).await, before, "what is served stays");
    northbound.nbctl(["destroy", "Logical_Router", twin.trim()]).await.unwrap();
    project.until_reason("web", "Served").await;

    // Somebody else's row under the name of ours, while ours is there, and then alone.
    let name = name_of(&before);
    let row = format!("name={name}");
    let foreign = northbound.nbctl(["create", "Load_Balancer", &row, "external_ids:mine=1"]).await.unwrap();
    let message = project.until_reason("web", "NameShared").await;
    assert!(message.contains(&name) && message.contains(foreign.trim()), "{message}");
    let uuid = project.services().get("web").await.unwrap().metadata.uid.unwrap();
    let ours = format!("external_ids:groundcrew-uid={uuid}");
    let find = ["--bare", "--columns=_uuid", "find", "Load_Balancer", &ours];
    let kept = northbound.nbctl(find).await.unwrap();
    northbound.nbctl(["destroy", "Load_Balancer", kept.trim()]).await.unwrap();
    let attached = ["lr-lb-list", router];
    project.until_nbctl(&northbound, &attached, "ours is back", |said| said.contains(&address)).await;
    let theirs = ["--bare", "--columns=name,vips,external_ids", "list", "Load_Balancer", foreign.trim()];
    let left = northbound.nbctl(theirs).await.unwrap();
    assert_eq!(left.split_whitespace().collect::<Vec<_>>(), [&*name, "mine=1"], "it is not ours to change");
    northbound.nbctl(["destroy", "Load_Balancer", foreign.trim()]).await.unwrap();
    project.until_reason("web", "Served").await;
    assert_eq!(rows(&northbound).await, before);

    // Ours says that it is another cluster's.
    let mark = |cluster: &str| format!("external_ids:groundcrew-cluster={cluster}");
    northbound.nbctl(["set", "Load_Balancer", &name, &mark("another")]).await.unwrap();
    let marked = rows(&northbound).await;
    let message = project.until_reason("web", "LoadBalancerMarked").await;
    assert!(message.contains(&name), "{message}");
    assert_eq!(rows(&northbound).await, marked, "it is left alone");
    northbound.nbctl(["remove", "Load_Balancer", &name, "external_ids", "groundcrew-cluster"]).await.unwrap();
    project.until_reason("web", "Served").await;
    assert_eq!(rows(&northbound).await, before);
}

#[tokio::test]
async fn while_its_router_is_there_twice_or_gone_a_service_stays_closed_to_whom_its_ranges_keep_out() {
    let project = Project::new("doubled").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    let router = project.namespace.as_str();
    let switch = format!("{router}-default");
    northbound.nbctl(["lrp-add", router, "inside", "0a:00:00:00:00:01", "10.1.0.1/16"]).await.unwrap();
    let plug = [
        "lsp-add",
        &switch,
        "up",
        "--",
        "lsp-set-type",
        "up",
        "router",
        "--",
        "lsp-set-options",
        "up",
        "router-port=inside",
    ];
    northbound.nbctl(plug).await.unwrap();
    project.endpoints("web", 8080, &["10.1.0.41", "10.2.0.41"]).await;
    project.create("web", json!({ "loadBalancerSourceRanges": ["203.0.113.0/24"] })).await;
    project.until_reason("web", "BackendOutsideProject").await;
    let guards = async || {
        let ports = northbound.nbctl(["--columns=name,ports,acls", "list", "Port_Group"]).await.unwrap();
        ports + &northbound.nbctl(["lb-list"]).await.unwrap()
    };
    let before = guards().await;
    assert!(before.contains("10.1.0.41:8080") && !before.contains("10.2.0.41"), "{before}");

    let twin = northbound.nbctl(["create", "Logical_Router", &format!("name={router}")]).await.unwrap();
    project.until_reason("web", "RouterAmbiguous").await;
    assert_eq!(guards().await, before);
    northbound.nbctl(["destroy", "Logical_Router", twin.trim()]).await.unwrap();
    project.until_reason("web", "BackendOutsideProject").await;

    let uuid = northbound
        .nbctl(["--bare", "--columns=_uuid", "find", "Logical_Router", &format!("name={router}")])
        .await
        .unwrap();
    northbound.nbctl(["set", "Logical_Router", uuid.trim(), "name=renamed"]).await.unwrap();
    project.until_reason("web", "RouterMissing").await;
    let ports = ["--bare", "--columns=ports", "list", "Port_Group"];
    assert!(!northbound.nbctl(ports).await.unwrap().trim().is_empty(), "the rules stay where they are");
    project.endpoints("web", 8080, &["10.1.0.42", "10.2.0.42"]).await;
    let is_there = |said: &str| said.contains("10.1.0.42:8080");
    let said = project.until_nbctl(&northbound, &["lb-list"], "what is inside is served", is_there).await;
    assert!(!said.contains("10.2.0.42"), "the row is still on that router: {said}");
    project.endpoints("web", 8080, &["10.1.0.41", "10.2.0.41"]).await;
    let is_back = |said: &str| said.contains("10.1.0.41:8080");
    project.until_nbctl(&northbound, &["lb-list"], "it is as before", is_back).await;
    northbound.nbctl(["set", "Logical_Router", uuid.trim(), &format!("name={router}")]).await.unwrap();
    project.until_reason("web", "BackendOutsideProject").await;
    assert_eq!(guards().await, before);
}

#[tokio::test]
async fn a_changed_resync_timestamp_has_that_service_looked_at_at_once() {
    let project = Project::new("resync").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    project.served("web").await;
    project.until_reason("web", "Served").await;
    let looks = async || controller.metric("groundcrew_service_reconciles_total{outcome=\"ok\"}").await;
    // The echo of our own last write has it looked at, too; after this one there is none left.
    let mut before = looks().await;
    for round in 0..3 {
        let touch = json!({ "metadata": { "annotations": { "kube-dc.com/lb-resync-timestamp": round.to_string() } } });
        project.services().patch("web", &PatchParams::default(), &Patch::Merge(touch)).await.unwrap();
        before = groundcrew_testkit::eventually("it is looked at", crate::harness::SOON, async || {
            let now = looks().await;
            if now > before { Ok(now) } else { Err("not yet") }
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn a_restored_database_is_brought_up_to_date_and_written_by_its_leader() {
    let project = Project::new("restored").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    let old = project.served("old").await;
    let scratch = Scratch::new("backup").unwrap();
    northbound.backup(&scratch.join("nb")).await.unwrap();
    let new = project.served("new").await;
    northbound.restore(&scratch.join("nb")).await.unwrap();
    let has_both = |said: &str| said.contains(&old) && said.contains(&new);
    let attached = ["lr-lb-list", project.namespace.as_str()];
    project.until_nbctl(&northbound, &attached, "both are on the router", has_both).await;
    let list = northbound.nbctl(["--bare", "--columns=name", "list", "Load_Balancer"]).await.unwrap();
    assert_eq!(list.split_whitespace().count(), 2, "{list}");
}

#[tokio::test]
async fn an_older_file_of_the_database_that_is_put_back_is_completed_and_nobody_is_blamed() {
    let project = Project::new("older").await;
    let mut northbound = project.northbound().await;
    project.pool(8).await;
    let controller = project.controller(&northbound).await;
    project.served("old").await;
    let scratch = Scratch::new("older").unwrap();
    northbound.copy(&scratch.join("nb")).unwrap();
    project.served("new").await;
    let before = rows(&northbound).await;
    northbound.put_back(&scratch.join("nb")).await.unwrap();
    let repaired = r#"groundcrew_drift_repaired_total{cause="database_restored",kind="row_missing"}"#;
    groundcrew_testkit::eventually("it is told", crate::harness::SOON, async || {
        let (_, page) = crate::harness::get(controller.admin, "/metrics").await?;
        anyhow::ensure!(page.lines().any(|line| line == format!("{repaired} 1")), "{page}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(rows(&northbound).await, before);
    controller.stop().await;
}

#[tokio::test]
async fn an_emptied_database_is_filled_again() {
    let project = Project::new("emptied").await;
    let mut northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    let address = project.served("web").await;
    northbound.rebuild_empty().await.unwrap();
    project.connect(&northbound).await;
    let attached = ["lr-lb-list", project.namespace.as_str()];
    project.until_nbctl(&northbound, &attached, "the row is back", |said| said.contains(&address)).await;
}

#[tokio::test]
async fn an_eip_removed_by_hand_comes_back_with_its_address() {
    let project = Project::new("eip").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    let address = project.served("web").await;
    let eip = project.eip_list().await.remove(0);
    let (name, uid) = (eip.metadata.name.unwrap(), eip.metadata.uid);
    project.eips().delete(&name, &DeleteParams::default()).await.unwrap();
    let no_finalizer = json!({ "metadata": { "finalizers": null } });
    project.eips().patch(&name, &PatchParams::default(), &Patch::Merge(no_finalizer)).await.unwrap();
    groundcrew_testkit::eventually("another EIp has the address", crate::harness::SOON, async || {
        let eip = project.eips().get(&name).await?;
        anyhow::ensure!(eip.metadata.uid != uid, "still the old one");
        anyhow::ensure!(eip.status.and_then(|s| s.ip_address).as_ref() == Some(&address), "no address yet");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(project.until_served("web").await, address);
}

fn name_of(rows: &str) -> String {
    let line = rows.lines().find(|line| line.starts_with("name ")).unwrap();
    line.split(['"', ' ']).rfind(|part| !part.is_empty()).unwrap().to_owned()
}
