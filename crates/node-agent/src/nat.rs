//! Balancing in the packet filter, for clusters without a service proxy: one table with all ports of the held addresses,
//! replaced whole in one transaction, so that a connection never meets half of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use groundcrew_api::floating_ip::{NatPort, Protocol, TrafficPolicy};
use ipnet::IpNet;
use tokio::sync::Mutex;
use tracing::warn;

use crate::platform::{Platform, PlatformError};

const TABLE: &str = "groundcrew_nat";
/// The same on every node, so that a client keeps its backend when the address moves.
const SEED: u32 = 0x6763_7277;
/// The flows of more backends than these are forgotten together with all others of the address.
const ONE_BY_ONE: usize = 8;

type Ports = BTreeMap<IpAddr, Vec<NatPort>>;

pub(crate) struct Nat<P> {
    platform: Arc<P>,
    node: String,
    ports: Mutex<Ports>,
}

impl<P: Platform> Nat<P> {
    pub(crate) fn new(platform: Arc<P>, node: String) -> Self {
        Self { platform, node, ports: Mutex::default() }
    }

    /// Balances these ports of an address; none: leaves it to others.
    pub(crate) async fn serve(&self, address: IpAddr, wanted: &[NatPort]) -> Result<(), PlatformError> {
        let mut ports = self.ports.lock().await;
        if ports.get(&address).map_or(&[][..], Vec::as_slice) == wanted {
            return Ok(());
        }
        let mut changed = ports.clone();
        changed.remove(&address);
        if !wanted.is_empty() {
            changed.insert(address, wanted.to_vec());
        }
        self.platform.filter(script(&changed, &self.node)).await?;
        let gone = departed(address, ports.get(&address).map_or(&[], Vec::as_slice), wanted, &self.node);
        *ports = changed;
        drop(ports);
        // The rules are for the first packet of a flow, and what is sent keeps a flow alive.
        let few = !wanted.is_empty() && gone.len() <= ONE_BY_ONE;
        let gone: BTreeSet<_> = gone.into_iter().map(|backend| few.then_some(backend)).collect();
        for backend in gone {
            if let Err(error) = self.platform.forget_udp(address, backend).await {
                warn!(%error, ?backend, "old UDP flows may go to a backend that is gone");
            }
        }
        Ok(())
    }

    /// Takes the table away.
    pub(crate) async fn remove(&self) -> Result<(), PlatformError> {
        let mut ports = self.ports.lock().await;
        self.platform.filter(script(&Ports::new(), &self.node)).await?;
        ports.clear();
        Ok(())
    }
}

fn script(ports: &Ports, node: &str) -> String {
    let mut script = format!("table inet {TABLE}\ndelete table inet {TABLE}\n");
    if ports.is_empty() {
        return script;
    }
    let (mut translate, mut refuse, mut masquerade) = (String::new(), String::new(), String::new());
    for (address, ports) in ports {
        for port in ports {
            let one = Port { address: *address, port };
            let backends = one.backends(node);
            let mut arriving = one.matches();
            if let Some(ranges) = one.ranges() {
                // What is translated is not for the node itself any more: only what others send is dropped there.
                let _ = writeln!(refuse, "    {arriving}{} drop", one.clients("!= ", &ranges));
                if ranges.is_empty() {
                    continue;
                }
                arriving += &one.clients("", &ranges);
            }
            if backends.is_empty() {
                let _ = writeln!(refuse, "    {arriving} {}", one.refusal());
                continue;
            }
            let _ = writeln!(translate, "    {arriving} {}", one.translation(&backends));
            let _ = match port.external_traffic_policy {
                TrafficPolicy::Cluster => writeln!(masquerade, "    {} masquerade", one.matches_translated()),
                TrafficPolicy::Local => {
                    writeln!(masquerade, "    {} {} masquerade", one.matches_translated(), one.to_itself(&backends))
                }
            };
        }
    }
    // Before kube-proxy's chains, which have the usual priorities.
    for (chain, head, rules) in [
        ("arriving", "type nat hook prerouting priority dstnat - 10", &translate),
        ("own", "type nat hook output priority -110", &translate),
        ("refused", "type filter hook input priority filter - 10", &refuse),
        ("leaving", "type nat hook postrouting priority srcnat - 10", &masquerade),
    ] {
        let body = format!("  chain {chain} {{\n    {head}; policy accept;\n{rules}  }}\n");
        let _ = write!(script, "table inet {TABLE} {{\n{body}}}\n");
    }
    script
}

/// Backends of UDP ports that are not used any more.
fn departed(address: IpAddr, before: &[NatPort], after: &[NatPort], node: &str) -> BTreeSet<SocketAddr> {
    let used = |ports: &[NatPort]| -> BTreeSet<(u16, SocketAddr)> {
        let ports = ports.iter().filter(|port| port.protocol == Protocol::Udp);
        let backends =
            ports.flat_map(|port| Port { address, port }.backends(node).into_iter().map(|to| (port.port, to)));
        backends.map(|(port, to)| (port, to.into())).collect()
    };
    used(before).difference(&used(after)).map(|(_, backend)| *backend).collect()
}

struct Port<'a> {
    address: IpAddr,
    port: &'a NatPort,
}

impl Port<'_> {
    fn family(&self) -> &'static str {
        if self.address.is_ipv4() { "ip" } else { "ip6" }
    }

    fn protocol(&self) -> &'static str {
        match self.port.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        }
    }

    /// Ready backends of the address's family that the policy allows, always in the same order.
    fn backends(&self, node: &str) -> Vec<(IpAddr, u16)> {
        let local = self.port.external_traffic_policy == TrafficPolicy::Local;
        let allowed = self.port.backends.iter().filter(|backend| !local || backend.node.as_deref() == Some(node));
        let mut backends: Vec<_> =
            allowed.filter_map(|backend| Some((backend.address.parse::<IpAddr>().ok()?, backend.port))).collect();
        backends.retain(|(address, _)| address.is_ipv4() == self.address.is_ipv4());
        backends.sort_unstable();
        backends.dedup();
        backends
    }

    /// The networks of the address's family whose clients may connect; `None`: everybody may.
    fn ranges(&self) -> Option<Vec<IpNet>> {
        let ranges = self.port.source_ranges.iter().filter_map(|range| range.parse::<IpNet>().ok());
        let mut ranges: Vec<_> = ranges.filter(|range| range.addr().is_ipv4() == self.address.is_ipv4()).collect();
        // nft refuses ranges that overlap.
        ranges = IpNet::aggregate(&ranges);
        (!self.port.source_ranges.is_empty()).then_some(ranges)
    }

    /// Matches clients in these networks, or with `!= ` all others; without a network all clients are others.
    fn clients(&self, not: &str, ranges: &[IpNet]) -> String {
        if ranges.is_empty() {
            return String::new();
        }
        let ranges: Vec<_> = ranges.iter().map(IpNet::to_string).collect();
        format!(" {} saddr {not}{{ {} }}", self.family(), ranges.join(", "))
    }

    fn matches(&self) -> String {
        format!("{} daddr {} {} dport {}", self.family(), self.address, self.protocol(), self.port.port)
    }

    fn matches_translated(&self) -> String {
        let (family, address, protocol, port) = (self.family(), self.address, self.protocol(), self.port.port);
        format!(
            "meta l4proto {protocol} ct status dnat ct original {family} daddr {address} ct original proto-dst {port}"
        )
    }

    /// Matches backends that were sent to themselves: they would not believe a packet from their own address.
    fn to_itself(&self, backends: &[(IpAddr, u16)]) -> String {
        let family = self.family();
        let addresses: BTreeSet<_> = backends.iter().map(|(address, _)| format!("{address} . {address}")).collect();
        let addresses: Vec<_> = addresses.into_iter().collect();
        format!("{family} saddr . {family} daddr {{ {} }}", addresses.join(", "))
    }

    fn translation(&self, backends: &[(IpAddr, u16)]) -> String {
        let family = self.family();
        let count = backends.len();
        let choice = match self.port.affinity_seconds {
            // By the client's address, without a memory: it lasts longer than asked for, and also across nodes.
            Some(_) => format!("jhash {family} saddr mod {count} seed {SEED:#x}"),
            None => format!("numgen random mod {count}"),
        };
        let places =
            backends.iter().enumerate().map(|(index, (address, port))| format!("{index} : {address} . {port}"));
        format!("dnat {family} to {choice} map {{ {} }}", places.collect::<Vec<_>>().join(", "))
    }

    fn refusal(&self) -> &'static str {
        match self.port.protocol {
            Protocol::Tcp => "reject with tcp reset",
            Protocol::Udp | Protocol::Sctp => "reject",
        }
    }
}

#[cfg(test)]
mod tests {
    use groundcrew_api::floating_ip::NatBackend;

    use super::*;

    fn port(protocol: Protocol, backends: &[(&str, u16, &str)]) -> NatPort {
        let backend = |(address, port, node): &(&str, u16, &str)| NatBackend {
            address: (*address).into(),
            port: *port,
            node: Some((*node).into()),
        };
        NatPort {
            protocol,
            port: 80,
            external_traffic_policy: TrafficPolicy::Cluster,
            affinity_seconds: None,
            source_ranges: Vec::new(),
            backends: backends.iter().map(backend).collect(),
        }
    }

    fn of(ports: Vec<NatPort>) -> String {
        script(&Ports::from([(IpAddr::from([192, 0, 2, 7]), ports)]), "a")
    }

    #[test]
    fn every_backend_gets_its_own_port_whatever_the_order_they_are_listed_in() {
        let one = of(vec![port(Protocol::Tcp, &[("10.0.0.2", 8080, "a"), ("10.0.0.1", 9090, "b")])]);
        assert!(one.contains(
            "ip daddr 192.0.2.7 tcp dport 80 dnat ip to numgen random mod 2 map { 0 : 10.0.0.1 . 9090, 1 : 10.0.0.2 . 8080 }"
        ));
        assert_eq!(one, of(vec![port(Protocol::Tcp, &[("10.0.0.1", 9090, "b"), ("10.0.0.2", 8080, "a")])]));
        assert!(one.contains("ct original ip daddr 192.0.2.7 ct original proto-dst 80 masquerade"), "{one}");
    }

    #[test]
    fn the_local_policy_keeps_the_client_and_uses_only_this_node() {
        let mut local = port(Protocol::Udp, &[("10.0.0.1", 53, "a"), ("10.0.0.2", 53, "b")]);
        local.external_traffic_policy = TrafficPolicy::Local;
        let script = of(vec![local.clone()]);
        assert!(script.contains("mod 1 map { 0 : 10.0.0.1 . 53 }"), "{script}");
        let masquerades: Vec<_> = script.lines().filter(|line| line.contains("masquerade")).collect();
        assert_eq!(masquerades.len(), 1, "{script}");
        assert!(
            masquerades[0].ends_with("ip saddr . ip daddr { 10.0.0.1 . 10.0.0.1 } masquerade"),
            "only who calls itself"
        );
        local.backends.remove(0);
        assert!(of(vec![local]).contains("udp dport 80 reject\n"));
    }

    #[test]
    fn a_port_without_backends_is_refused_and_nothing_at_all_is_no_table() {
        assert!(of(vec![port(Protocol::Tcp, &[])]).contains("tcp dport 80 reject with tcp reset"));
        assert!(script(&Ports::new(), "a").ends_with("delete table inet groundcrew_nat\n"));
    }

    #[test]
    fn clients_outside_the_source_ranges_are_dropped_and_the_others_translated() {
        let mut closed = port(Protocol::Tcp, &[("10.0.0.1", 8080, "a")]);
        closed.source_ranges = ["198.51.100.0/25", "198.51.100.0/24", "2001:db8::/32"].map(str::to_owned).into();
        let script = of(vec![closed.clone()]);
        assert!(script.contains("tcp dport 80 ip saddr { 198.51.100.0/24 } dnat ip to"), "{script}");
        assert!(script.contains("tcp dport 80 ip saddr != { 198.51.100.0/24 } drop"), "{script}");
        closed.source_ranges = vec!["2001:db8::/32".to_owned()];
        let nobody = of(vec![closed]);
        assert!(!nobody.contains("dnat ip to"), "{nobody}");
        assert!(nobody.contains("tcp dport 80 drop"), "{nobody}");
    }

    #[test]
    fn a_client_with_affinity_is_chosen_for_by_its_address() {
        let mut sticky = port(Protocol::Sctp, &[("10.0.0.1", 1, "a")]);
        sticky.affinity_seconds = Some(10_800);
        assert!(of(vec![sticky]).contains("jhash ip saddr mod 1 seed 0x67637277 map"));
    }
    #[test]
    fn who_is_forgotten_is_a_udp_backend_that_no_port_uses_any_more() {
        let address = IpAddr::from([192, 0, 2, 7]);
        let both = [("10.0.0.1", 53, "a"), ("10.0.0.2", 53, "b")];
        let gone = |before: NatPort, after: Option<NatPort>| departed(address, &[before], after.as_slice(), "a");
        let to = |text: &str| BTreeSet::from([text.parse().unwrap()]);
        let udp = |backends| port(Protocol::Udp, backends);
        assert_eq!(gone(udp(&both), Some(udp(&both[1..]))), to("10.0.0.1:53"));
        assert_eq!(gone(udp(&both[1..]), Some(udp(&both))), BTreeSet::new(), "one that comes takes nothing away");
        assert_eq!(gone(udp(&both[..1]), None), to("10.0.0.1:53"), "the port is gone");
        let tcp = |backends| port(Protocol::Tcp, backends);
        assert_eq!(gone(tcp(&both), Some(tcp(&[]))), BTreeSet::new(), "who talks over TCP is told by its end");
        let local = NatPort { external_traffic_policy: TrafficPolicy::Local, ..udp(&both) };
        assert_eq!(gone(udp(&both), Some(local)), to("10.0.0.2:53"), "on another node");
    }
}
