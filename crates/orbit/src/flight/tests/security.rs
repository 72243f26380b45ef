//! Rules and ports.

use groundcrew_core::provider::{Device, Direction, Family, Port, Remote, Rule, SecurityGroup};

use super::{instance, node, port};
use crate::flight::fleet::{Marks, fleet};
use crate::flight::security::{bare_ports, missing_rules};

pub(super) fn group(rules: Vec<Rule>) -> SecurityGroup {
    SecurityGroup { id: "g".into(), name: "nodes".into(), rules }
}

fn rule(protocol: Option<&str>, remote: &str) -> Rule {
    let remote: ipnet::IpNet = remote.parse().unwrap();
    Rule {
        id: "r".into(),
        direction: Direction::Ingress,
        family: if remote.addr().is_ipv4() { Family::V4 } else { Family::V6 },
        protocol: protocol.map(str::to_owned),
        ports: None,
        remote: Remote::Range(remote),
        description: String::new(),
    }
}

fn missing(rules: Vec<Rule>, ranges: &[&str]) -> Vec<String> {
    let ranges: Vec<_> = ranges.iter().map(|range| range.parse().unwrap()).collect();
    let missing = missing_rules(&group(rules), &ranges);
    missing.into_iter().map(|rule| format!("{} {}", rule.protocol.unwrap_or_default(), rule.range)).collect()
}

#[test]
fn every_range_of_both_families_gets_its_three_protocols() {
    assert_eq!(
        missing(vec![], &["10.1.0.0/16", "fd00:1::/48"]),
        [
            "tcp 10.1.0.0/16",
            "udp 10.1.0.0/16",
            "icmp 10.1.0.0/16",
            "tcp fd00:1::/48",
            "udp fd00:1::/48",
            "ipv6-icmp fd00:1::/48"
        ]
    );
}

#[test]
fn wider_rules_count() {
    let pods = ["10.1.0.0/16"];
    assert_eq!(missing(vec![rule(None, "0.0.0.0/0")], &pods), [""; 0]);
    assert_eq!(missing(vec![rule(None, "10.0.0.0/8")], &pods), [""; 0]);
    let anyone = Rule { remote: Remote::Anyone, ..rule(Some("6"), "10.1.0.0/16") };
    assert_eq!(missing(vec![anyone], &pods), ["udp 10.1.0.0/16", "icmp 10.1.0.0/16"]);
    let all_ports = Rule { ports: Some((1, 65_535)), ..rule(Some("tcp"), "10.1.0.0/16") };
    assert_eq!(missing(vec![all_ports], &pods), ["udp 10.1.0.0/16", "icmp 10.1.0.0/16"]);
    assert_eq!(missing(vec![rule(Some("icmpv6"), "::/0")], &["fd00::/64"]), ["tcp fd00::/64", "udp fd00::/64"]);
}

#[test]
fn rules_that_only_resemble_what_is_wanted_do_not_count() {
    let near = [
        rule(None, "10.1.0.0/17"),
        rule(None, "::/0"),
        Rule { direction: Direction::Egress, ..rule(None, "0.0.0.0/0") },
        Rule { remote: Remote::Others("group x".into()), ..rule(None, "0.0.0.0/0") },
        Rule { ports: Some((1, 1024)), ..rule(Some("tcp"), "0.0.0.0/0") },
        Rule { ports: Some((0, 65_535)), ..rule(Some("icmp"), "0.0.0.0/0") },
        rule(Some("sctp"), "0.0.0.0/0"),
    ];
    assert_eq!(missing(near.into(), &["10.1.0.0/16"]).len(), 3);
}

#[test]
fn only_ports_of_the_clusters_servers_that_can_have_the_group_and_lack_it_get_it() {
    let (nodes, instances) = ([node("a", None)], [instance("a"), instance("foreign")]);
    let fleet = fleet(&nodes, &instances, &Marks::default());
    let of = |server: &str| Device::Server(server.into());
    let ports = [
        port("bare", of("a"), Some(&["other"])),
        port("fine", of("a"), Some(&["other", "g"])),
        port("untold", of("a"), None),
        Port { secured: false, ..port("open", of("a"), Some(&[])) },
        port("foreign", of("foreign"), Some(&[])),
        port("router", Device::Router("a".into()), Some(&[])),
        port("vip", Device::Nothing, Some(&[])),
    ];
    let bare: Vec<_> = bare_ports(&ports, &fleet, "g").map(|(_, port)| port.id.as_str()).collect();
    assert_eq!(bare, ["bare"]);
}

#[test]
fn a_port_on_a_network_on_which_no_node_has_its_address_is_not_opened() {
    let (nodes, mut new) = ([node("a", None)], instance("new"));
    new.tags.insert("ours".into());
    let instances = [instance("a"), new];
    let marks = Marks { tag: Some("ours".into()), ..Marks::default() };
    let fleet = fleet(&nodes, &instances, &marks);
    let of = |server: &str, network: &str| Port {
        network: network.into(),
        ..port(&format!("{server}-{network}"), Device::Server(server.into()), Some(&[]))
    };
    // The storage network has the range of the Nodes', and other addresses of it.
    let storage = Port { addresses: vec![], ..of("a", "storage") };
    let ports = [of("a", "nodes"), storage, of("new", "nodes"), of("new", "storage")];
    let bare: Vec<_> = bare_ports(&ports, &fleet, "g").map(|(_, port)| port.id.as_str()).collect();
    assert_eq!(bare, ["a-nodes", "new-nodes"]);
}

#[test]
fn a_server_whose_addresses_are_not_its_nodes_gets_no_group() {
    let mut other = instance("a");
    other.addresses = vec!["10.77.0.1".parse().unwrap()];
    let (nodes, instances) = ([node("a", None)], [other]);
    let fleet = fleet(&nodes, &instances, &Marks::default());
    let ports = [port("bare", Device::Server("a".into()), Some(&[]))];
    assert_eq!(bare_ports(&ports, &fleet, "g").count(), 0);
}
