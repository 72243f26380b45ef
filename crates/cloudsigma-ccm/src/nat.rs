//! What nodes do by themselves with what arrives, in clusters without a service proxy. Pure.

use groundcrew_api::floating_ip::{self, NatBackend, NatPort};
use groundcrew_core::provider::{Backend, Protocol, TrafficPolicy, Wanted};

/// A port takes no more backends. A Service that has more is served by the first of them.
const MOST_BACKENDS: usize = 1_024;

/// The ports of a Service, with their backends of one family.
pub(crate) fn ports(want: &Wanted, v4: bool) -> Vec<NatPort> {
    let ports = want.frontends.iter().map(|frontend| NatPort {
        protocol: match frontend.protocol {
            Protocol::Tcp => floating_ip::Protocol::Tcp,
            Protocol::Udp => floating_ip::Protocol::Udp,
            Protocol::Sctp => floating_ip::Protocol::Sctp,
        },
        port: frontend.port,
        external_traffic_policy: match want.traffic_policy {
            TrafficPolicy::Cluster => floating_ip::TrafficPolicy::Cluster,
            TrafficPolicy::Local => floating_ip::TrafficPolicy::Local,
        },
        affinity_seconds: want.affinity.map(|affinity| affinity.seconds),
        source_ranges: want.source_ranges.iter().map(ToString::to_string).collect(),
        backends: backends(&frontend.backends, v4),
    });
    ports.collect()
}

/// In an order of their own: another one is no change.
fn backends(all: &[Backend], v4: bool) -> Vec<NatBackend> {
    let family = all.iter().filter(|backend| backend.address.is_ipv4() == v4);
    let mut backends: Vec<_> = family
        .map(|backend| NatBackend {
            address: backend.address.to_string(),
            port: backend.port,
            node: backend.node.as_deref().map(str::to_owned),
        })
        .collect();
    backends.sort_unstable();
    backends.dedup();
    backends.truncate(MOST_BACKENDS);
    backends
}
