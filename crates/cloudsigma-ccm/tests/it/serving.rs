//! Services from their creation to their deletion.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_cloudsigma_ccm::CloudSigmaLeftovers;
use groundcrew_cloudsigma_ccm::client::{Client, Config, Credentials, Secret};
use groundcrew_core::leader::Term;
use groundcrew_core::provider::Leftovers;
use groundcrew_testkit::cloudsigma::{Account, CLIENT_ID, CLIENT_SECRET, PASSWORD, USER};
use groundcrew_testkit::eventually;
use k8s_openapi::api::core::v1::{self, Namespace, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::lab::{Lab, SOON, address, ready};

#[tokio::test(flavor = "multi_thread")]
async fn a_service_gets_an_address_that_a_node_confirmed_and_leaves_the_account_as_it_was() {
    let lab = Lab::new("cs-serve", 3).await;
    lab.add_ips(1..=3);
    lab.cloud
        .account(|account| account.ips.get_mut(&lab.ip(1).to_string()).unwrap()["meta"] = json!({ "note": "ours" }));
    let before = lab.cloud.snapshot();
    let controller = lab.controller(&["--cluster-name", "prod", "--claim-settle", "6s"]).await;
    lab.create("web", json!({}), json!({})).await;
    let address = lab.until_served("web").await;
    assert_eq!(address, lab.ip(1));
    let object = lab.floating(address).await;
    assert_eq!(object.status.unwrap().holder, object.spec.holder, "nothing is published before a node has said so");
    assert_eq!(object.spec.owner.as_deref(), Some(&*format!("{}/web", lab.namespace)));
    let mac = lab.cloud.server(&lab.nodes[0].1).unwrap()["nics"][0]["mac"].clone();
    assert!(object.spec.mac.is_some() && mac.is_string());
    eventually("the tags are there", SOON, async || {
        let tags = lab.cloud.account(|account| account.tags_of(address));
        let wanted =
            ["cluster:prod".to_owned(), "managed-by:cloudsigma-ccm".into(), format!("service:{}-web", lab.namespace)];
        if tags == wanted { Ok(()) } else { Err(format!("{tags:?}")) }
    })
    .await
    .unwrap();

    lab.delete("web").await;
    lab.until_gone("web").await;
    lab.until_account(&before).await;
    assert!(lab.floating_ips().get_opt(&address.to_string()).await.unwrap().is_none());
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_releases_nothing_and_a_restart_writes_nothing() {
    let lab = Lab::new("cs-restart", 2).await;
    lab.add_ips(1..=4);
    let controller = lab.controller(&[]).await;
    for name in ["a", "b", "c"] {
        lab.create(name, json!({}), json!({})).await;
    }
    let mut had = Vec::new();
    for name in ["a", "b", "c"] {
        had.push(lab.until_served(name).await);
    }
    assert_eq!(had.iter().collect::<BTreeSet<_>>().len(), 3);
    lab.until_tagged(&had).await;
    lab.until_initialised().await;
    controller.stop().await;

    let (account, versions, writes) = (lab.cloud.snapshot(), lab.versions().await, lab.cloud.writes().len());
    assert_eq!(account.ips.values().filter(|ip| ip["meta"] != json!({})).count(), 3, "nothing was released");
    let controller = lab.controller(&["--scan-interval", "300ms"]).await;
    eventually("everything was compared twice", SOON, async || {
        let scans = controller.metric("groundcrew_service_full_scans_total").await;
        if scans >= 2.0 { Ok(()) } else { Err(scans) }
    })
    .await
    .unwrap();
    assert_eq!(lab.cloud.writes().len(), writes, "{:?}", &lab.cloud.writes()[writes..]);
    assert_eq!(lab.versions().await, versions);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_are_spread_over_the_nodes() {
    let lab = Lab::new("cs-spread", 3).await;
    lab.add_ips(1..=6);
    let controller = lab.controller(&[]).await;
    let mut holders = BTreeSet::new();
    for n in 1..=6 {
        let name = format!("s{n}");
        lab.create(&name, json!({}), json!({})).await;
        let address = lab.until_served(&name).await;
        holders.insert(lab.floating(address).await.spec.holder);
    }
    assert_eq!(holders.len(), 3);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_with_a_sharing_key_share_one_address_and_the_last_one_gives_it_back() {
    let lab = Lab::new("cs-share", 1).await;
    lab.add_ips(1..=2);
    let before = lab.cloud.snapshot();
    let controller = lab.controller(&[]).await;
    let key = json!({ "groundcrew.dev/sharing-key": "one" });
    lab.create("tcp", json!({}), key.clone()).await;
    let first = lab.until_served("tcp").await;
    let udp = json!({ "ports": [{ "name": "dns", "port": 80, "protocol": "UDP" }] });
    lab.create("udp", udp, key.clone()).await;
    assert_eq!(lab.until_served("udp").await, first);
    lab.create("late", json!({}), key).await;
    lab.until_reason("late", "PortConflict").await;
    lab.delete("late").await;
    lab.until_gone("late").await;

    lab.delete("tcp").await;
    lab.until_gone("tcp").await;
    let object = lab.floating(first).await;
    assert!(object.spec.holder.is_some(), "the other still uses it");
    assert_eq!(object.spec.owner.as_deref(), Some(&*format!("{}/udp", lab.namespace)));
    lab.delete("udp").await;
    lab.until_gone("udp").await;
    lab.until_account(&before).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_its_sharing_key_off_keeps_its_port_and_a_lost_claim_moves_nobody() {
    let lab = Lab::new("cs-unshare", 1).await;
    lab.add_ips(1..=3);
    let controller = lab.controller(&[]).await;
    let key = json!({ "groundcrew.dev/sharing-key": "one" });
    let udp = json!({ "ports": [{ "name": "dns", "port": 80, "protocol": "UDP" }] });
    lab.create("tcp", json!({}), key.clone()).await;
    let first = lab.until_served("tcp").await;
    lab.create("udp", udp.clone(), key.clone()).await;
    assert_eq!(lab.until_served("udp").await, first);
    let api: Api<Service> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let unshare = json!({ "metadata": { "annotations": { "groundcrew.dev/sharing-key": null } } });
    api.patch("udp", &PatchParams::default(), &Patch::Merge(unshare)).await.unwrap();
    lab.create("late", udp, key).await;
    assert!(lab.until_reason("late", "PortConflict").await.contains("/udp"));

    // A write of the whole Service, by whoever does not know what is ours in it.
    let asked = json!({ "groundcrew.dev/load-balancer-ips": lab.ip(3), "groundcrew.dev/claimed-by": null });
    let unclaim = json!({ "metadata": { "finalizers": null, "annotations": asked } });
    api.patch("udp", &PatchParams::default(), &Patch::Merge(unclaim)).await.unwrap();
    let claimed = |service: &Service| service.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty());
    lab.until("udp", "it is claimed again", |service| claimed(service).then_some(())).await;
    let port = json!({ "spec": { "ports": [{ "name": "dns", "port": 81, "protocol": "UDP" }] } });
    api.patch("udp", &PatchParams::default(), &Patch::Merge(port)).await.unwrap();
    assert_eq!(lab.until_served("late").await, first, "the port is free");
    assert_eq!(lab.until_served("udp").await, first);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_shares_an_address_has_its_own_of_a_family_that_the_other_one_does_not_ask_for() {
    let lab = Lab::new("cs-share6", 1).await;
    lab.add_ips([1]);
    lab.cloud.account(|account| account.add_ip(lab.ip_v6(1)));
    let controller = lab.controller(&[]).await;
    let key = json!({ "groundcrew.dev/sharing-key": "one" });
    lab.create("single", json!({}), key.clone()).await;
    assert_eq!(lab.until_served("single").await, lab.ip(1));
    let dual =
        json!({ "ipFamilyPolicy": "RequireDualStack", "ports": [{ "name": "dns", "port": 80, "protocol": "UDP" }] });
    lab.create("dual", dual, key).await;
    let expected = [lab.ip(1), lab.ip_v6(1)];
    lab.until("dual", "dual has both", |service| (addresses(service) == expected).then_some(())).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_address_waits_for_a_service_of_the_same_name() {
    let lab = Lab::new("cs-keep", 1).await;
    lab.add_ips(1..=3);
    let controller = lab.controller(&[]).await;
    lab.create("other", json!({}), json!({})).await;
    lab.until_served("other").await;
    let keep = json!({ "groundcrew.dev/keep-address": "true" });
    lab.create("web", json!({}), keep.clone()).await;
    let address = lab.until_served("web").await;
    lab.delete("web").await;
    lab.until_gone("web").await;
    lab.create("third", json!({}), json!({})).await;
    assert_ne!(lab.until_served("third").await, address, "it is kept for another");
    lab.create("web", json!({}), keep).await;
    assert_eq!(lab.until_served("web").await, address);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_seeds_manifests_work_as_printed() {
    let lab = Lab::new("cs-seed", 1).await;
    lab.add_ips([1]);
    let dynamic = lab.ip(9);
    lab.cloud.account(|account| account.add_dynamic_ip(dynamic));
    let controller = lab.controller(&["--class-less"]).await;
    let classless = json!({ "loadBalancerClass": null, "ports": [{ "port": 80, "targetPort": 80 }] });
    lab.create("nginx-lb", classless.clone(), json!({})).await;
    assert_eq!(lab.until_served("nginx-lb").await, lab.ip(1));
    lab.create("nginx-lb-dynamic", classless.clone(), json!({ "cloudsigma.com/ip-pool": "dynamic" })).await;
    assert_eq!(lab.until_served("nginx-lb-dynamic").await, dynamic);
    eventually("the user is warned", SOON, async || {
        let warned = lab.events("DynamicAddress").await;
        if warned.iter().any(|note| note.contains("does not let it move")) {
            Ok(())
        } else {
            Err(format!("{warned:?}"))
        }
    })
    .await
    .unwrap();
    for name in ["nginx-lb", "nginx-lb-dynamic"] {
        lab.delete(name).await;
        lab.until_gone(name).await;
    }
    controller.stop().await;

    // With the switch they are left to whoever else takes them.
    let controller = lab.controller(&["--scan-interval", "300ms"]).await;
    let nobodys = lab.create("nobodys", classless, json!({})).await;
    lab.create("ours", json!({}), json!({})).await;
    assert_eq!(lab.until_served("ours").await, lab.ip(1));
    controller.until_scanned(1).await;
    assert_eq!(
        lab.services().get("nobodys").await.unwrap().metadata.resource_version,
        nobodys.metadata.resource_version
    );
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_ports_and_two_protocols_on_one_port_are_one_address() {
    let lab = Lab::new("cs-ports", 1).await;
    lab.add_ips([1]);
    let controller = lab.controller(&[]).await;
    let mut ports: Vec<_> =
        (1..=29).map(|n| json!({ "name": format!("p{n}"), "port": 8000 + n, "targetPort": 9000 + n })).collect();
    ports.push(json!({ "name": "dns", "port": 8001, "protocol": "UDP", "targetPort": 53 }));
    lab.create("many", json!({ "ports": ports }), json!({})).await;
    let address = lab.until_served("many").await;
    assert_eq!(address, lab.ip(1));
    let status = lab.services().get("many").await.unwrap().status.unwrap();
    let ingress = status.load_balancer.unwrap().ingress.unwrap();
    assert_eq!((ingress.len(), ingress[0].ip_mode.as_deref()), (1, Some("VIP")));
    controller.stop().await;
}

fn addresses(service: &Service) -> Vec<IpAddr> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    status.into_iter().flatten().filter_map(|ingress| ingress.ip.as_ref()?.parse().ok()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_gets_an_address_of_each_family_it_asks_for_and_gives_back_the_one_it_asks_for_no_more() {
    let lab = Lab::new("cs-family", 2).await;
    lab.add_ips([1]);
    let (v4, v6) = (lab.ip(1), lab.ip_v6(1));
    let controller = lab.controller(&["--nat"]).await;
    lab.create("web", json!({}), json!({})).await;
    lab.slice("web", &[lab.node(1)]).await;
    assert_eq!(lab.until_served("web").await, v4);
    let before = lab.cloud.snapshot();
    let set = async |policy: &str| {
        let patch = json!({ "spec": { "ipFamilyPolicy": policy } });
        lab.services().patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    let until_has = async |expected: &[IpAddr]| {
        let what = format!("web has {expected:?}");
        lab.until("web", &what, |service| (addresses(service) == expected).then_some(())).await;
    };
    let backends = async || lab.floating(v4).await.spec.nat.first().map_or(0, |port| port.backends.len());

    // There is none yet: that is told, and what it has is kept right.
    set("RequireDualStack").await;
    let message = lab.until_reason("web", "PoolEmpty").await;
    assert!(message.contains("IPv6"), "{message}");
    lab.slice("web", &[lab.node(1), lab.node(2)]).await;
    eventually("its backends follow", SOON, async || match backends().await {
        2 => Ok(()),
        count => Err(count),
    })
    .await
    .unwrap();
    until_has(&[v4]).await;
    lab.cloud.account(|account| account.add_ip(v6));
    until_has(&[v4, v6]).await;
    lab.until_held(v6, |_| true).await;

    set("SingleStack").await;
    until_has(&[v4]).await;
    assert!(lab.floating_ips().get_opt(&FloatingIP::name_of(v6)).await.unwrap().is_none());
    assert_eq!(lab.cloud.ip(v6).unwrap()["meta"], json!({}));
    let ours = |account: &Account| account.ips[&v4.to_string()].clone();
    assert_eq!(ours(&lab.cloud.snapshot()), ours(&before), "the other one is as it was");

    // Another one may have it by then.
    lab.create("other", json!({ "ipFamilies": ["IPv6"] }), json!({})).await;
    assert_eq!(lab.until_served("other").await, v6);
    controller.stop().await;
}

/// Two Services on one address, and nodes that balance by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn where_nodes_balance_by_themselves_they_are_told_ports_backends_and_who_may_connect() {
    let lab = Lab::new("cs-nat", 2).await;
    lab.add_ips([1]);
    let controller = lab.controller(&["--nat"]).await;
    let shared = json!({ "groundcrew.dev/sharing-key": "one" });
    lab.create(
        "web",
        json!({ "externalTrafficPolicy": "Local", "loadBalancerSourceRanges": ["192.0.2.0/24"] }),
        shared.clone(),
    )
    .await;
    lab.slice("web", &[lab.node(1)]).await;
    let address = lab.until_served("web").await;
    let dns = json!([{ "name": "dns", "port": 80, "protocol": "UDP", "targetPort": 53 }]);
    lab.create("dns", json!({ "ports": dns }), shared).await;
    assert_eq!(lab.until_served("dns").await, address);
    let service = lab.services().get("web").await.unwrap();
    let mode = service.status.unwrap().load_balancer.unwrap().ingress.unwrap()[0].ip_mode.clone();
    assert_eq!(mode.as_deref(), Some("Proxy"));
    let told = async |expected: serde_json::Value| {
        eventually("the node is told", SOON, async || {
            let nat = json!(lab.floating(address).await.spec.nat);
            if nat == expected { Ok(()) } else { Err(nat.to_string()) }
        })
        .await
        .unwrap();
    };
    let backend = |n| json!({ "address": "10.1.0.1", "port": 8080, "node": lab.node(n) });
    let web = |n| {
        json!({
            "protocol": "TCP", "port": 80, "externalTrafficPolicy": "Local", "sourceRanges": ["192.0.2.0/24"],
            "backends": [backend(n)],
        })
    };
    let dns = json!({ "protocol": "UDP", "port": 80, "externalTrafficPolicy": "Cluster" });
    told(json!([web(1), dns])).await;
    lab.slice("web", &[lab.node(2)]).await;
    told(json!([web(2), dns])).await;
    lab.delete("dns").await;
    told(json!([web(2)])).await;
    controller.stop().await;
    let controller = lab.controller(&[]).await;
    told(json!([])).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_controller_left_is_found_and_removed_but_not_from_the_living() {
    for mode in ["manual", "attach"] {
        is_found_and_removed(mode).await;
    }
}

async fn is_found_and_removed(mode: &str) {
    let lab = Lab::new("cs-left", 1).await;
    lab.add_ips(1..=3);
    lab.cloud.account(|account| account.live_nics = true);
    let before = lab.cloud.snapshot();
    let controller = lab.controller(&["--mode", mode]).await;
    lab.create("web", json!({}), json!({})).await;
    let served = lab.until_served("web").await;
    lab.until_tagged(&[served]).await;
    controller.kill();

    let config = Config {
        api: lab.cloud.url().parse().unwrap(),
        credentials: Credentials::Password { user: USER.into(), password: Secret::new(PASSWORD) },
        timeout: Duration::from_mins(1),
        retry_for: Duration::from_mins(1),
    };
    let leftovers = CloudSigmaLeftovers {
        client: Client::new(config).unwrap(),
        kube: lab.client.clone(),
        cluster: lab.namespace.as_str().into(),
        deadline: Duration::from_mins(1),
    };
    let term = Term::alone("test");
    let found = leftovers.find().await.unwrap();
    assert!(found.complete);
    assert_eq!(found.items.iter().filter(|item| item.kind.name == "cloudsigma-address").count(), 1);
    let used = found.items.iter().find(|item| item.kind.name == "cloudsigma-address").unwrap();
    let nics = lab.cloud.server(&lab.nodes[0].1).unwrap()["nics"].as_array().unwrap().len();
    assert_eq!(nics, if mode == "attach" { 2 } else { 1 });
    let refused = leftovers.remove(used, &term).await.unwrap_err();
    assert!(refused.to_string().contains("in use by Service"), "{refused}");

    // The end of the cluster, as deorbit finds it.
    let patch = json!({ "metadata": { "finalizers": null } });
    lab.services().patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    lab.delete("web").await;
    lab.until_gone("web").await;
    lab.floating_ips().delete(&served.to_string(), &DeleteParams::default()).await.unwrap();
    for item in &found.items {
        leftovers.remove(item, &term).await.unwrap();
        leftovers.remove(item, &term).await.unwrap();
    }
    lab.until_account(&before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_without_a_confirmed_node_stays_pending_and_says_why() {
    let lab = Lab::new("cs-mute", 1).await;
    lab.add_ips([1]);
    lab.agents.mute(true);
    let controller = lab.controller(&["--confirm-patience", "300ms"]).await;
    lab.create("web", json!({}), json!({})).await;
    let message = lab.until_reason("web", "NotConfirmed").await;
    assert!(message.contains(lab.node(1)) && message.contains("agent"), "{message}");
    let service = lab.services().get("web").await.unwrap();
    assert_eq!((address(&service), ready(&service).unwrap().0.as_str()), (None, "False"));
    lab.agents.mute(false);
    assert_eq!(lab.until_served("web").await, lab.ip(1));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_impersonated_user_is_served_and_its_token_is_kept_for_the_csi_driver() {
    let lab = Lab::new("cs-token", 1).await;
    lab.add_ips([1]);
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some("cloudsigma-csi".into()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let (api, oauth) = (lab.cloud.direct_url(), lab.cloud.oauth_url());
    let flags = [
        "--user-email",
        USER,
        "--api-url",
        &api,
        "--oauth-url",
        &oauth,
        "--client-id",
        CLIENT_ID,
        "--client-secret",
        CLIENT_SECRET,
        "--region",
        "tst",
        "--enable-csi-token",
    ];
    let controller = lab.controller(&flags).await;
    lab.create("web", json!({}), json!({})).await;
    assert_eq!(lab.until_served("web").await, lab.ip(1));
    let secrets: Api<v1::Secret> = Api::namespaced(lab.client.clone(), "cloudsigma-csi");
    let token = eventually("the Secret has a token", SOON, async || {
        let data = secrets.get("cloudsigma-token").await?.data.unwrap_or_default();
        data.get("access_token").cloned().ok_or_else(|| anyhow::anyhow!("{:?}", data.keys()))
    })
    .await
    .unwrap();
    assert!(String::from_utf8(token.0).unwrap().starts_with("test-token-User-"));
    controller.stop().await;
}
