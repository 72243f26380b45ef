//! The packet filter that keeps a node from answering for an address that it does not hold.
//!
//! kube-proxy and Cilium serve every load balancer address on every node, so a client with an old ARP entry would go on
//! talking to a node that has lost the address; IPVS even answers ARP for it. So what arrives for a floating address
//! through an uplink is dropped, unless the address is in a set whose elements run out with the node's authority.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::leader::Moment;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::authority::Authority;
use crate::platform::{Platform, PlatformError};

/// Name of our tables.
const TABLE: &str = "groundcrew_node";
/// A change of the filter that took longer is made again: its elements would last that much too long.
const LATE: Duration = Duration::from_millis(400);

/// What the filter should know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rules {
    /// All floating addresses of the cluster.
    floating: BTreeSet<IpAddr>,
    /// Those that this node holds.
    held: BTreeSet<IpAddr>,
    /// Interfaces that floating addresses are on. Pods reach the addresses through others.
    uplinks: BTreeSet<String>,
    /// The term in which the held ones were permitted.
    term: u64,
}

pub(crate) struct Guard<P> {
    platform: Arc<P>,
    authority: watch::Receiver<Authority>,
    rules: Mutex<Rules>,
}

impl<P: Platform> Guard<P> {
    pub(crate) fn new(platform: Arc<P>, authority: watch::Receiver<Authority>) -> Self {
        Self { platform, authority, rules: Mutex::new(Rules::default()) }
    }

    /// These are the floating addresses of the cluster, and the interfaces through which they are reached from outside.
    pub(crate) async fn watch_over(
        &self,
        floating: BTreeSet<IpAddr>,
        uplinks: BTreeSet<String>,
    ) -> Result<(), PlatformError> {
        self.change(|rules| {
            rules.floating = floating;
            // One that an address was on stays: `spec.mac` may name an interface without a default route.
            rules.uplinks.extend(uplinks);
        })
        .await
    }

    /// The address may be answered for, on this interface, in this term.
    pub(crate) async fn permit(&self, address: IpAddr, uplink: &str, term: u64) -> Result<(), PlatformError> {
        self.change(|rules| {
            if rules.term != term {
                rules.held.clear();
                rules.term = term;
            }
            rules.floating.insert(address);
            rules.held.insert(address);
            rules.uplinks.insert(uplink.to_owned());
        })
        .await
    }

    /// No more.
    pub(crate) async fn revoke(&self, address: IpAddr) -> Result<(), PlatformError> {
        self.change(|rules| {
            rules.held.remove(&address);
        })
        .await
    }

    /// Renews the elements whenever the authority is renewed.
    pub(crate) async fn follow(&self, stop: CancellationToken) {
        let mut authority = self.authority.clone();
        while let Some(Ok(())) = stop.run_until_cancelled(authority.changed()).await {
            let rules = self.rules.lock().await;
            if !rules.held.is_empty()
                && let Err(error) = self.write(&rules).await
            {
                warn!(%error, "the filter was not renewed; it drops what arrives for our addresses when it runs out");
            }
        }
        stop.cancelled().await;
    }

    /// Takes everything away: nothing is held, and nobody is left to keep the filter true.
    pub(crate) async fn remove(&self) -> Result<(), PlatformError> {
        *self.rules.lock().await = Rules::default();
        self.platform.filter(removal()).await
    }

    async fn change(&self, change: impl FnOnce(&mut Rules)) -> Result<(), PlatformError> {
        let mut rules = self.rules.lock().await;
        let mut changed = rules.clone();
        change(&mut changed);
        if changed == *rules {
            return Ok(());
        }
        self.write(&changed).await?;
        *rules = changed;
        Ok(())
    }

    async fn write(&self, rules: &Rules) -> Result<(), PlatformError> {
        let mut late = Ok(());
        for _ in 0..2 {
            let authority = *self.authority.borrow();
            let now = self.platform.now();
            let deadline = authority.deadline(now).filter(|_| authority.term == rules.term);
            let written = self.platform.filter(script(rules, deadline, now)).await;
            if deadline.is_none() || now.until(self.platform.now()) < LATE {
                return written;
            }
            // A program that was given up on may have told the kernel all the same.
            late = written;
            if late.is_err() {
                break;
            }
        }
        // The kernel counts from when it is told: told so late, it would count too long. The next renewal permits again.
        self.platform.filter(script(rules, None, self.platform.now())).await.and(late)
    }
}

fn removal() -> String {
    // Made before it is deleted, so that one which is not there is no error.
    ["inet", "arp"].map(|family| format!("table {family} {TABLE}\ndelete table {family} {TABLE}\n")).concat()
}

/// Both tables whole, replaced in one transaction.
fn script(rules: &Rules, deadline: Option<Moment>, now: Moment) -> String {
    let left = deadline.map(|deadline| now.until(deadline).as_millis()).filter(|left| *left > 0);
    let uplinks: Vec<_> = rules.uplinks.iter().map(|name| format!("\"{name}\"")).collect();
    let mut script = removal();
    let _ = writeln!(script, "table inet {TABLE} {{");
    for kind in [Kind::V4, Kind::V6, Kind::Solicited] {
        script += &kind.sets(rules, left);
    }
    script += "  chain guard {\n    type filter hook prerouting priority raw; policy accept;\n";
    if !uplinks.is_empty() {
        let from = format!("iifname {{ {} }}", uplinks.join(", "));
        for kind in [Kind::V4, Kind::V6, Kind::Solicited] {
            let _ = writeln!(script, "    {from} {}", kind.rule());
        }
    }
    script += "  }\n}\n";

    let _ = writeln!(script, "table arp {TABLE} {{");
    script += &Kind::V4.sets(rules, left);
    for (chain, hook, field) in [("asked", "input", "arp daddr ip"), ("said", "output", "arp saddr ip")] {
        let _ = writeln!(script, "  chain {chain} {{\n    type filter hook {hook} priority filter; policy accept;");
        let _ = writeln!(script, "    {field} @floating {field} != @held drop\n  }}");
    }
    script += "}\n";
    script
}

/// What is looked at in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    V4,
    V6,
    /// The address that a neighbour solicitation asks for. Written as bytes, as nft has a name for it only since 1.0.7.
    Solicited,
}

impl Kind {
    /// The set of all addresses and the set of those that are held, which runs out.
    fn sets(self, rules: &Rules, left: Option<u128>) -> String {
        let (suffix, datatype) = match self {
            Self::V4 => ("", "type ipv4_addr"),
            Self::V6 => ("6", "type ipv6_addr"),
            Self::Solicited => ("_nd", "typeof @th,64,128"),
        };
        let set = |name: &str, flags: &str, addresses: &BTreeSet<IpAddr>, timeout: String| {
            let elements: Vec<_> = addresses.iter().filter_map(|ip| self.element(*ip)).collect();
            let elements: Vec<_> = elements.iter().map(|element| format!("{element}{timeout}")).collect();
            let elements = match &elements[..] {
                [] => String::new(),
                some => format!(" elements = {{ {} }};", some.join(", ")),
            };
            format!("  set {name}{suffix} {{ {datatype};{flags}{elements} }}\n")
        };
        let nothing = BTreeSet::new();
        let held = if left.is_some() { &rules.held } else { &nothing };
        let timeout = format!(" timeout {}ms", left.unwrap_or_default());
        set("floating", "", &rules.floating, String::new()) + &set("held", " flags timeout;", held, timeout)
    }

    fn element(self, address: IpAddr) -> Option<String> {
        match (self, address) {
            (Self::V4, IpAddr::V4(ip)) => Some(ip.to_string()),
            (Self::V6, IpAddr::V6(ip)) => Some(ip.to_string()),
            (Self::Solicited, IpAddr::V6(ip)) => Some(format!("{:#034x}", ip.to_bits())),
            _ => None,
        }
    }

    fn rule(self) -> &'static str {
        match self {
            Self::V4 => "ip daddr @floating ip daddr != @held drop",
            Self::V6 => "ip6 daddr @floating6 ip6 daddr != @held6 drop",
            Self::Solicited => "icmpv6 type nd-neighbor-solicit @th,64,128 @floating_nd @th,64,128 != @held_nd drop",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let ip = |last| IpAddr::from([192, 0, 2, last]);
        Rules {
            floating: BTreeSet::from([ip(7), ip(8), "2001:db8::7".parse().unwrap()]),
            held: BTreeSet::from([ip(7), "2001:db8::7".parse().unwrap()]),
            uplinks: BTreeSet::from(["ens3".into()]),
            term: 1,
        }
    }

    #[test]
    fn what_is_held_runs_out_and_what_is_not_is_dropped_from_the_start() {
        let now = Moment::now();
        let script = script(&rules(), Some(now + Duration::from_millis(6_900)), now);
        assert!(script.contains("set floating { type ipv4_addr; elements = { 192.0.2.7, 192.0.2.8 }; }"), "{script}");
        assert!(
            script.contains("set held { type ipv4_addr; flags timeout; elements = { 192.0.2.7 timeout 6900ms }; }")
        );
        assert!(script.contains("elements = { 2001:db8::7 timeout 6900ms }"), "{script}");
        assert!(script.contains("elements = { 0x20010db8000000000000000000000007 timeout 6900ms }"), "{script}");
        assert!(script.contains("iifname { \"ens3\" } ip daddr @floating ip daddr != @held drop"), "{script}");
    }

    /// A node on which telling the kernel takes time. What was told is remembered.
    struct Slow {
        now: std::sync::Mutex<Moment>,
        takes: Duration,
        told: std::sync::Mutex<Vec<String>>,
    }

    impl Platform for Slow {
        fn now(&self) -> Moment {
            *self.now.lock().unwrap()
        }
        fn network(&self) -> Result<crate::network::Network, PlatformError> {
            Ok(crate::network::Network::default())
        }
        fn ours(&self) -> Result<Vec<(IpAddr, u32)>, PlatformError> {
            Ok(Vec::new())
        }
        fn show(&self, _: IpAddr, _: u32, _: u32, _: bool) -> Result<(), PlatformError> {
            Ok(())
        }
        fn hide(&self, _: IpAddr, _: u32) -> Result<(), PlatformError> {
            Ok(())
        }
        fn send(&self, _: u32, _: &[u8]) -> Result<(), PlatformError> {
            Ok(())
        }
        async fn probe(
            &self,
            _: IpAddr,
            _: u32,
            _: crate::frames::Mac,
            _: Duration,
        ) -> Result<Option<crate::frames::Mac>, PlatformError> {
            Ok(None)
        }
        async fn filter(&self, script: String) -> Result<(), PlatformError> {
            self.told.lock().unwrap().push(script);
            let mut now = self.now.lock().unwrap();
            *now = *now + self.takes;
            Ok(())
        }
        async fn forget_udp(&self, _: IpAddr, _: Option<std::net::SocketAddr>) -> Result<(), PlatformError> {
            Ok(())
        }
    }

    /// The last that the kernel heard when an address was permitted, telling which took so long.
    async fn last_told(takes: Duration) -> String {
        let now = Moment::now();
        let platform = Arc::new(Slow { now: now.into(), takes, told: Vec::new().into() });
        let mut authority = Authority::default();
        authority.renewed(now + Duration::from_secs(7), now);
        let guard = Guard::new(platform.clone(), watch::channel(authority).1);
        guard.permit(IpAddr::from([192, 0, 2, 7]), "ens3", authority.term).await.unwrap();
        let told = platform.told.lock().unwrap();
        told.last().unwrap().clone()
    }

    #[tokio::test]
    async fn a_filter_that_was_told_too_late_permits_nothing_until_it_is_told_in_time() {
        assert!(last_told(Duration::from_millis(20)).await.contains("192.0.2.7 timeout 7000ms"));
        let late = last_told(LATE * 2).await;
        assert!(!late.contains(" timeout 7") && !late.contains(" timeout 6"), "{late}");
    }

    #[test]
    fn without_authority_nothing_is_held() {
        let now = Moment::now();
        for deadline in [None, Some(now)] {
            assert!(!script(&rules(), deadline, now + Duration::from_secs(1)).contains(" timeout "));
        }
    }
}
