//! `loadBalancerSourceRanges` with real packets: who is in no range gets no answer, wherever he is.

use std::net::IpAddr;

use groundcrew_testkit::eventually;
use groundcrew_testkit::ovn::{Host, NoAnswer};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::data_path::{World, url};
use crate::harness::SOON;

/// A second address of the client outside, which no other test uses.
const OTHER: &str = "198.51.100.240";
const OTHER6: &str = "2001:db8:51::240";

async fn answers(host: &Host, source: IpAddr, vip: IpAddr) {
    eventually(&format!("{source} is answered"), SOON, async || host.get_from(source, &url(vip)).await).await.unwrap();
}

async fn is_dropped(host: &Host, source: IpAddr, vip: IpAddr) {
    eventually(&format!("{source} is dropped"), SOON, async || match host.get_from(source, &url(vip)).await {
        Err(NoAnswer::Timeout) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
    .unwrap();
}

impl World {
    /// The addresses of the client outside: its own, and another.
    async fn two_outside(&self) -> [IpAddr; 2] {
        let other: IpAddr = OTHER.parse().unwrap();
        self.lab.client().add_address(other).await.unwrap();
        [self.lab.client().address().into(), other]
    }

    async fn set_ranges(&self, service: &str, ranges: &[String]) {
        let patch = json!({ "spec": { "loadBalancerSourceRanges": ranges } });
        self.project.services().patch(service, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// The rules of this test, as the server has them.
    async fn rules(&self) -> Vec<String> {
        let mark = format!("external_ids:groundcrew-cluster={}", self.project.namespace);
        let said = self.lab.northbound().nbctl(["--bare", "--columns=_uuid", "find", "ACL", &mark]).await.unwrap();
        said.split_whitespace().map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn clients_outside_are_served_or_dropped_by_their_range() {
    let world = World::new("ranges", 120).await;
    let [own, other] = world.two_outside().await;
    let vip = world.serve("web", json!({ "loadBalancerSourceRanges": [format!("{other}/32")] })).await[0];
    let client = world.lab.client();
    answers(client, other, vip).await;
    assert_eq!(client.get_from(own, &url(vip)).await, Err(NoAnswer::Timeout));
    // Nobody else's traffic is concerned: the same client reaches a Service without ranges.
    world.backends("open").await;
    world.project.create("open", json!({})).await;
    let open = world.project.until_served("open").await.parse().unwrap();
    answers(client, own, open).await;
}

#[tokio::test]
async fn clients_inside_are_served_or_dropped_by_their_range() {
    let world = World::new("within", 124).await;
    let [one, two] = [world.lab.pod(2), world.lab.pod(0)];
    let vip = world.serve("web", json!({ "loadBalancerSourceRanges": [format!("{}/32", one.address())] })).await[0];
    answers(one, one.address().into(), vip).await;
    assert_eq!(two.get(&url(vip)).await, Err(NoAnswer::Timeout), "also a backend");
    assert_eq!(world.lab.client().get(&url(vip)).await, Err(NoAnswer::Timeout));
}

#[tokio::test]
async fn ranges_of_ipv6_hold_and_a_family_without_a_range_is_closed() {
    let world = World::new("ranges6", 128).await;
    let (client, pod) = (world.lab.client(), world.lab.pod(2));
    let other: IpAddr = OTHER6.parse().unwrap();
    client.add_address(other).await.unwrap();
    let ranges = [format!("{other}/128"), format!("{}/128", pod.address6())];
    let spec = json!({
        "loadBalancerSourceRanges": ranges, "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"],
    });
    let vips = world.serve("web", spec).await;
    answers(client, other, vips[1]).await;
    answers(pod, pod.address6().into(), vips[1]).await;
    assert_eq!(client.get_from(client.address6().into(), &url(vips[1])).await, Err(NoAnswer::Timeout));
    for (host, vip) in [(world.lab.pod(0), vips[1]), (client, vips[0]), (pod, vips[0])] {
        assert_eq!(host.get(&url(vip)).await, Err(NoAnswer::Timeout), "{} to {vip}", host.name());
    }
}

#[tokio::test]
async fn edited_ranges_hold_at_once_and_never_lose_whoever_is_in_both() {
    let world = World::new("edited", 132).await;
    let [own, other] = world.two_outside().await;
    let vip = world.serve("web", json!({ "loadBalancerSourceRanges": [format!("{other}/32")] })).await[0];
    let client = world.lab.client();
    answers(client, other, vip).await;
    let inside = format!("{}/32", world.lab.pod(2).address());
    for (ranges, own_is_in) in [(vec![own, other], true), (vec![other], false)] {
        let ranges: Vec<_> = ranges.iter().map(|range| format!("{range}/32")).chain([inside.clone()]).collect();
        world.set_ranges("web", &ranges).await;
        eventually("the edit holds", SOON, async || {
            // He is in all of them, and is answered at any moment.
            client.get_from(other, &url(vip)).await.unwrap();
            match (client.get_from(own, &url(vip)).await, own_is_in) {
                (Ok(_), true) | (Err(NoAnswer::Timeout), false) => Ok(()),
                (answer, _) => Err(format!("{answer:?}")),
            }
        })
        .await
        .unwrap();
    }
    world.set_ranges("web", &[]).await;
    answers(client, own, vip).await;
    assert_eq!(world.rules().await, [""; 0], "nothing is left of them");
}

#[tokio::test]
async fn rules_that_somebody_takes_are_back_and_go_with_the_service() {
    let world = World::new("taken", 136).await;
    let [own, other] = world.two_outside().await;
    let vip = world.serve("web", json!({ "loadBalancerSourceRanges": [format!("{other}/32")] })).await[0];
    let northbound = world.lab.northbound();
    let group = async || {
        let mark = format!("external_ids:groundcrew-cluster={}", world.project.namespace);
        northbound.nbctl(["--bare", "--columns=name", "find", "Port_Group", &mark]).await.unwrap().trim().to_owned()
    };
    let name = group().await;
    for spoil in [
        vec!["pg-del", &name],
        vec!["clear", "Port_Group", &name, "acls"],
        vec!["clear", "Port_Group", &name, "ports"],
        vec!["clear", "Port_Group", &name, "external_ids"],
    ] {
        northbound.nbctl(spoil.iter().copied()).await.unwrap();
        is_dropped(world.lab.client(), own, vip).await;
        eventually(&format!("{spoil:?} is undone"), SOON, async || {
            anyhow::ensure!(group().await == name && world.rules().await.len() == 1);
            let ports = northbound.nbctl(["--bare", "get", "Port_Group", &name, "ports"]).await?;
            anyhow::ensure!(ports.matches('-').count() == 2 * 4, "{ports}");
            Ok(())
        })
        .await
        .unwrap();
    }
    let rule = world.rules().await.remove(0);
    northbound.nbctl(["set", "ACL", &rule, "match=\"0\""]).await.unwrap();
    is_dropped(world.lab.client(), own, vip).await;
    answers(world.lab.client(), other, vip).await;

    world.project.delete("web").await;
    assert_eq!((world.rules().await.len(), group().await), (0, String::new()));
}
