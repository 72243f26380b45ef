//! The way to a node that holds the address.

use std::net::IpAddr;

use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_api::names::{annotation, condition, label};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::super::facts::{Facts, addresses, annotation as annotated, condition as told};
use super::endpoints;
use super::remedy::remedy;
use crate::finding::Finding;
use crate::leases::Leadership;

pub(super) fn hops(facts: &Facts, service: &Service) -> Vec<Finding> {
    let addresses = addresses(service);
    let mut hops = Vec::new();
    match &facts.floating {
        Err(why) => {
            hops.push(Finding::unknown("floating IP", why.to_string(), "ask as a user who may read FloatingIPs"));
        }
        Ok(_) if addresses.is_empty() => {
            hops.extend(["floating IP", "agent", "node"].map(|name| Finding::skipped(name, "there is no address")));
        }
        Ok(all) => hops.extend(addresses.iter().flat_map(|address| of_address(facts, service, all, *address))),
    }
    hops.extend(caveat(service));
    hops.push(endpoints::ready(facts, service));
    hops.extend(local(facts, service));
    hops
}

fn of_address(facts: &Facts, service: &Service, all: &[FloatingIP], address: IpAddr) -> Vec<Finding> {
    let name = FloatingIP::name_of(address);
    let Some(floating) = all.iter().find(|each| each.metadata.name.as_deref() == Some(&*name)) else {
        let next = "look into the log of cloudsigma-ccm; it makes the object when it looks at the Service";
        return vec![Finding::bad(
            "floating IP",
            format!("there is no FloatingIP {name}: no node is told to hold it"),
            next,
        )];
    };
    let mut hops = vec![placed(floating, facts, service)];
    let Some(node) = floating.spec.holder.as_deref() else {
        hops.extend(["agent", "node"].map(|hop| Finding::skipped(hop, "no node should hold the address")));
        return hops;
    };
    hops.push(agent(facts, node));
    hops.push(node_hop(facts, node));
    hops
}

/// Whether the node that should hold it says that it does.
fn placed(floating: &FloatingIP, facts: &Facts, service: &Service) -> Finding {
    const NAME: &str = "floating IP";
    let (spec, status) = (&floating.spec, floating.status.clone().unwrap_or_default());
    let owner = spec.owner.as_deref().filter(|owner| *owner != facts.key());
    if let Some(owner) = owner.filter(|owner| !may_share(facts, service, owner)) {
        return Finding::bad(NAME, format!("{} is {owner}'s", spec.address), "give one of the two another address");
    }
    let Some(wanted) = spec.holder.as_deref() else {
        return Finding::bad(NAME, format!("{} has no node", spec.address), remedy("NoNode"));
    };
    let ready = status.conditions.iter().find(|each| each.type_ == condition::READY);
    let cannot = |ready: &Condition| {
        let found = format!("node {wanted} cannot hold {}: {} ({})", spec.address, ready.message, ready.reason);
        Finding::bad(NAME, found, remedy(&ready.reason))
    };
    // The word of one that was evicted does not count any more.
    let holder = status.holder.as_deref().filter(|holder| spec.evicted.as_deref() != Some(*holder));
    match holder {
        Some(holder) if holder == wanted && status.serial == spec.serial => match ready {
            Some(ready) if ready.status == "True" => {
                Finding::good(NAME, format!("node {wanted} holds {}", spec.address))
            }
            Some(ready) => cannot(ready),
            None => Finding::bad(
                NAME,
                format!("node {wanted} has not said that it holds {}", spec.address),
                remedy("NotConfirmed"),
            ),
        },
        Some(holder) => {
            let found = format!("{} should be on node {wanted}, and {holder} has not let go of it", spec.address);
            Finding::bad(
                NAME,
                found,
                format!("look at node {holder} and its agent; it is evicted when it stays silent"),
            )
        }
        None => {
            // A node that cannot even claim it says so; that the last one let go says nothing about this one.
            let refused = |ready: &&Condition| {
                status.serial == spec.serial && ready.status == "False" && ready.reason != "Released"
            };
            if let Some(ready) = ready.filter(refused) {
                return cannot(ready);
            }
            let found = format!("node {wanted} should hold {}, and has not taken it", spec.address);
            Finding::bad(NAME, found, format!("look into the log of the agent on node {wanted}"))
        }
    }
}

/// Whether the Service may have the address together with this one: the object names one of those who share it.
fn may_share(facts: &Facts, service: &Service, owner: &str) -> bool {
    let key = annotated(service.metadata.annotations.as_ref(), annotation::SHARING_KEY);
    key.is_some() && owner.split_once('/').is_some_and(|(namespace, _)| namespace == facts.namespace)
}

/// Whether the agent on that node lives.
fn agent(facts: &Facts, node: &str) -> Finding {
    const NAME: &str = "agent";
    let leases = match &facts.agents {
        Ok(leases) => leases,
        Err(why) => return Finding::unknown(NAME, why.to_string(), "ask as a user who may list Leases"),
    };
    let of_node = |lease: &&k8s_openapi::api::coordination::v1::Lease| {
        lease.metadata.labels.as_ref().and_then(|labels| labels.get(label::AGENT_NODE)).map(String::as_str)
            == Some(node)
    };
    let Some(lease) = leases.iter().find(of_node) else {
        let next = "look whether the DaemonSet of node-agent has a pod there";
        return Finding::bad(NAME, format!("node {node} has no agent"), next);
    };
    if let Some(why) = annotated(lease.metadata.annotations.as_ref(), annotation::UNABLE) {
        return Finding::bad(
            NAME,
            format!("the agent on {node} cannot hold any address: {why}"),
            "put that right on the node",
        );
    }
    match Leadership::of(lease, facts.now) {
        Leadership::Held { age, .. } => Finding::good(NAME, format!("on {node}, heard of {} s ago", age.as_secs())),
        Leadership::Late { age, .. } => {
            let found = format!("the agent on {node} has been silent for {} s", age.as_secs());
            Finding::bad(
                NAME,
                found,
                "look at the node and at the agent's pod; the address moves by itself if it stays silent",
            )
        }
        Leadership::Free => {
            let next = "look whether the DaemonSet of node-agent has a pod there";
            Finding::bad(NAME, format!("the agent on {node} has ended"), next)
        }
    }
}

fn node_hop(facts: &Facts, name: &str) -> Finding {
    const NAME: &str = "node";
    let nodes = match &facts.nodes {
        Ok(nodes) => nodes,
        Err(why) => return Finding::unknown(NAME, why.to_string(), "ask as a user who may read Nodes"),
    };
    let Some(node) = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name)) else {
        return Finding::bad(
            NAME,
            format!("there is no Node {name}"),
            "the address moves by itself; if not, look into the log of cloudsigma-ccm",
        );
    };
    if is_ready(node) {
        return Finding::good(NAME, format!("{name} is ready"));
    }
    Finding::bad(NAME, format!("{name} is not ready"), format!("kubectl describe node {name}"))
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// What the controller says about an address that is otherwise held.
fn caveat(service: &Service) -> Option<Finding> {
    let ready = told(service, condition::SERVICE_READY)?;
    // Told by a hop of its own.
    if addresses(service).is_empty() || matches!(&*ready.reason, "Served" | "NoEndpoints") {
        return None;
    }
    let found = format!("{} ({})", ready.message, ready.reason);
    Some(if ready.status == "True" {
        Finding::note("condition", found)
    } else {
        Finding::bad("condition", found, remedy(&ready.reason))
    })
}

/// With `externalTrafficPolicy: Local` only endpoints on the node itself are used.
fn local(facts: &Facts, service: &Service) -> Option<Finding> {
    const NAME: &str = "local endpoints";
    let policy = service.spec.as_ref().and_then(|spec| spec.external_traffic_policy.as_deref());
    let (slices, floating) = (facts.slices.as_ref().ok()?, facts.floating.as_ref().ok()?);
    let holder = floating.iter().find_map(|each| each.spec.holder.as_deref()).filter(|_| policy == Some("Local"))?;
    Some(if endpoints::nodes(slices).contains(holder) {
        Finding::good(NAME, format!("node {holder} has a ready endpoint"))
    } else {
        let next = "run an endpoint on each node, or set externalTrafficPolicy to Cluster";
        Finding::bad(NAME, format!("externalTrafficPolicy is Local, and node {holder} has no ready endpoint"), next)
    })
}
