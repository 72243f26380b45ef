//! Real packets through what the controller wrote. The tests share a lab and keep apart by their addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use groundcrew_core::service::names::SHARING_KEY;
use groundcrew_testkit::eventually;
use groundcrew_testkit::ovn::lab::{self, EXTERNAL_SWITCH, Lab, ROUTER, ROUTER_MAC, SWITCH};
use groundcrew_testkit::ovn::{Host, NoAnswer, Northbound};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::harness::{Controller, Project, SOON, addresses};

/// A project whose router and switch are the lab's.
pub(crate) struct World {
    pub(crate) lab: &'static Lab,
    pub(crate) project: Project,
    _controller: Controller,
}

/// The network outside.
const OUTSIDE: &str = "198.51.100";
const OUTSIDE6: &str = "2001:db8:51::";

impl World {
    /// Addresses are given from `198.51.100.first` on, and from `2001:db8:51::first` on; each test has four, which no other
    /// has, also in a lab of its own: what one holds is not given to another.
    pub(crate) async fn new(name: &str, first: u8) -> Self {
        Self::on(lab::shared().await.unwrap(), name, first, &[]).await
    }

    /// One with a lab of its own, for who breaks it.
    pub(crate) async fn alone(name: &str, first: u8) -> Self {
        Self::alone_with(name, first, &[], async |_| ()).await
    }

    /// One that is prepared before a controller with these flags starts.
    pub(crate) async fn alone_with(
        name: &str,
        first: u8,
        flags: &[&str],
        prepare: impl AsyncFnOnce(&Northbound),
    ) -> Self {
        let lab = Lab::start().await.unwrap();
        prepare(lab.northbound()).await;
        Self::on(Box::leak(Box::new(lab)), name, first, flags).await
    }

    async fn on(lab: &'static Lab, name: &str, first: u8, more: &[&str]) -> Self {
        let project = Project::new(name).await;
        let last = first + 3;
        project.pool_of(&format!("{OUTSIDE}.{first}-{OUTSIDE}.{last},{OUTSIDE6}{first}-{OUTSIDE6}{last}")).await;
        let flags: Vec<_> = ["--ovn-router", ROUTER, "--ovn-switch", SWITCH].iter().chain(more).copied().collect();
        let controller = project.start(&lab.northbound().remotes(), &flags).await;
        controller.until_ready().await;
        Self { lab, project, _controller: controller }
    }

    /// Both backends for every port that the lab serves.
    pub(crate) async fn backends(&self, service: &str) {
        let addresses: Vec<_> = (0..2).map(|pod| self.lab.pod(pod).address().to_string()).collect();
        self.backends_at(service, service, &addresses).await;
    }

    async fn backends_at(&self, slice: &str, service: &str, addresses: &[String]) {
        let ports = json!([
            { "name": "http", "protocol": "TCP", "port": Host::HTTP },
            { "name": "dns", "protocol": "UDP", "port": Host::UDP },
        ]);
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        self.project.slice(slice, service, ports, &addresses).await;
    }

    /// A Service with both backends of its families, in the data path: its addresses.
    pub(crate) async fn serve(&self, service: &str, more: Value) -> Vec<IpAddr> {
        self.backends(service).await;
        if more["ipFamilies"].as_array().is_some_and(|families| families.contains(&json!("IPv6"))) {
            let addresses: Vec<_> = (0..2).map(|pod| self.lab.pod(pod).address6().to_string()).collect();
            self.backends_at(&format!("{service}6"), service, &addresses).await;
        }
        self.project.create(service, more).await;
        self.project.until_served(service).await;
        self.lab.wait_hypervisor().await.unwrap();
        let served = self.project.services().get(service).await.unwrap();
        addresses(&served).iter().map(|address| address.parse().unwrap()).collect()
    }
}

pub(crate) fn url(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("http://{address}/"),
        IpAddr::V6(address) => format!("http://[{address}]/"),
    }
}

/// Whoever answered, as a set.
fn names(answers: Vec<String>) -> BTreeSet<String> {
    answers.into_iter().collect()
}

fn both() -> BTreeSet<String> {
    BTreeSet::from(["pod1".to_owned(), "pod2".to_owned()])
}

/// So many that both backends are among them but for one run in a thousand million.
const ENOUGH: usize = 30;

/// Waits until the host has an answer from a backend. The first packet to an address asks who has it, and on a busy machine
/// that question may go unanswered for once.
pub(crate) async fn reaches(host: &Host, address: IpAddr, what: &str) {
    reaches_at(host, &url(address), what).await;
}

async fn reaches_at(host: &Host, url: &str, what: &str) {
    eventually(&format!("{what}: {} reaches {url}", host.name()), SOON, async || {
        let answer = host.get(url).await?;
        anyhow::ensure!(both().contains(&answer), "{answer} answered");
        Ok(())
    })
    .await
    .unwrap();
}

async fn reaches_both(host: &Host, address: IpAddr) {
    eventually(&format!("{} reaches both backends", host.name()), SOON, async || {
        let answers = names(host.get_many(&url(address), ENOUGH).await?);
        anyhow::ensure!(answers == both(), "only {answers:?}");
        Ok(())
    })
    .await
    .unwrap();
}

/// A datagram that is lost on its way is sent anew.
async fn udp(host: &Host, address: IpAddr, port: u16) {
    eventually(&format!("{} is answered by datagram", host.name()), SOON, async || {
        let answer = host.udp(address, port).await?;
        anyhow::ensure!(both().contains(&answer), "{answer} answered");
        Ok(())
    })
    .await
    .unwrap();
}

async fn refused(host: &Host, address: IpAddr) {
    eventually(&format!("{} is refused", host.name()), SOON, async || match host.tcp(address, 80).await {
        Err(NoAnswer::Refused) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_client_outside_reaches_every_backend() {
    let world = World::new("outside", 60).await;
    let vip = world.serve("web", json!({})).await[0];
    reaches_both(world.lab.client(), vip).await;
}

#[tokio::test]
async fn a_client_inside_reaches_every_backend() {
    let world = World::new("inside", 64).await;
    let vip = world.serve("web", json!({})).await[0];
    reaches_both(world.lab.pod(2), vip).await;
}

#[tokio::test]
async fn a_backend_reaches_itself_through_the_address() {
    let world = World::new("hairpin", 68).await;
    let vip = world.serve("web", json!({})).await[0];
    for backend in [world.lab.pod(0), world.lab.pod(1)] {
        reaches_both(backend, vip).await;
    }
}

#[tokio::test]
async fn datagrams_reach_their_port_from_outside_and_inside() {
    let world = World::new("udp", 72).await;
    let vip = world.serve("dns", json!({ "ports": [{ "name": "dns", "port": 53, "protocol": "UDP" }] })).await[0];
    for client in [world.lab.client(), world.lab.pod(2)] {
        udp(client, vip, 53).await;
    }
}

#[tokio::test]
async fn datagrams_of_one_client_port_leave_a_backend_that_is_gone() {
    let world = World::new("flush", 56).await;
    let ports = json!({ "ports": [{ "name": "dns", "port": 53, "protocol": "UDP" }] });
    let vip = world.serve("dns", ports).await[0];
    let pods = [world.lab.pod(0), world.lab.pod(1)];
    let client = world.lab.client();
    let ask = async || {
        eventually("a datagram is answered", SOON, async || client.udp_from(40_053, vip, 53).await).await.unwrap()
    };
    let first = ask().await;
    for _ in 0..3 {
        assert_eq!(ask().await, first, "one port is one connection");
    }
    let other = pods.into_iter().find(|pod| pod.name() != first).unwrap();
    world.backends_at("dns", "dns", &[other.address().to_string()]).await;
    // The old backend still lives and would answer: only that its connections are forgotten moves the client.
    eventually("the client is moved", SOON, async || {
        let answered = client.udp_from(40_053, vip, 53).await?;
        anyhow::ensure!(answered == other.name(), "{answered} answered");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn tcp_and_udp_share_a_port_number() {
    let world = World::new("mixed", 76).await;
    let ports = json!([
        { "name": "http", "port": 53, "protocol": "TCP" },
        { "name": "dns", "port": 53, "protocol": "UDP" },
    ]);
    let vip = world.serve("dns", json!({ "ports": ports })).await[0];
    for client in [world.lab.client(), world.lab.pod(2)] {
        reaches_at(client, &format!("http://{vip}:53/"), "TCP").await;
        udp(client, vip, 53).await;
    }
}

/// No packets: a kernel without SCTP has no client for it. That northd has made flows of the row is as far as it goes.
#[tokio::test]
async fn an_sctp_row_is_taken_by_router_and_switch() {
    let world = World::new("sctp", 80).await;
    let vip = world.serve("sig", json!({ "ports": [{ "name": "sig", "port": 36412, "protocol": "SCTP" }] })).await[0];
    let row = ["--bare", "--columns=protocol,vips", "find", "Load_Balancer"];
    let mark = format!("external_ids:groundcrew-cluster={}", world.project.namespace);
    let said = world.lab.northbound().nbctl(row.iter().copied().chain([mark.as_str()])).await.unwrap();
    assert!(said.starts_with("sctp\n") && said.contains(&format!("{vip}:36412")), "{said}");
    for datapath in [ROUTER, SWITCH] {
        let flows = world.lab.sbctl(&["lflow-list", datapath]).await.unwrap();
        let flow = flows.lines().find(|flow| flow.contains("sctp.dst == 36412"));
        assert!(flow.is_some_and(|flow| flow.contains(&vip.to_string())), "{datapath}: {flow:?}");
    }
}

#[tokio::test]
async fn an_ipv6_address_answers_outside_and_inside_with_the_routers_mac() {
    let world = World::new("v6", 84).await;
    let vip = world.serve("web", json!({ "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"] })).await[0];
    assert!(vip.is_ipv6(), "{vip}");
    for client in [world.lab.client(), world.lab.pod(2), world.lab.pod(0)] {
        reaches_both(client, vip).await;
    }
    // The kernel forgets who answered once a probe of its own gets none in time, as beside other tests; the next request asks
    // anew.
    let client = world.lab.client();
    let mac = eventually("neighbour discovery is answered", SOON, async || {
        client.get(&url(vip)).await.map_err(|error| error.to_string())?;
        let entry = client.neighbour(vip).await.map_err(|error| error.to_string())?;
        entry.ok_or_else(|| "no entry".to_owned())
    });
    assert_eq!(mac.await.unwrap(), ROUTER_MAC, "by the router");
}

#[tokio::test]
async fn a_dual_stack_service_answers_on_both_addresses() {
    let world = World::new("dual", 88).await;
    let vips =
        world.serve("web", json!({ "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"] })).await;
    assert_eq!(vips.iter().map(IpAddr::is_ipv4).collect::<Vec<_>>(), [true, false], "{vips:?}");
    for client in [world.lab.client(), world.lab.pod(2)] {
        for vip in &vips {
            reaches(client, *vip, "both families").await;
        }
    }
}

#[tokio::test]
async fn without_endpoints_connections_are_refused_at_once_outside_and_inside() {
    let world = World::new("refused", 92).await;
    let vip = world.serve("web", json!({})).await[0];
    world.project.endpoints("web", Host::HTTP, &[]).await;
    world.project.until_reason("web", "NoEndpoints").await;
    refused(world.lab.client(), vip).await;
    refused(world.lab.pod(2), vip).await;
    world.backends("web").await;
    eventually("it answers again", SOON, async || world.lab.client().get(&url(vip)).await).await.unwrap();
}

#[tokio::test]
async fn two_services_share_an_address_on_ports_of_their_own() {
    let world = World::new("shared", 96).await;
    let ports = |port: u16| json!([{ "name": "http", "port": port, "targetPort": "web" }]);
    let key = json!({ SHARING_KEY: "one" });
    let mut vips = BTreeSet::new();
    for (service, port) in [("web", 80), ("admin", 8080)] {
        world.backends(service).await;
        world.project.create_annotated(service, key.clone(), json!({ "ports": ports(port) })).await;
        vips.insert(world.project.until_served(service).await);
    }
    let vip = vips.pop_first().unwrap();
    assert!(vips.is_empty(), "{vip} and {vips:?}");
    world.lab.wait_hypervisor().await.unwrap();
    for client in [world.lab.client(), world.lab.pod(2)] {
        for port in [80, 8080] {
            reaches_at(client, &format!("http://{vip}:{port}/"), "both ports").await;
        }
    }
    world.project.delete("web").await;
    world.lab.wait_hypervisor().await.unwrap();
    reaches_at(world.lab.client(), &format!("http://{vip}:8080/"), "the other Service goes on").await;
}

#[tokio::test]
async fn arp_is_answered_with_the_routers_mac_for_the_address_and_not_for_its_neighbour() {
    let world = World::new("arp", 100).await;
    let IpAddr::V4(vip) = world.serve("web", json!({})).await[0] else { panic!("not IPv4") };
    let mac = eventually("the address is answered for", SOON, async || world.lab.client().arp(vip).await).await;
    assert_eq!(mac.unwrap(), ROUTER_MAC);
    let unused = format!("{OUTSIDE}.103").parse().unwrap();
    assert_eq!(world.lab.client().arp(unused).await, Err(NoAnswer::Timeout));
}

/// What `Local` is for, the client's address, OVN keeps under either policy.
#[tokio::test]
async fn the_policy_local_serves_every_backend() {
    let world = World::new("local", 104).await;
    let vip = world.serve("web", json!({ "externalTrafficPolicy": "Local" })).await[0];
    reaches_both(world.lab.client(), vip).await;
    reaches_both(world.lab.pod(2), vip).await;
}

#[tokio::test]
async fn a_deleted_service_is_silent_and_leaves_nothing_in_ovn() {
    let world = World::new("gone", 108).await;
    let vip = world.serve("web", json!({})).await[0];
    reaches(world.lab.client(), vip, "before it goes").await;
    world.project.delete("web").await;
    world.lab.wait_hypervisor().await.unwrap();
    eventually("nobody answers for the address", SOON, async || {
        world.lab.client().forget_neighbours().await.map_err(|error| error.to_string())?;
        match world.lab.client().tcp(vip, 80).await {
            Err(NoAnswer::NoRoute) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    let northbound = world.lab.northbound();
    for table in ["Load_Balancer", "Logical_Router", "Logical_Switch"] {
        let rows = northbound.nbctl(["list", table]).await.unwrap();
        assert!(!rows.contains(&vip.to_string()), "{rows}");
        assert!(!rows.contains(&format!("groundcrew-cluster={}", world.project.namespace)), "{rows}");
    }
    let flows = world.lab.sbctl(&["lflow-list"]).await.unwrap();
    assert!(!flows.contains(&vip.to_string()), "{EXTERNAL_SWITCH}, {ROUTER} or {SWITCH} still knows {vip}");
}

/// The time-out makes a switch drop the first connection of each client; that is why clients inside have their own row.
#[tokio::test]
async fn with_affinity_every_client_stays_with_its_backend_and_no_first_connection_is_lost() {
    let world = World::new("sticky", 112).await;
    let spec = json!({
        "sessionAffinity": "ClientIP", "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"],
    });
    let vips = world.serve("web", spec).await;
    for vip in &vips {
        for client in [world.lab.client(), world.lab.pod(2), world.lab.pod(0), world.lab.pod(1)] {
            // Each request is a connection of its own, and the first that fails ends it.
            let answers = client.get_many(&url(*vip), 40).await;
            let answers = answers.unwrap_or_else(|why| panic!("{} to {vip}: {why}", client.name()));
            assert_eq!((answers.len(), names(answers.clone()).len()), (40, 1), "{} {vip}: {answers:?}", client.name());
        }
    }
}

#[tokio::test]
async fn affinity_is_turned_on_and_off_without_a_lost_connection() {
    let world = World::new("turn", 116).await;
    let vip = world.serve("web", json!({})).await[0];
    let row = |column| ["--bare", column, "find", "Load_Balancer"].map(str::to_owned);
    let mark = format!("external_ids:groundcrew-cluster={}", world.project.namespace);
    for client in [world.lab.client(), world.lab.pod(2)] {
        reaches(client, vip, "before").await;
    }
    for (affinity, rows) in [("ClientIP", 2), ("None", 1)] {
        let patch = json!({ "spec": { "sessionAffinity": affinity, "sessionAffinityConfig": null } });
        world.project.services().patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        // Clients go on while it is done.
        eventually(&format!("{affinity} has {rows} rows"), SOON, async || {
            for client in [world.lab.client(), world.lab.pod(2)] {
                client.get_many(&url(vip), 3).await.unwrap_or_else(|why| panic!("{}: {why}", client.name()));
            }
            let said = world.lab.northbound().nbctl(row("--columns=name").into_iter().chain([mark.clone()])).await?;
            anyhow::ensure!(said.split_whitespace().count() == rows, "{said}");
            Ok(())
        })
        .await
        .unwrap();
        world.lab.wait_hypervisor().await.unwrap();
    }
    assert_eq!(names(world.lab.pod(2).get_many(&url(vip), ENOUGH).await.unwrap()), both());
}
