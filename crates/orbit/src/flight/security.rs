//! What the security group of the Nodes must let through, and which ports must have it.

use groundcrew_core::provider::{Device, Direction, Family, NewRule, Port, Remote, Rule, SecurityGroup};
use ipnet::IpNet;

use super::fleet::Member;

/// On every rule that we make.
pub(crate) const DESCRIPTION: &str = "pods; made by groundcrew flight";

/// The rules that the group lacks for pods to reach each other.
#[must_use]
pub fn missing_rules(group: &SecurityGroup, pod_ranges: &[IpNet]) -> Vec<NewRule> {
    let wanted = pod_ranges.iter().flat_map(|range| {
        let icmp = if family(range) == Family::V4 { "icmp" } else { "ipv6-icmp" };
        ["tcp", "udp", icmp].map(|protocol| NewRule {
            direction: Direction::Ingress,
            protocol: Some(protocol.to_owned()),
            ports: None,
            range: range.trunc(),
            description: DESCRIPTION.to_owned(),
        })
    });
    wanted.filter(|wanted| !group.rules.iter().any(|rule| covers(rule, wanted))).collect()
}

/// Whether a rule lets all of it through, and perhaps more.
fn covers(rule: &Rule, wanted: &NewRule) -> bool {
    let protocol = match (&rule.protocol, &wanted.protocol) {
        (None, _) => true,
        (Some(has), Some(wants)) => number(has) == number(wants),
        (Some(_), None) => false,
    };
    let ports = match rule.ports {
        None => true,
        // Of ICMP these would be a type and a code.
        Some((first, last)) => first <= 1 && last == 65_535 && !is_icmp(rule),
    };
    let remote = match &rule.remote {
        Remote::Anyone => true,
        Remote::Range(range) => range.contains(&wanted.range),
        Remote::Others(_) => false,
    };
    rule.direction == wanted.direction && rule.family == family(&wanted.range) && protocol && ports && remote
}

fn is_icmp(rule: &Rule) -> bool {
    rule.protocol.as_deref().is_some_and(|protocol| matches!(number(protocol), "1" | "58"))
}

/// Clouds take names and numbers, and have more than one name for some.
fn number(protocol: &str) -> &str {
    match protocol {
        "icmp" => "1",
        "tcp" => "6",
        "udp" => "17",
        "ipv6-icmp" | "icmpv6" => "58",
        other => other,
    }
}

fn family(range: &IpNet) -> Family {
    match range {
        IpNet::V4(_) => Family::V4,
        IpNet::V6(_) => Family::V6,
    }
}

/// The ports of the cluster's servers that lack the group. A port of which the cloud does not tell the groups, or that
/// cannot have any, is left alone.
pub fn bare_ports<'a>(
    ports: &'a [Port],
    fleet: &'a [Member<'a>],
    group: &'a str,
) -> impl Iterator<Item = (Member<'a>, &'a Port)> {
    ports.iter().filter(|port| port.secured).filter_map(move |port| {
        let Device::Server(server) = &port.device else { return None };
        let member = fleet.iter().find(|member| member.instance.id == *server)?;
        let lacks = port.groups.as_ref().is_some_and(|groups| !groups.iter().any(|id| id == group));
        (lacks && !member.node.is_some_and(|node| node.paused)).then_some((*member, port))
    })
}
