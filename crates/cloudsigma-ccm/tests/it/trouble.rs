//! What goes wrong, and what must not because of it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use groundcrew_api::floating_ip::{FloatingIP, FloatingIPSpec};
use groundcrew_core::service::names::ROUTABLE_EXTERNALLY;
use groundcrew_testkit::agents::Agents;
use groundcrew_testkit::cloudsigma::{Account, Effect, Fault, Nic};
use groundcrew_testkit::controller::get;
use groundcrew_testkit::eventually;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::lab::{Lab, SOON, address};

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_pool_is_told_with_its_reasons_and_served_when_an_address_is_bought() {
    let lab = Lab::new("cs-empty", 1).await;
    lab.cloud.account(|account| {
        account.add_ip_until(lab.ip(1), "2020-01-01T00:00:00Z", "expired");
        account.add_shared_ip(lab.ip(2));
        account.add_ip(lab.ip(3));
        account.add_server("elsewhere", Nic::Static(lab.ip(3)));
    });
    let controller = lab.controller(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    let message = lab.until_reason("web", "PoolEmpty").await;
    for word in ["1 expired", "1 of another account", "1 on servers"] {
        assert!(message.contains(word), "{message}");
    }
    eventually("the user is told in an Event", SOON, async || {
        if lab.events("PoolEmpty").await.is_empty() { Err("no Event") } else { Ok(()) }
    })
    .await
    .unwrap();
    lab.add_ips([4]);
    assert_eq!(lab.until_served("web").await, lab.ip(4));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_that_cannot_be_is_refused_and_never_replaced_by_another() {
    let lab = Lab::new("cs-wish", 1).await;
    lab.add_ips([1, 2]);
    let controller = lab.controller(&[]).await;
    lab.create("odd", json!({}), json!({ "cloudsigma.com/ip-pool": "floating" })).await;
    let message = lab.until_reason("odd", "UnknownPool").await;
    assert!(message.contains("static or dynamic"), "{message}");
    eventually("the user is told in an Event", SOON, async || {
        if lab.events("UnknownPool").await.is_empty() { Err("no Event") } else { Ok(()) }
    })
    .await
    .unwrap();
    lab.create("foreign", json!({ "loadBalancerIP": "192.0.2.7" }), json!({})).await;
    let message = lab.until_reason("foreign", "AddressRefused").await;
    assert!(message.contains("not one of this account"), "{message}");
    let wish = lab.ip(2).to_string();
    lab.create("asked", json!({ "loadBalancerIP": wish }), json!({})).await;
    assert_eq!(lab.until_served("asked").await, lab.ip(2));
    lab.create("second", json!({ "loadBalancerIP": wish }), json!({})).await;
    let message = lab.until_reason("second", "AddressRefused").await;
    assert!(message.contains("/asked"), "{message}");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_clusters_address_is_never_taken_even_by_a_tie() {
    let lab = Lab::new("cs-two", 1).await;
    lab.add_ips([1, 2]);
    let (first, mark) = (lab.ip(1).to_string(), json!({ "groundcrew-cluster": "them" }));
    // They write at the same moment: after we wrote, and before we read again.
    let (address_, theirs) = (first.clone(), mark.clone());
    let mut reads = 0;
    lab.cloud.fault(Fault::on(
        "GET",
        format!("ips/{first}/"),
        Effect::Before(Box::new(move |account| {
            reads += 1;
            if reads == 3 {
                account.ips.get_mut(&address_).unwrap()["meta"] = theirs.clone();
            }
        })),
    ));
    let controller = lab.controller(&["--claim-settle", "3s"]).await;
    lab.create("web", json!({}), json!({})).await;
    assert_eq!(lab.until_served("web").await, lab.ip(2));
    assert_eq!(lab.cloud.ip(lab.ip(1)).unwrap()["meta"], mark, "what is theirs stays theirs");
    lab.delete("web").await;
    lab.until_gone("web").await;
    assert_eq!(lab.cloud.ip(lab.ip(1)).unwrap()["meta"], mark);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clusters_on_one_account_take_turns_and_never_the_same_address() {
    let lab = Lab::new("cs-shared", 2).await;
    lab.add_ips(1..=6);
    let (cluster, class) = (format!("{}-b", lab.namespace), format!("{}-b", lab.class()));
    let theirs = Agents::start(&lab.client, &lab.namespace, &cluster, 3);
    lab.nodes.iter().for_each(|(node, _)| theirs.live(node));
    let ours = lab.controller(&[]).await;
    let other = lab.controller(&["--cluster-id", &cluster, "--class", &class]).await;
    for n in 1..=3 {
        lab.create(&format!("a{n}"), json!({}), json!({})).await;
        lab.create(&format!("b{n}"), json!({ "loadBalancerClass": class }), json!({})).await;
    }
    let mut taken = BTreeSet::new();
    for (name, owner) in [("a", &lab.namespace), ("b", &cluster)] {
        for n in 1..=3 {
            let address = lab.until_served(&format!("{name}{n}")).await;
            assert!(taken.insert(address), "{address} was given out twice");
            assert_eq!(lab.cloud.ip(address).unwrap()["meta"]["groundcrew-cluster"], **owner);
        }
    }
    other.stop().await;
    ours.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_started_while_the_api_is_down_says_so_and_serves_when_it_is_back() {
    let lab = Lab::new("cs-begin", 1).await;
    lab.add_ips([1]);
    lab.cloud.fault(Fault::down("GET", ""));
    let controller = lab.spawn(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    eventually("it says what it waits for", SOON, async || match get(controller.admin, "/readyz").await {
        Ok((503, body)) if body.contains("the CloudSigma account") && !lab.cloud.calls().is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
    .unwrap();
    assert_eq!(lab.cloud.writes(), []);
    lab.cloud.heal();
    assert_eq!(lab.until_served("web").await, lab.ip(1));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_with_wrong_credentials_says_so_asks_for_nothing_else_and_serves_when_they_are_right() {
    let lab = Lab::new("cs-wrong", 1).await;
    lab.add_ips([1]);
    lab.cloud.accept_password(false);
    let controller = lab.spawn(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    eventually("it was refused twice and says so", SOON, async || match get(controller.admin, "/readyz").await {
        Ok((503, body)) if body.contains("profile/: 401") && lab.cloud.calls().len() >= 2 => Ok(()),
        other => Err(format!("{other:?} {:?}", lab.cloud.calls())),
    })
    .await
    .unwrap();
    let calls = lab.cloud.calls();
    assert!(calls.iter().all(|call| call.path == "profile/"), "each is a wrong attempt: {calls:?}");
    lab.cloud.accept_password(true);
    assert_eq!(lab.until_served("web").await, lab.ip(1));
    controller.stop().await;
}

/// The cloud does not tell which addresses the guests behind NICs in manual mode use.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_a_node_has_as_its_own_is_given_back_for_another_unless_it_was_asked_for() {
    let lab = Lab::new("cs-own", 2).await;
    lab.add_ips([1, 2]);
    lab.agents.configure(lab.ip(1));
    let controller = lab.controller(&["--confirm-patience", "300ms", "--claim-settle", "3s"]).await;
    lab.create("web", json!({}), json!({})).await;
    assert_eq!(lab.until_served("web").await, lab.ip(2));
    assert_eq!(lab.cloud.ip(lab.ip(1)).unwrap()["meta"], json!({}), "the node's own is as before");
    assert!(lab.floating_ips().get_opt(&lab.ip(1).to_string()).await.unwrap().is_none());
    lab.create("late", json!({}), json!({})).await;
    let message = lab.until_reason("late", "PoolEmpty").await;
    assert!(message.contains("1 answered for by other hosts"), "{message}");
    lab.delete("late").await;
    lab.until_gone("late").await;
    lab.create("asked", json!({ "loadBalancerIP": lab.ip(1).to_string() }), json!({})).await;
    assert!(lab.until_reason("asked", "NotConfirmed").await.contains("AddressForeign"));
    controller.stop().await;
}

/// They have taken the address and waited; only then our write is done, which was decided on before.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_arrives_late_over_another_clusters_is_given_back() {
    let lab = Lab::new("cs-late", 1).await;
    lab.add_ips([1, 2]);
    let (first, theirs) = (lab.ip(1).to_string(), json!({ "groundcrew-cluster": "them" }));
    let path = format!("ips/{first}/");
    let they_mark = || lab.cloud.account(|account| account.ips.get_mut(&first).unwrap()["meta"] = theirs.clone());
    let (address_, mark) = (first.clone(), theirs.clone());
    let marking = move |account: &mut Account| account.ips.get_mut(&address_).unwrap()["meta"] = mark.clone();
    lab.cloud.fault(Fault::on("PUT", path.clone(), Effect::Before(Box::new(marking))).times(1));
    lab.cloud.fault(Fault::on("PUT", path, Effect::Delay(Duration::from_secs(6))).times(1));
    let controller = lab.stubborn(&["--claim-settle", "5s"]).await;
    lab.create("web", json!({}), json!({ "groundcrew.dev/keep-address": "true" })).await;
    assert_eq!(lab.until_served("web").await, lab.ip(2));
    assert_eq!(lab.cloud.ip(lab.ip(1)).unwrap()["meta"], json!({}), "theirs is lost, and ours must not stay");
    // They see it at their next reading.
    they_mark();
    lab.delete("web").await;
    lab.until_gone("web").await;
    assert_eq!(lab.cloud.ip(lab.ip(1)).unwrap()["meta"], theirs);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_of_which_nobody_knows_when_it_was_written_is_given_back() {
    let lab = Lab::new("cs-unsure", 1).await;
    lab.add_ips([1, 2]);
    lab.cloud.fault(Fault::on("PUT", format!("ips/{}/", lab.ip(1)), Effect::LoseAnswer).times(1));
    let controller = lab.controller(&["--claim-settle", "6s"]).await;
    lab.create("web", json!({}), json!({})).await;
    assert_eq!(lab.until_served("web").await, lab.ip(2));
    eventually("the first is free again", SOON, async || {
        let meta = lab.cloud.ip(lab.ip(1)).unwrap()["meta"].clone();
        if meta == json!({}) { Ok(()) } else { Err(meta.to_string()) }
    })
    .await
    .unwrap();
    lab.create("next", json!({}), json!({})).await;
    assert_eq!(lab.until_served("next").await, lab.ip(1), "after a while it is taken as any other");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_another_cluster_marks_later_is_told_and_not_fought_over() {
    let lab = Lab::new("cs-fight", 1).await;
    lab.add_ips([1, 2]);
    let controller = lab.controller(&["--scan-interval", "300ms"]).await;
    lab.create("web", json!({}), json!({})).await;
    let served = lab.until_served("web").await;
    let (name, theirs) = (served.to_string(), json!({ "groundcrew-cluster": "them" }));
    lab.cloud.account(|account| account.ips.get_mut(&name).unwrap()["meta"] = theirs.clone());
    let message = lab.until_reason("web", "AddressRefused").await;
    assert!(message.contains("belongs to cluster them"), "{message}");
    controller.until_scanned(3).await;
    assert_eq!(lab.until_served("web").await, served, "a living address does not change");
    lab.delete("web").await;
    lab.until_gone("web").await;
    assert_eq!(lab.cloud.ip(served).unwrap()["meta"], theirs, "what is theirs stays theirs");
    assert!(lab.floating_ips().get_opt(&name).await.unwrap().is_none(), "nobody of ours answers on it");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_refused_writes_ends_with_one_address_and_nothing_else() {
    let lab = Lab::new("cs-storm", 1).await;
    lab.add_ips([1, 2]);
    let before = lab.cloud.snapshot();
    let busy = json!([{ "error_type": "concurrency", "error_message": "being changed" }]).to_string();
    for method in ["PUT", "POST", "DELETE"] {
        lab.cloud.fault(Fault::on(method, "", Effect::Answer(503, busy.clone())).times(9));
    }
    let controller = lab.controller(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    lab.until_served("web").await;
    let marked = lab.cloud.snapshot().ips.values().filter(|ip| ip["meta"] != json!({})).count();
    assert_eq!(marked, 1);
    lab.delete("web").await;
    lab.until_gone("web").await;
    lab.until_account(&before).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_api_is_down_services_go_on_and_nothing_is_deleted() {
    let lab = Lab::new("cs-down", 2).await;
    lab.add_ips(1..=3);
    let controller =
        lab.controller(&["--scan-interval", "300ms", "--orphan-age", "0s", "--takeover-delay", "3s"]).await;
    let (served, holder) = lab.serve("web").await;
    lab.create("done", json!({}), json!({})).await;
    let done = lab.until_served("done").await;
    for method in ["GET", "PUT", "POST", "DELETE"] {
        lab.cloud.fault(Fault::down(method, ""));
    }
    controller.until_misread(1).await;
    // A move needs no API in manual mode.
    lab.agents.die(&holder);
    lab.until_held(served, |node| node != holder).await;
    lab.create("late", json!({}), json!({})).await;
    lab.until_reason("late", "ProviderUnavailable").await;
    // One that goes meanwhile waits, or its address would be nobody's and marked.
    lab.delete("done").await;
    let path = format!("ips/{done}/");
    eventually("its release was tried", SOON, async || {
        let tried = lab.cloud.calls().iter().any(|call| call.path == path && call.status == 500);
        if tried { Ok(()) } else { Err("not yet") }
    })
    .await
    .unwrap();
    assert!(lab.services().get("done").await.unwrap().metadata.deletion_timestamp.is_some());
    assert_ne!(lab.cloud.ip(done).unwrap()["meta"], json!({}));
    assert_eq!(address(&lab.services().get("web").await.unwrap()), Some(served));
    assert_ne!(lab.cloud.ip(served).unwrap()["meta"], json!({}));
    lab.cloud.heal();
    assert_ne!(lab.until_served("late").await, served);
    lab.until_gone("done").await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_list_of_addresses_releases_nothing() {
    let lab = Lab::new("cs-half", 1).await;
    lab.add_ips([1, 2]);
    let controller = lab.controller(&["--scan-interval", "200ms", "--orphan-age", "0s"]).await;
    lab.create("web", json!({}), json!({})).await;
    let served = lab.until_served("web").await;
    lab.cloud.fault(Fault::on("GET", "ips/detail/", Effect::CutList(0)));
    controller.until_scanned(3).await;
    assert_eq!(lab.until_served("web").await, served);
    assert_ne!(lab.cloud.ip(served).unwrap()["meta"], json!({}));
    assert!(lab.floating(served).await.spec.holder.is_some());
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_forgets_what_it_confirmed_gives_no_address_and_is_not_asked_for_ever() {
    let lab = Lab::new("cs-forget", 1).await;
    lab.add_ips([1, 2]);
    let before = lab.cloud.snapshot();
    lab.cloud.fault(Fault::on("PUT", "ips/", Effect::Ignore));
    let controller = lab.controller(&["--claim-settle", "3s"]).await;
    lab.create("web", json!({}), json!({})).await;
    lab.until_reason("web", "PoolEmpty").await;
    let writes = lab.cloud.writes();
    // One may be under way.
    let looks = 1 + controller.failed_looks().await;
    for n in 1..=2 {
        let path = format!("ips/{}/", lab.ip(n));
        let tried = writes.iter().filter(|call| call.path == path).count();
        assert!(tried <= looks, "each address once a look, of which there were {looks}: {writes:?}");
    }
    assert_eq!(lab.cloud.snapshot().ips, before.ips);
    lab.delete("web").await;
    lab.until_gone("web").await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_list_of_servers_or_addresses_moves_nothing() {
    let lab = Lab::new("cs-cut", 2).await;
    lab.add_ips([1]);
    let controller = lab.controller(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    let served = lab.until_served("web").await;
    lab.until_held(served, |_| true).await;
    let spec = lab.floating(served).await.spec;
    for path in ["servers/detail/", "ips/detail/"] {
        lab.cloud.fault(Fault::on("GET", path, Effect::CutList(0)));
        controller.until_misread(2).await;
        assert_eq!(lab.floating(served).await.spec, spec, "{path}");
        lab.cloud.heal();
    }
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_half_a_list_of_servers_or_addresses_a_dead_nodes_address_moves_all_the_same() {
    let lab = Lab::new("cs-halfmove", 3).await;
    lab.add_ips([1]);
    let controller = lab.controller(&["--takeover-delay", "3s"]).await;
    lab.create("web", json!({}), json!({})).await;
    let served = lab.until_served("web").await;
    for path in ["servers/detail/", "ips/detail/"] {
        let holder = lab.until_held(served, |_| true).await;
        lab.cloud.fault(Fault::on("GET", path, Effect::CutList(0)));
        controller.until_misread(2).await;
        lab.agents.die(&holder);
        lab.until_held(served, |node| node != holder).await;
        lab.cloud.heal();
        lab.agents.live(&holder);
    }
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_floating_ip_that_somebody_else_made_is_left_alone() {
    let lab = Lab::new("cs-theirs", 1).await;
    lab.add_ips([1]);
    let name = lab.ip(1).to_string();
    let spec =
        FloatingIPSpec { address: name.clone(), serial: 1, holder: Some("theirs".into()), ..FloatingIPSpec::default() };
    let theirs = lab.floating_ips().create(&PostParams::default(), &FloatingIP::new(&name, spec)).await.unwrap();
    let controller = lab.controller(&[]).await;
    lab.create("web", json!({ "loadBalancerIP": name }), json!({})).await;
    lab.until_reason("web", "FloatingIPNotOurs").await;
    lab.delete("web").await;
    lab.until_gone("web").await;
    assert_eq!(lab.floating(lab.ip(1)).await, theirs);
    assert_eq!(lab.cloud.ip(lab.ip(1)).unwrap()["meta"], json!({}), "the mark is given back");
    controller.stop().await;
}

/// The cloud tells nobody: it is seen when the account is read again.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_somebody_takes_off_is_drift_that_is_put_right_and_told() {
    let lab = Lab::new("cs-drift", 2).await;
    lab.add_ips([1]);
    let controller = lab.controller(&["--scan-interval", "300ms"]).await;
    lab.create("web", json!({}), json!({})).await;
    let served = lab.until_served("web").await;
    // Only who was seen to have what it wants can have lost it.
    controller.until_scanned(1).await;
    let mark = lab.cloud.ip(served).unwrap()["meta"].clone();
    lab.cloud.account(|account| account.ips.get_mut(&served.to_string()).unwrap()["meta"] = json!({}));
    eventually("the mark is back", SOON, async || {
        let meta = lab.cloud.ip(served).unwrap()["meta"].clone();
        if meta == mark { Ok(()) } else { Err(meta) }
    })
    .await
    .unwrap();
    eventually("it is told", SOON, async || {
        let told = lab.events("DriftRepaired").await;
        if told.iter().any(|note| note.contains("mark")) { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await
    .unwrap();
    for what in ["found", "repaired"] {
        let series = format!("groundcrew_drift_{what}_total{{cause=\"unknown_writer\",kind=\"mark\"}}");
        assert!(controller.metric(&series).await >= 1.0, "{series}");
    }
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_funds_and_wrong_credentials_are_told_in_words() {
    let lab = Lab::new("cs-funds", 1).await;
    lab.add_ips([1]);
    let controller = lab.controller(&[]).await;
    let funds = json!([{ "error_type": "payment", "error_message": "Not enough funds" }]).to_string();
    lab.cloud.fault(Fault::on("PUT", "ips/", Effect::Answer(402, funds)));
    lab.create("web", json!({}), json!({})).await;
    assert!(lab.until_reason("web", "NoFunds").await.contains("Not enough funds"));
    // In this order: with the password, the first would get the one address.
    lab.cloud.accept_password(false);
    lab.cloud.heal();
    lab.create("other", json!({}), json!({})).await;
    lab.until_reason("other", "CredentialsRefused").await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_ends_soon_is_warned_about() {
    let lab = Lab::new("cs-expire", 1).await;
    let end = jiff::Timestamp::now() + std::time::Duration::from_hours(48);
    lab.cloud.account(|account| account.add_ip_until(lab.ip(1), &format!("{end:.0}"), "active"));
    let controller = lab.controller(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    lab.until_served("web").await;
    lab.slice("web", &[lab.node(1)]).await;
    lab.until_reason("web", "SubscriptionExpires").await;
    eventually("the metric tells", SOON, async || {
        let count = controller.metric("groundcrew_cloudsigma_subscriptions_expiring").await;
        if count > 0.0 { Ok(()) } else { Err(count) }
    })
    .await
    .unwrap();
    eventually("so does an Event", SOON, async || {
        if lab.events("SubscriptionExpires").await.is_empty() { Err("no Event") } else { Ok(()) }
    })
    .await
    .unwrap();
    // It was not renewed. The address stays the Service's: whoever pays again has it back.
    lab.cloud.account(|account| {
        let paid = account.subscriptions.values_mut().next().unwrap();
        (paid["status"], paid["end_time"]) = (json!("expired"), json!("2020-01-01T00:00:00Z"));
    });
    assert!(lab.until_reason("web", "SubscriptionExpired").await.contains("renew it"));
    assert_eq!(address(&lab.services().get("web").await.unwrap()), Some(lab.ip(1)));
    assert_ne!(lab.cloud.ip(lab.ip(1)).unwrap()["meta"], json!({}));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_addresses_that_the_operator_allows_are_given_out() {
    let lab = Lab::new("cs-allow", 1).await;
    lab.add_ips(1..=3);
    let (second, third) = (lab.ip(2).to_string(), lab.ip(3).to_string());
    lab.cloud.account(|account| {
        let tag = json!({ "name": "for-prod", "meta": {}, "resources": [{ "uuid": third }] });
        account.tags.insert("a-tag".into(), tag);
    });
    let allowed = format!("{second}/32,tag:a-tag");
    let controller = lab.controller(&["--allow-ip", &allowed]).await;
    let mut served = Vec::new();
    for name in ["a", "b"] {
        lab.create(name, json!({}), json!({})).await;
        served.push(lab.until_served(name).await);
    }
    served.sort_unstable();
    assert_eq!(served, [lab.ip(2), lab.ip(3)]);
    lab.create("c", json!({}), json!({})).await;
    let message = lab.until_reason("c", "PoolEmpty").await;
    assert!(message.contains("1 not allowed"), "{message}");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_server_is_unknown_or_has_no_manual_nic_gets_no_address() {
    let lab = Lab::new("cs-nonode", 0).await;
    lab.add_ips([1]);
    let unknown = format!("{}-unknown", lab.namespace);
    lab.add_node(&unknown, &json!({ "providerID": "cloudsigma://00000000-dead-4000-8000-000000000000" }), true).await;
    lab.agents.live(&unknown);
    let dhcp = format!("{}-dhcp", lab.namespace);
    let server = lab.cloud.account(|account| account.add_server(&dhcp, Nic::Dhcp(lab.ip(88))));
    lab.add_node(&dhcp, &json!({ "providerID": format!("cloudsigma://{server}") }), true).await;
    lab.agents.live(&dhcp);
    let controller = lab.controller(&["--confirm-patience", "300ms"]).await;
    lab.create("web", json!({}), json!({})).await;
    lab.until_reason("web", "NoNode").await;
    assert_eq!(
        lab.cloud.writes().iter().filter(|call| call.path.starts_with("servers/")).count(),
        0,
        "no NIC is switched unasked"
    );
    controller.stop().await;

    lab.cloud.account(|account| account.live_nics = true);
    let controller = lab.controller(&["--switch-nics"]).await;
    lab.until_served("web").await;
    assert_eq!(lab.cloud.server(&server).unwrap()["nics"][0]["ip_v4_conf"]["conf"], "manual");
    controller.stop().await;
}

/// Somebody outside: answers every request with this status. Ends with the test.
async fn outsider(status: Arc<AtomicU16>) -> SocketAddr {
    counting_outsider(status, Arc::default()).await
}

/// The same, who counts how often he was asked.
async fn counting_outsider(status: Arc<AtomicU16>, asked: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            asked.fetch_add(1, Ordering::SeqCst);
            let status = status.load(Ordering::SeqCst);
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let answer = format!("HTTP/1.1 {status} Said\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_the_cloud_does_not_route_is_told_in_words() {
    let lab = Lab::new("cs-route", 1).await;
    lab.add_ips([1]);
    let status = Arc::new(AtomicU16::new(504));
    let url = format!("http://{}/tcp?to={{address}}:{{port}}", outsider(status.clone()).await);
    let controller = lab.controller(&["--probe-url", &url, "--probe-grace", "0s", "--probe-interval", "200ms"]).await;
    lab.create("web", json!({}), json!({})).await;
    lab.until_served("web").await;
    lab.slice("web", &[lab.node(1)]).await;
    let message = lab.until_reason("web", "NotRoutable").await;
    assert!(message.contains("not reached from outside"), "{message}");
    assert_eq!(address(&lab.services().get("web").await.unwrap()), Some(lab.ip(1)), "it stays published");
    lab.until_condition("web", ROUTABLE_EXTERNALLY, "False").await;
    status.store(200, Ordering::SeqCst);
    lab.until_reason("web", "Served").await;
    lab.until_condition("web", ROUTABLE_EXTERNALLY, "True").await;
    controller.stop().await;
    // Nobody is asked any more: then nobody knows.
    let controller = lab.controller(&[]).await;
    lab.until_condition("web", ROUTABLE_EXTERNALLY, "Unknown").await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_address_gets_time_before_anybody_outside_is_asked() {
    let lab = Lab::new("cs-grace", 1).await;
    lab.add_ips([1, 2]);
    let (status, asked) = (Arc::new(AtomicU16::new(504)), Arc::<AtomicUsize>::default());
    let url = format!("http://{}/?to={{address}}", counting_outsider(status, asked.clone()).await);
    let flags = ["--probe-url", url.as_str(), "--probe-interval", "100ms", "--probe-grace", "1h"];
    let controller = lab.controller(&[&flags[..], &["--scan-interval", "300ms"]].concat()).await;
    lab.create("web", json!({}), json!({})).await;
    lab.slice("web", &[lab.node(1)]).await;
    let served = lab.until_served("web").await;
    let now = json!({ "status": { "since": jiff::Timestamp::now() } });
    let params = PatchParams::default();
    lab.floating_ips().patch_status(&served.to_string(), &params, &Patch::Merge(now)).await.unwrap();
    lab.until_reason("web", "Served").await;
    // Until the controller knows of the new time, it asks.
    eventually("nobody is asked before its time is over", SOON, async || {
        let before = asked.load(Ordering::SeqCst);
        controller.until_scanned(5).await;
        let after = asked.load(Ordering::SeqCst);
        anyhow::ensure!(after == before, "asked {} times", after - before);
        Ok(())
    })
    .await
    .unwrap();
    let long_ago = json!({ "status": { "since": "2020-01-01T00:00:00Z" } });
    lab.floating_ips().patch_status(&served.to_string(), &params, &Patch::Merge(long_ago)).await.unwrap();
    lab.until_reason("web", "NotRoutable").await;
    controller.stop().await;
}
