//! Who shares an address with whom, and who gets a port of it.
//!
//! Services of one namespace with the same sharing key share one address, and so do those that name the same one. Who does
//! not say so any more stays on the address and keeps its ports; nobody comes to it by that one. Those
//! that have published it come first, then the older ones; each gets in if its ports are free of those before it, and of one
//! that is paused on its way out. One that
//! is served and whose ports change so that somebody before it has one of them goes on without that one: two load balancers
//! on one port would leave it to chance who answers. Those without an address that can get none as they are, and those of another
//! address family, are in nobody's way. The rule depends on the objects alone, so that every process and every
//! restart comes to the same answer.

use super::desired::odd_request;
use super::names::READY;
use super::object::{Group, Port, Service};
use crate::provider::{ErrorKind, Owner, ProviderError};

/// A Service's place in its group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// It shares with nobody before it: its address is the group's.
    First,
    /// It takes the address of this one.
    With(Owner),
    /// Others before it have some of its ports.
    Refused {
        /// The contested ones.
        ports: Vec<&'a Port>,
        /// Who has the first of them.
        holder: Owner,
    },
}

pub(crate) fn place<'a>(service: &'a Service, group: &[impl AsRef<Service>]) -> Place<'a> {
    let mut members: Vec<&Service> =
        group.iter().map(AsRef::as_ref).filter(|m| m.load_balancer && !m.deleting).collect();
    members.retain(|m| m.owner == service.owner || !gets_nothing(m));
    members.sort_by_key(|m| (m.ingress.is_empty(), m.created, m.key()));

    let mut first: Option<&Service> = None;
    let lingering = group.iter().map(AsRef::as_ref).filter(|m| m.owner != service.owner && lingers(m));
    let mut taken: Vec<(&Port, &Service)> = lingering.flat_map(|m| m.ports.iter().map(move |port| (port, m))).collect();
    for member in members {
        let holder = |port: &Port| {
            let is_held = |(other, by): &&(&Port, &Service)| same(other, port) && by.families.meet(member.families);
            taken.iter().find(is_held).map(|(_, holder)| *holder)
        };
        if member.owner == service.owner {
            // The same ports, borrowed from `service` rather than from the group's copy of it.
            let ports: Vec<_> = service.ports.iter().filter(|port| holder(port).is_some()).collect();
            let refused_by = ports.first().and_then(|port| holder(port));
            return match (refused_by, first) {
                (Some(holder), _) => Place::Refused { ports, holder: holder.owner.clone() },
                (None, Some(first)) => Place::With(first.owner.clone()),
                (None, None) => Place::First,
            };
        }
        let (contested, free): (Vec<_>, Vec<_>) = member.ports.iter().partition(|port| holder(port).is_some());
        if contested.is_empty() || !member.ingress.is_empty() {
            let may_be_joined = |member: &&Service| {
                member.group.is_some() && member.group == service.group && member.families.meet(service.families)
            };
            first = first.or(Some(member).filter(may_be_joined));
            taken.extend(free.into_iter().map(|port| (port, member)));
        }
    }
    Place::First
}

/// Whether a member is to go and cannot, because it is paused: what it has outside stays, and so do its ports.
fn lingers(member: &Service) -> bool {
    member.paused && member.finalizer && !member.ingress.is_empty() && (member.deleting || !member.load_balancer)
}

/// Whether a member gets no address until somebody changes it.
fn gets_nothing(member: &Service) -> bool {
    member.ingress.is_empty() && (member.paused || odd_request(member).is_some())
}

/// What one is told that has to wait for the address of another, which is refused one and was told why. Who names the
/// address is told about that.
pub(crate) fn wait(service: &Service, partner: &Service) -> Option<ProviderError> {
    if !service.ingress.is_empty() || !partner.ingress.is_empty() || !matches!(service.group, Some(Group::Key(_))) {
        return None;
    }
    let told = partner.conditions.iter().find(|c| &*c.kind == READY && &*c.status == "False")?;
    let message = format!("Service {}, whose address is shared, has none yet: {}", partner.owner, told.message);
    Some(ProviderError::new(ErrorKind::Quota, message).with_reason("WaitsForShared"))
}

/// What the loser of a port is told.
pub(crate) fn conflict(service: &Service, group: &[impl AsRef<Service>]) -> Option<ProviderError> {
    let Place::Refused { ports, holder } = place(service, group) else { return None };
    let port = ports.first()?;
    let message = format!("port {}/{} of the shared address is taken by {holder}", port.port, port.protocol);
    Some(ProviderError::new(ErrorKind::Invalid, message).with_reason("PortConflict"))
}

fn same(a: &Port, b: &Port) -> bool {
    (a.protocol, a.port) == (b.protocol, b.port)
}
