//! The cloud's firewall: a server sends from its own hardware address, and uses its own address and, on a NIC in manual
//! mode, those that the account subscribes to.

use std::fmt::Write;
use std::net::IpAddr;

use anyhow::Result;

use super::World;

impl World {
    /// Has the switch let through what the account says now.
    pub async fn refresh_firewall(&self) -> Result<()> {
        let account = self.cloud.snapshot();
        let subscribed = account.subscriptions.values().filter(|paid| paid["status"] == "active");
        let subscribed: Vec<IpAddr> =
            subscribed.filter_map(|paid| paid["subscribed_object"].as_str()?.parse().ok()).collect();
        let mut rules =
            String::from("table bridge cloud {\n  chain firewall {\n    type filter hook forward priority 0\n");
        for (node, machine) in self.nodes.iter().zip(&self.wire.nodes) {
            let mut allowed: Vec<IpAddr> = vec![machine.address().into(), machine.address_v6().into()];
            if account.servers.get(node.server()).is_some_and(|it| it["nics"][0]["ip_v4_conf"]["conf"] == "manual") {
                allowed.extend(&subscribed);
            }
            let of = |v6: bool| {
                let family = allowed.iter().filter(|address| address.is_ipv6() == v6);
                family.map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
            };
            let (name, mac, [allowed, allowed_v6]) = (machine.name(), machine.mac(), [false, true].map(of));
            writeln!(rules, "    iifname {name} ether saddr != {mac} drop")?;
            writeln!(rules, "    iifname {name} ip saddr != {{ {allowed} }} drop")?;
            // A probe has no sender.
            writeln!(rules, "    iifname {name} arp saddr ip != {{ 0.0.0.0, {allowed} }} drop")?;
            writeln!(rules, "    oifname {name} ip daddr != {{ {allowed} }} drop")?;
            writeln!(rules, "    iifname {name} ip6 saddr != {{ ::, fe80::/10, {allowed_v6} }} drop")?;
            writeln!(rules, "    oifname {name} ip6 daddr != {{ ff00::/8, fe80::/10, {allowed_v6} }} drop")?;
        }
        self.wire.filter(&(rules + "  }\n}\n")).await
    }
}
