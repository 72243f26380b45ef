//! What the probes of the pod network say, and which Nodes are out of reach for it.
//!
//! A hook acts on the answer, and so does whoever reads conditions, so no single probe is believed: it may be its own Node
//! that is cut off, or out of connections.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use groundcrew_api::net_probe::{LABEL, Report};
use groundcrew_core::provider::{ErrorKind, ProviderError};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};

use super::nodes::Node;

const DEADLINE: Duration = Duration::from_secs(10);
const PAGE: u32 = 250;
/// As many probes, on as many other Nodes, must say the same. With three Nodes there are no more.
const AGREE: usize = 2;

/// The reports of this namespace that still count.
pub(crate) async fn reports(client: &Client, namespace: &str, now: Timestamp) -> Result<Vec<Report>, ProviderError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let all = async {
        let mut params = ListParams::default().labels(LABEL).limit(PAGE);
        let mut reports = Vec::new();
        loop {
            let page = leases.list(&params).await?;
            reports.extend(page.items.into_iter().filter_map(|lease| Report::from_lease(lease, now)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(reports),
            }
        }
    };
    match tokio::time::timeout(DEADLINE, all).await {
        Ok(listed) => listed.map_err(|error: kube::Error| ProviderError::from_kube("list the probes' Leases", &error)),
        Err(_) => Err(ProviderError::new(ErrorKind::Unavailable, "list the probes' Leases: no answer")),
    }
}

/// Whether nobody speaks, and there are Nodes enough to speak of each other. Silence is no good news.
#[must_use]
pub fn is_silent(reports: &[Report], nodes: &[Node]) -> bool {
    let ready: BTreeSet<_> = ready(nodes).collect();
    ready.len() > 1 && !reports.iter().any(|report| ready.contains(report.node.as_str()))
}

fn ready(nodes: &[Node]) -> impl Iterator<Item = &str> {
    nodes.iter().filter(|node| node.unready_since.is_none()).map(|node| node.name.as_str())
}

/// What the probes say together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// The Nodes whose pods enough others do not reach.
    pub unreachable: BTreeSet<String>,
    /// What some say and too few agree on, in words that stay the same while nothing changes.
    pub doubts: Vec<String>,
}

/// A Node is out of reach if `AGREE` probes or more do not reach it, and fewer do. Only probes on ready Nodes are heard, and
/// of them only those that reach at least as many of the others as not: whoever reaches few says more about its own Node than
/// about all the others. Nobody is heard about itself, or about a Node that is not ready anyway.
#[must_use]
pub fn hear(reports: &[Report], nodes: &[Node]) -> Heard {
    let ready: BTreeSet<_> = ready(nodes).collect();
    let (mut voices, mut unheard): (BTreeMap<&str, Voices>, BTreeSet<&str>) = (BTreeMap::new(), BTreeSet::new());
    // A Node has one voice, whatever Leases there are.
    let reports: BTreeMap<_, _> = reports.iter().map(|report| (report.node.as_str(), report)).collect();
    for (own, report) in reports.into_iter().filter(|(own, _)| ready.contains(own)) {
        let others = |names: &BTreeSet<String>| {
            let known = names.iter().filter_map(|name| ready.get(name.as_str()).copied());
            known.filter(|name| *name != own).collect::<Vec<_>>()
        };
        let (reached, not) = (others(&report.reached), others(&report.unreached));
        if not.len() > reached.len() {
            unheard.insert(own);
            continue;
        }
        for node in reached {
            voices.entry(node).or_default().reach += 1;
        }
        for node in not {
            voices.entry(node).or_default().miss += 1;
        }
    }
    let missed = voices.into_iter().filter(|(_, voices)| voices.miss > voices.reach);
    let (agreed, alone): (Vec<_>, Vec<_>) = missed.partition(|(_, voices)| voices.miss >= AGREE);
    let mut doubts = Vec::new();
    if !alone.is_empty() {
        let nodes = join(alone.iter().map(|(node, _)| *node));
        doubts.push(format!("one probe alone does not reach the pods of {nodes}; {AGREE} have to agree"));
    }
    if !unheard.is_empty() {
        let nodes = join(unheard.into_iter());
        doubts.push(format!("probes that reach fewer others than not are not heard: those on {nodes}"));
    }
    Heard { unreachable: agreed.into_iter().map(|(node, _)| node.to_owned()).collect(), doubts }
}

/// How many probes reach a Node, and how many do not.
#[derive(Debug, Clone, Copy, Default)]
struct Voices {
    reach: usize,
    miss: usize,
}

fn join<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
