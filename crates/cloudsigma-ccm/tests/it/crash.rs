//! A controller that dies between any two of its writes loses nothing, and leaves nothing behind.

use groundcrew_testkit::cloudsigma::{Effect, Fault};
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::{Closing, Gate};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use super::lab::{Controller, Lab, SOON, address};

async fn until<E: std::fmt::Display>(what: &str, probe: impl AsyncFnMut() -> Result<(), E>) {
    eventually(what, SOON, probe).await.unwrap();
}

/// A Service all the way up and down by controllers that do not die, and the account as it was.
async fn recovers(lab: &Lab, killed: Controller, before: &groundcrew_testkit::cloudsigma::Account) {
    killed.kill();
    lab.cloud.heal();
    let controller = lab.controller(&[]).await;
    lab.until_served("web").await;
    let marked = lab.cloud.snapshot().ips.values().filter(|ip| ip["meta"] != json!({})).count();
    assert_eq!(marked, 1, "one Service has one address");
    lab.delete("web").await;
    lab.until_gone("web").await;
    lab.until_account(before).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_write_to_the_cloud_on_the_way_up_it_goes_on_where_it_was() {
    let lab = Lab::new("cs-up", 2).await;
    lab.add_ips([1, 2]);
    let before = lab.cloud.snapshot();
    // The mark, then three tags: each once before it is done, and once after.
    for (method, path, passed) in [("PUT", "ips/", 0), ("POST", "tags/", 0), ("POST", "tags/", 1), ("POST", "tags/", 2)]
    {
        for effect in [Effect::Hang, Effect::LoseAnswer] {
            lab.cloud.fault(Fault::on(method, path, effect).after(passed));
            let start = lab.cloud.calls().len();
            let controller = lab.controller(&[]).await;
            lab.create("web", json!({}), json!({})).await;
            until("the write was reached", async || {
                let calls = lab.cloud.calls().split_off(start);
                let reached = calls.iter().filter(|call| call.method == method && call.path.starts_with(path)).count();
                if reached > passed { Ok(()) } else { Err(format!("{calls:?}")) }
            })
            .await;
            recovers(&lab, controller, &before).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_write_to_the_cloud_on_the_way_down_it_goes_on_where_it_was() {
    let lab = Lab::new("cs-dn", 2).await;
    lab.add_ips([1, 2]);
    let before = lab.cloud.snapshot();
    for (method, path) in [("PUT", "ips/"), ("DELETE", "tags/")] {
        for effect in [Effect::Hang, Effect::LoseAnswer] {
            let controller = lab.controller(&[]).await;
            lab.create("web", json!({}), json!({})).await;
            let served = lab.until_served("web").await;
            lab.until_tagged(&[served]).await;
            lab.cloud.fault(Fault::on(method, path, effect));
            let start = lab.cloud.calls().len();
            lab.delete("web").await;
            until("the write was reached", async || {
                let calls = lab.cloud.calls().split_off(start);
                let reached = calls.iter().any(|call| call.method == method && call.path.starts_with(path));
                if reached { Ok(()) } else { Err(format!("{calls:?}")) }
            })
            .await;
            controller.kill();
            lab.cloud.heal();
            let controller = lab.controller(&[]).await;
            lab.until_gone("web").await;
            lab.until_account(&before).await;
            assert!(lab.floating_ips().get_opt(&served.to_string()).await.unwrap().is_none());
            controller.stop().await;
        }
    }
}

/// A way to the API server that closes at this write of whoever comes through it.
async fn gate(lab: &Lab, closing: Closing) -> (Gate, Controller) {
    let gate = Gate::start(lab.client.clone(), closing).await.unwrap();
    let controller = lab.controller(&["--kubeconfig", gate.kubeconfig().to_str().unwrap()]).await;
    (gate, controller)
}

/// Whether it was closed before this was so.
async fn closes(gate: &Gate, what: &str, mut is_so: impl AsyncFnMut() -> bool) -> bool {
    eventually(&format!("the gate is closed, or {what}"), SOON, async || {
        // In this order: what is so may be the work of the last that passed.
        let so = is_so().await;
        if gate.is_closed() {
            return Ok(true);
        }
        if so && gate.is_open() { Ok(false) } else { Err("neither") }
    })
    .await
    .unwrap()
}

const KINDS: [fn(usize) -> Closing; 2] = [Closing::Before, Closing::After];

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_write_to_kubernetes_on_the_way_up_it_goes_on_where_it_was() {
    let lab = Lab::new("cs-kube-up", 2).await;
    lab.add_ips([1, 2]);
    let before = lab.cloud.snapshot();
    for closing in KINDS {
        let mut writes = 0;
        loop {
            let (gate, controller) = gate(&lab, closing(writes)).await;
            lab.create("web", json!({}), json!({})).await;
            let closed =
                closes(&gate, "it is served", async || address(&lab.services().get("web").await.unwrap()).is_some());
            let closed = closed.await;
            recovers(&lab, controller, &before).await;
            if !closed {
                break;
            }
            writes += 1;
        }
        assert!(writes >= 4, "its claim, the address, the node, what is published: {writes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_write_to_kubernetes_on_the_way_down_it_goes_on_where_it_was() {
    let lab = Lab::new("cs-kube-dn", 2).await;
    lab.add_ips([1, 2]);
    let before = lab.cloud.snapshot();
    for closing in KINDS {
        let mut writes = 0;
        loop {
            let controller = lab.controller(&[]).await;
            let (served, _) = lab.serve("web").await;
            lab.until_tagged(&[served]).await;
            lab.until_initialised().await;
            controller.stop().await;
            let (gate, controller) = gate(&lab, closing(writes)).await;
            lab.delete("web").await;
            let gone = async || lab.services().get_opt("web").await.unwrap().is_none();
            let closed = closes(&gate, "it is gone", gone).await;
            controller.kill();
            let controller = lab.controller(&[]).await;
            lab.until_gone("web").await;
            lab.until_account(&before).await;
            assert!(lab.floating_ips().get_opt(&served.to_string()).await.unwrap().is_none());
            controller.stop().await;
            if !closed {
                break;
            }
            writes += 1;
        }
        assert!(writes >= 3, "the node, the address, its claim: {writes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_write_of_a_fail_over_it_goes_on_where_it_was() {
    let lab = Lab::new("cs-kube-move", 3).await;
    lab.add_ips([1]);
    let controller = lab.controller(&[]).await;
    let (served, mut holder) = lab.serve("web").await;
    lab.until_tagged(&[served]).await;
    lab.until_initialised().await;
    controller.stop().await;
    for closing in KINDS {
        let mut writes = 0;
        loop {
            let (gate, controller) = gate(&lab, closing(writes)).await;
            lab.agents.die(&holder);
            let moved = async || {
                let object = lab.floating(served).await;
                let claimed = object.status.and_then(|status| status.holder);
                claimed.is_some() && claimed == object.spec.holder && claimed.as_ref() != Some(&holder)
            };
            let closed = closes(&gate, "it has moved", moved).await;
            controller.kill();
            let controller = lab.controller(&[]).await;
            let next = lab.until_held(served, |node| node != holder).await;
            assert_eq!(lab.until_served("web").await, served);
            lab.agents.live(&holder);
            controller.stop().await;
            holder = next;
            if !closed {
                break;
            }
            writes += 1;
        }
        assert!(writes >= 1, "the node: {writes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_an_address_has_a_node_it_goes_on_where_it_was() {
    let lab = Lab::new("cs-noholder", 1).await;
    lab.add_ips([1]);
    let before = lab.cloud.snapshot();
    lab.agents.die(lab.node(1));
    lab.agents.quiet().await;
    // Who never had a Lease gets nothing.
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), &lab.namespace);
    leases.delete_collection(&DeleteParams::default(), &ListParams::default()).await.map(drop).unwrap();
    let controller = lab.controller(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    until("its FloatingIP is there", async || lab.floating_ips().get(&lab.ip(1).to_string()).await.map(drop)).await;
    assert_eq!(lab.floating(lab.ip(1)).await.spec.holder, None);
    lab.agents.live(lab.node(1));
    recovers(&lab, controller, &before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_a_node_has_confirmed_it_publishes_when_the_node_does() {
    let lab = Lab::new("cs-noword", 1).await;
    lab.add_ips([1]);
    let before = lab.cloud.snapshot();
    lab.agents.mute(true);
    let controller = lab.controller(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    until("a node was chosen", async || {
        let object = lab.floating_ips().get(&lab.ip(1).to_string()).await?;
        if object.spec.holder.is_some() { Ok(()) } else { Err(anyhow::anyhow!("none yet")) }
    })
    .await;
    lab.agents.mute(false);
    recovers(&lab, controller, &before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_a_node_has_let_go_it_waits_for_that_and_releases_then() {
    let lab = Lab::new("cs-nolet", 1).await;
    lab.add_ips([1, 2]);
    let before = lab.cloud.snapshot();
    let controller = lab.controller(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    let served = lab.until_served("web").await;
    lab.until_held(served, |_| true).await;
    lab.agents.mute(true);
    lab.delete("web").await;
    until("the node was asked to let go", async || {
        let object = lab.floating_ips().get(&served.to_string()).await?;
        if object.spec.holder.is_none() { Ok(()) } else { Err(anyhow::anyhow!("not yet")) }
    })
    .await;
    controller.kill();
    let controller = lab.controller(&[]).await;
    assert_ne!(
        lab.cloud.ip(served).unwrap()["meta"],
        json!({}),
        "while a node may answer, the address is not given back"
    );
    lab.agents.mute(false);
    lab.until_gone("web").await;
    lab.until_account(&before).await;
    controller.stop().await;
}

/// The address is on no server at all at that moment.
#[tokio::test(flavor = "multi_thread")]
async fn killed_between_detaching_and_attaching_it_goes_on_where_it_was() {
    let lab = Lab::new("cs-midmove", 2).await;
    lab.add_ips([1, 2]);
    lab.cloud.account(|account| account.live_nics = true);
    let before = lab.cloud.snapshot();
    let controller = lab.controller(&["--mode", "attach"]).await;
    lab.create("web", json!({}), json!({})).await;
    let served = lab.until_served("web").await;
    let holder = lab.until_held(served, |_| true).await;
    let (next, to) = lab.nodes.iter().find(|(node, _)| *node != holder).unwrap().clone();
    let path = format!("servers/{to}/");
    lab.cloud.fault(Fault::on("PUT", path.clone(), Effect::Hang));
    let cordon = json!({ "spec": { "unschedulable": true } });
    lab.kube_nodes().patch(&holder, &PatchParams::default(), &Patch::Merge(cordon)).await.unwrap();
    until("the attaching was reached", async || {
        let reached = lab.cloud.writes().iter().any(|call| call.path == path);
        if reached { Ok(()) } else { Err("not yet") }
    })
    .await;
    assert_eq!(lab.cloud.ip(served).unwrap()["server"], json!(null));
    controller.kill();
    lab.cloud.heal();
    let controller = lab.controller(&["--mode", "attach"]).await;
    lab.until_held(served, |node| node == next).await;
    assert_eq!(lab.cloud.ip(served).unwrap()["server"]["uuid"], to);
    assert_eq!(lab.until_served("web").await, served);
    lab.delete("web").await;
    lab.until_gone("web").await;
    lab.until_account(&before).await;
    controller.stop().await;
}
