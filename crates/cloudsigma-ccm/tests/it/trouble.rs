//! What goes wrong, and what must not because of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use groundcrew_api::floating_ip::{FloatingIP, FloatingIPSpec};
use groundcrew_testkit::cloudsigma::{Effect, Fault, Nic};
use groundcrew_testkit::eventually;
use kube::api::PostParams;
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
    let controller = lab.controller(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    assert_eq!(lab.until_served("web").await, lab.ip(2));
    assert_eq!(lab.cloud.ip(lab.ip(1)).unwrap()["meta"], mark, "what is theirs stays theirs");
    lab.delete("web").await;
    lab.until_gone("web").await;
    assert_eq!(lab.cloud.ip(lab.ip(1)).unwrap()["meta"], mark);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_api_is_down_services_go_on_and_nothing_is_deleted() {
    let lab = Lab::new("cs-down", 2).await;
    lab.add_ips([1, 2]);
    let controller =
        lab.controller(&["--scan-interval", "300ms", "--orphan-age", "0s", "--takeover-delay", "3s"]).await;
    lab.create("web", json!({}), json!({})).await;
    let served = lab.until_served("web").await;
    let holder = lab.until_held(served, |_| true).await;
    for method in ["GET", "PUT", "POST", "DELETE"] {
        lab.cloud.fault(Fault::down(method, ""));
    }
    let failures = controller.metric("groundcrew_cloudsigma_read_failures_total").await;
    eventually("the account could not be read", SOON, async || {
        let now = controller.metric("groundcrew_cloudsigma_read_failures_total").await;
        if now > failures { Ok(()) } else { Err(now) }
    })
    .await
    .unwrap();
    // A move needs no API in manual mode.
    lab.agents.die(&holder);
    lab.until_held(served, |node| node != holder).await;
    lab.create("late", json!({}), json!({})).await;
    lab.until_reason("late", "ProviderUnavailable").await;
    assert_eq!(address(&lab.services().get("web").await.unwrap()), Some(served));
    assert_ne!(lab.cloud.ip(served).unwrap()["meta"], json!({}));
    lab.cloud.heal();
    assert_ne!(lab.until_served("late").await, served);
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
    let scans = controller.metric("groundcrew_service_full_scans_total").await;
    eventually("it was scanned meanwhile", SOON, async || {
        let now = controller.metric("groundcrew_service_full_scans_total").await;
        if now >= scans + 3.0 { Ok(()) } else { Err(now) }
    })
    .await
    .unwrap();
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
    let controller = lab.controller(&[]).await;
    lab.create("web", json!({}), json!({})).await;
    lab.until_reason("web", "PoolEmpty").await;
    assert!(lab.cloud.writes().len() <= 4, "each address once a look: {:?}", lab.cloud.writes());
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
        let failures = controller.metric("groundcrew_cloudsigma_read_failures_total").await;
        eventually("the account was read in part, twice", SOON, async || {
            let now = controller.metric("groundcrew_cloudsigma_read_failures_total").await;
            if now >= failures + 2.0 { Ok(()) } else { Err(now) }
        })
        .await
        .unwrap();
        assert_eq!(lab.floating(served).await.spec, spec, "{path}");
        lab.cloud.heal();
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

#[tokio::test(flavor = "multi_thread")]
async fn no_funds_and_wrong_credentials_are_told_in_words() {
    let lab = Lab::new("cs-funds", 1).await;
    lab.add_ips([1]);
    let controller = lab.controller(&[]).await;
    let funds = json!([{ "error_type": "payment", "error_message": "Not enough funds" }]).to_string();
    lab.cloud.fault(Fault::on("PUT", "ips/", Effect::Answer(402, funds)));
    lab.create("web", json!({}), json!({})).await;
    assert!(lab.until_reason("web", "NoFunds").await.contains("Not enough funds"));
    lab.cloud.heal();
    lab.cloud.accept_password(false);
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
        let count = controller.metric("groundcrew_cloudsigma_subscriptions_expiring_count").await;
        if count > 0.0 { Ok(()) } else { Err(count) }
    })
    .await
    .unwrap();
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
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
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
    status.store(200, Ordering::SeqCst);
    lab.until_reason("web", "Served").await;
    controller.stop().await;
}
