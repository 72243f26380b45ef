//! The cloud's firewall: a server sends from its own hardware address, and uses its own address and, on a NIC in manual
//! mode, those that the account subscribes to.

use std::fmt::Write;

use anyhow::Result;

use super::World;

impl World {
    /// Has the switch let through what the account says now.
    pub async fn refresh_firewall(&self) -> Result<()> {
        let account = self.cloud.snapshot();
        let subscribed = account.subscriptions.values().filter(|paid| paid["status"] == "active");
        let subscribed: Vec<_> = subscribed.filter_map(|paid| paid["subscribed_object"].as_str()).collect();
        let mut rules =
            String::from("table bridge cloud {\n  chain firewall {\n    type filter hook forward priority 0\n");
        for (node, machine) in self.nodes.iter().zip(&self.wire.nodes) {
            let own = machine.address().to_string();
            let mut allowed = vec![own.as_str()];
            if account.servers.get(node.server()).is_some_and(|it| it["nics"][0]["ip_v4_conf"]["conf"] == "manual") {
                allowed.extend(&subscribed);
            }
            let (name, mac, allowed) = (machine.name(), machine.mac(), allowed.join(", "));
            writeln!(rules, "    iifname {name} ether saddr != {mac} drop")?;
            writeln!(rules, "    iifname {name} ip saddr != {{ {allowed} }} drop")?;
            // A probe has no sender.
            writeln!(rules, "    iifname {name} arp saddr ip != {{ 0.0.0.0, {allowed} }} drop")?;
            writeln!(rules, "    oifname {name} ip daddr != {{ {allowed} }} drop")?;
        }
        self.wire.filter(&(rules + "  }\n}\n")).await
    }
}
