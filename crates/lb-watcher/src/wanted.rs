//! What kube-dc's manager should have made of one Service. Pure.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use groundcrew_core::provider::Protocol;
use groundcrew_ovn::Template;

use crate::cluster::{Service, Slice};
use crate::names::{PROTOCOLS, row_name};
use crate::northbound::{Northbound, PlaceKind};

/// Where a namespace's load balancers hang.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) router: Template,
    pub(crate) switch: Template,
}

impl Site {
    /// Whether OVN has something that load balancers of this namespace hang on.
    pub(crate) fn is_project(&self, nb: &Northbound, namespace: &str) -> bool {
        !nb.places(PlaceKind::Router, &self.router.of(namespace)).is_empty()
            || !nb.places(PlaceKind::Switch, &self.switch.of(namespace)).is_empty()
    }
}

/// Everything that should be in OVN for one Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) router: String,
    pub(crate) switch: String,
    /// One for each protocol of its ports.
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    pub(crate) vips: Vec<Vip>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Vip {
    /// `192.0.2.7:80`
    pub(crate) key: String,
    /// As the row has them, sorted as text.
    pub(crate) backends: BTreeSet<String>,
}

/// `slices` are those of this Service.
pub(crate) fn wanted(service: &Service, slices: &[&Slice], site: &Site) -> Wanted {
    let namespace = &service.key.namespace;
    let rows = PROTOCOLS.into_iter().filter_map(|protocol| {
        let ports = || service.ports.iter().filter(move |port| port.protocol == protocol);
        let vips: Vec<_> = service
            .ingress
            .iter()
            .flat_map(|address| {
                ports().map(|port| Vip {
                    key: SocketAddr::new(*address, port.port).to_string(),
                    backends: backends(*address, &port.name, protocol, slices),
                })
            })
            .collect();
        (!vips.is_empty()).then(|| Row { name: row_name(&service.key, protocol), protocol, vips })
    });
    Wanted { router: site.router.of(namespace), switch: site.switch.of(namespace), rows: rows.collect() }
}

fn backends(vip: IpAddr, port: &str, protocol: Protocol, slices: &[&Slice]) -> BTreeSet<String> {
    let ready = slices.iter().flat_map(|slice| {
        let numbers = slice.ports.iter().filter(|(name, p, _)| **name == *port && *p == protocol);
        numbers.flat_map(|(_, _, number)| slice.ready.iter().map(|address| SocketAddr::new(*address, *number)))
    });
    ready.filter(|backend| backend.is_ipv4() == vip.is_ipv4()).map(|backend| backend.to_string()).collect()
}

impl Wanted {
    /// What each row is to be attached to.
    pub(crate) fn places(&self) -> [(PlaceKind, &str); 2] {
        [(PlaceKind::Router, &self.router), (PlaceKind::Switch, &self.switch)]
    }

    /// Rows, addresses and places in short: what changes only when the Service does.
    pub(crate) fn shape(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.router, &self.switch).hash(&mut hasher);
        for row in &self.rows {
            row.name.hash(&mut hasher);
            row.vips.iter().for_each(|vip| vip.key.hash(&mut hasher));
        }
        hasher.finish()
    }

    /// Which addresses have no backend, in short.
    pub(crate) fn empty(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let vips = self.rows.iter().flat_map(|row| &row.vips);
        vips.for_each(|vip| vip.backends.is_empty().hash(&mut hasher));
        hasher.finish()
    }

    /// The backends in short: what changes with every pod.
    pub(crate) fn backends(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.rows.iter().for_each(|row| row.vips.hash(&mut hasher));
        hasher.finish()
    }
}
