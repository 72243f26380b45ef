//! Who gets a port of a shared address.
//!
//! Services of one namespace with the same sharing key share one address, and so do those that name the same one. Those
//! that have published it come first, then the older ones; each gets in if its ports are free of those before it. The
//! rule depends on the objects alone, so that every process and every restart comes to the same answer.

use super::object::{Port, Service};
use crate::provider::Owner;

/// A Service's place in its group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// It shares with nobody before it: its address is the group's.
    First,
    /// It takes the address of this one.
    With(Owner),
    /// Somebody before it has one of its ports.
    Refused {
        /// The contested port.
        port: &'a Port,
        /// Who has it.
        holder: Owner,
    },
}

pub(crate) fn place<'a>(service: &'a Service, group: &[impl AsRef<Service>]) -> Place<'a> {
    let mut members: Vec<&Service> =
        group.iter().map(AsRef::as_ref).filter(|m| m.load_balancer && !m.deleting).collect();
    members.sort_by_key(|m| (m.ingress.is_empty(), m.created, m.key()));

    let mut accepted: Vec<&Service> = Vec::new();
    for member in members {
        let contested = member.ports.iter().find_map(|port| {
            let holder = accepted.iter().find(|other| other.ports.iter().any(|p| same(p, port)))?;
            Some((port, holder.owner.clone()))
        });
        if member.owner == service.owner {
            return match (contested, accepted.first()) {
                (Some((contested, holder)), _) => {
                    // The same port, borrowed from `service` rather than from the group's copy of it.
                    match service.ports.iter().find(|port| same(port, contested)) {
                        Some(port) => Place::Refused { port, holder },
                        None => Place::First,
                    }
                }
                (None, Some(first)) => Place::With(first.owner.clone()),
                (None, None) => Place::First,
            };
        }
        if contested.is_none() {
            accepted.push(member);
        }
    }
    Place::First
}

fn same(a: &Port, b: &Port) -> bool {
    (a.protocol, a.port) == (b.protocol, b.port)
}
