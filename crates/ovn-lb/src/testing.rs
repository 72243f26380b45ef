//! Small values for tests.

use std::net::SocketAddr;
use std::sync::Arc;

use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::{AddressAsk, Backend, Families, Frontend, Owner, Protocol, TrafficPolicy, Wanted};
use uuid::Uuid;

use crate::desired::Site;
use crate::kube_ovn::Places;
use crate::plan::Plan;

impl Plan {
    /// Nothing to do, and nothing in the way.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.held.is_empty()
    }
}

pub(crate) fn site() -> Site {
    Site {
        cluster: "c1".into(),
        router: "{namespace}".parse().unwrap(),
        switch: "{namespace}-default".parse().unwrap(),
        group: None,
        take_over: false,
        places: Places::default(),
    }
}

/// Another name is another uid.
pub(crate) fn owner(namespace: &str, name: &str) -> Owner {
    let uid = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{namespace}/{name}").as_bytes());
    Owner { key: ServiceKey::new(namespace, name), uid }
}

pub(crate) fn frontend(protocol: Protocol, port: u16, backends: &[&str]) -> Frontend {
    let backend = |text: &&str| {
        let socket: SocketAddr = text.parse().unwrap();
        Backend { address: socket.ip(), port: socket.port(), node: None }
    };
    Frontend { protocol, port, node_port: None, backends: backends.iter().map(backend).collect() }
}

pub(crate) fn ask(owner: &Owner, families: Families) -> AddressAsk {
    AddressAsk {
        owner: owner.clone(),
        families,
        requested: vec![],
        one_is_enough: false,
        share_with: None,
        share_families: None,
        current: vec![],
        annotations: Arc::default(),
    }
}

/// Port 80 with one backend.
pub(crate) fn wanted(owner: &Owner, addresses: &[&str]) -> Wanted {
    Wanted {
        ask: ask(owner, Families::V4),
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        frontends: vec![frontend(Protocol::Tcp, 80, &["10.1.0.41:8080"])],
        traffic_policy: TrafficPolicy::Cluster,
        affinity: None,
        source_ranges: vec![],
    }
}
