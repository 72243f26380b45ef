//! Rows that kube-dc made: `{namespace}-{service}-tcp` or `-udp`, without any mark.
//!
//! The name alone proves nothing: `a-b/c` and `a/b-c` have the same. A row is this Service's if its addresses are exactly
//! those that the Service has published.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use groundcrew_core::provider::{Owner, Protocol};
use ovsdb_client::{StrMap, Uuid};

use super::{Held, Plan, step};
use crate::desired::{Clients, Desired, PROTOCOLS, Row, Site};
use crate::error::Error;
use crate::marks;
use crate::northbound::{LoadBalancer, Northbound};

/// What kube-dc left under the name that it had for a Service.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Legacy {
    Nothing,
    /// A row with this Service's addresses.
    Ours(Uuid, Arc<LoadBalancer>),
    /// A row with none of this Service's addresses.
    Anothers(Uuid, String),
    /// A row with some of them, or several rows.
    Unclear(Uuid, String),
}

/// Looks for the row that kube-dc would have made instead of this one.
pub(crate) fn legacy(row: &Row, owner: &Owner, nb: &Northbound) -> Legacy {
    // It made one for all clients.
    if row.clients == Clients::Inside { Legacy::Nothing } else { find(row.protocol, &addresses(&row.vips), owner, nb) }
}

fn find(protocol: Protocol, ours: &BTreeSet<IpAddr>, owner: &Owner, nb: &Northbound) -> Legacy {
    // It made none for SCTP; and where there are no addresses to compare, only the name would be left.
    if protocol == Protocol::Sctp || ours.is_empty() {
        return Legacy::Nothing;
    }
    let name = name(owner, protocol);
    let mut found = unmarked(&name, nb);
    let Some((uuid, seen)) = found.pop() else { return Legacy::Nothing };
    let theirs = addresses(&seen.vips);
    match (found.is_empty(), ours & &theirs) {
        (true, _) if *ours == theirs && step::protocol(&seen) == protocol.to_string() => Legacy::Ours(uuid, seen),
        (true, common) if common.is_empty() => Legacy::Anothers(uuid, name),
        _ => Legacy::Unclear(uuid, name),
    }
}

/// Whether there is any row under a name that it had for the Service.
pub(super) fn is_left(owner: &Owner, nb: &Northbound) -> bool {
    [Protocol::Tcp, Protocol::Udp].into_iter().any(|protocol| !unmarked(&name(owner, protocol), nb).is_empty())
}

fn name(owner: &Owner, protocol: Protocol) -> String {
    format!("{}-{}-{protocol}", owner.key.namespace, owner.key.name)
}

fn unmarked(name: &str, nb: &Northbound) -> Vec<(Uuid, Arc<LoadBalancer>)> {
    let namesakes = nb.load_balancers.find(|by| &by.name, name);
    let unmarked = namesakes.filter(|(_, seen)| seen.external_ids.get(marks::CLUSTER).is_none());
    unmarked.map(|(uuid, seen)| (uuid, seen.clone())).collect()
}

/// The addresses of virtual addresses, whatever their ports.
fn addresses(vips: &StrMap) -> BTreeSet<IpAddr> {
    let address = |vip: &str| vip.parse().or_else(|_| vip.parse::<SocketAddr>().map(|socket| socket.ip())).ok();
    vips.iter().filter_map(|(vip, _)| address(vip)).collect()
}

/// Takes away all that kube-dc made for a Service that goes, which had these addresses. What may be its own is not left
/// behind on an address that is somebody else's soon.
pub(crate) fn discard(
    owner: &Owner,
    had: &[IpAddr],
    is_anothers: impl Fn(IpAddr) -> bool,
    nb: &Northbound,
) -> Result<Vec<step::Step>, Error> {
    let mut steps = Vec::new();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let name = name(owner, protocol);
        let found = unmarked(&name, nb);
        let is_alone = found.len() == 1;
        for (uuid, seen) in found {
            let theirs = addresses(&seen.vips);
            let shares = theirs.iter().any(|address| had.contains(address));
            let is_whole = theirs.iter().all(|address| had.contains(address));
            match shares {
                true if is_alone && is_whole && step::protocol(&seen) == protocol.to_string() => {
                    steps.push(step::Step::Discard { uuid, seen });
                }
                true => return Err(Error::TakeOverUnclear { name, uuid }),
                false if had.is_empty() && !theirs.iter().all(|address| is_anothers(*address)) => {
                    return Err(Error::LeftUnclear { name, uuid });
                }
                false => {}
            }
        }
    }
    Ok(steps)
}

fn discard_of(protocols: &[Protocol], ours: &BTreeSet<IpAddr>, owner: &Owner, nb: &Northbound) -> Vec<step::Step> {
    let found = protocols.iter().map(|protocol| find(*protocol, ours, owner, nb));
    let step =
        |legacy| if let Legacy::Ours(uuid, seen) = legacy { Some(step::Step::Discard { uuid, seen }) } else { None };
    found.filter_map(step).collect()
}

impl Plan {
    /// The row to go on with under its old uuid: traffic does not notice.
    pub(super) fn adopt(
        &self,
        row: &Row,
        desired: &Desired,
        site: &Site,
        nb: &Northbound,
    ) -> Option<(Uuid, Arc<LoadBalancer>)> {
        let Legacy::Ours(uuid, seen) = site.take_over.then(|| legacy(row, &desired.owner, nb))? else { return None };
        let is_new = |step: &step::Step| !matches!(step, step::Step::Update { uuid: taken, .. } if *taken == uuid);
        self.steps.iter().all(is_new).then_some((uuid, seen))
    }

    /// Takes the rows away that kube-dc made for protocols which the Service does not have any more. Nobody else would: they
    /// have no mark.
    pub(super) fn discard(&mut self, desired: &Desired, site: &Site, nb: &Northbound) {
        let Some(first) = desired.rows.first().filter(|_| site.take_over) else { return };
        let ours = addresses(&first.vips);
        let is_unused = |protocol: &Protocol| desired.rows.iter().all(|row| row.protocol != *protocol);
        let unused: Vec<_> = PROTOCOLS.into_iter().filter(is_unused).collect();
        self.steps.extend(discard_of(&unused, &ours, &desired.owner, nb));
    }

    /// A second row for addresses that another one has would leave it to chance which of them answers.
    pub(super) fn is_unclear(&mut self, row: &Row, desired: &Desired, site: &Site, nb: &Northbound) -> bool {
        let Some(Legacy::Unclear(uuid, name)) = site.take_over.then(|| legacy(row, &desired.owner, nb)) else {
            return false;
        };
        self.held.push(Held::Unclear { name, uuid });
        true
    }
}
