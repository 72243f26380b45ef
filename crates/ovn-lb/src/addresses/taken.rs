//! Addresses that something else in OVN has. They are not given out, whatever a pool says.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ovsdb_client::Row;
use tokio_util::sync::CancellationToken;

use super::Addresses;
use crate::northbound::{LogicalRouterPort, Nat, Northbound};
use crate::view::View;

/// By what each is taken.
pub(crate) type Taken = BTreeMap<IpAddr, &'static str>;

pub(crate) fn taken(nb: &Northbound) -> Taken {
    let networks = nb.router_ports.iter().flat_map(|(_, port)| port.networks.iter());
    let ports = networks.filter_map(|network| network.split('/').next()?.parse().ok());
    let nats = nb.nats.iter().filter_map(|(_, nat)| nat.external_ip.parse().ok());
    nats.map(|address| (address, "a NAT rule in OVN")).chain(ports.map(|address| (address, "a router port"))).collect()
}

/// Keeps the book informed until `stop`.
pub(crate) async fn avoid(addresses: Arc<Addresses>, view: View, stop: CancellationToken) {
    let mut changes = view.replica.changes_in(&[LogicalRouterPort::TABLE, Nat::TABLE]);
    while let Some(changed) = stop.run_until_cancelled(changes.next()).await {
        addresses.avoid(taken(&changed.after));
    }
}

impl Addresses {
    pub(crate) fn avoid(&self, taken: Taken) {
        let mut state = self.lock();
        if state.book.avoid(taken) {
            self.wake_waiting(&mut state);
            self.stirred.notify_one();
        }
    }
}
