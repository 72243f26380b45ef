//! The ports of logical switches by their addresses. A cluster has one for each pod, so they are read only once a Service asks
//! for something that needs them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use groundcrew_core::provider::Look;
use ovsdb_client::{Changed, Config, Replica, Row, RowId, Rows, Set, Snapshot, Uuid};
use tokio::sync::{Notify, broadcast};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::view::View;
use crate::waiting::{Obstacle, Waiting};

/// For the first read.
const PATIENCE: Duration = Duration::from_secs(10);

ovsdb_client::table! {
    /// Where a pod or a virtual machine is plugged in.
    pub(crate) struct SwitchPort = "Logical_Switch_Port" {
        pub(crate) name: Arc<str>,
        /// Each a hardware address and the addresses behind it, or a word such as `dynamic`.
        pub(crate) addresses: Set<Box<str>>,
        /// What OVN itself assigned.
        pub(crate) dynamic_addresses: Option<Box<str>>,
    }
    indexes SwitchPortsBy {
        address: IpAddr = |row| row.ips(),
    }
}

ovsdb_client::table! {
    pub(crate) struct Switch = "Logical_Switch" {
        pub(crate) name: Arc<str>,
        pub(crate) ports: Set<Uuid>,
    }
    indexes SwitchesBy {
        name: Arc<str> = |row| Some(row.name.clone()),
    }
}

ovsdb_client::database! {
    /// Another part of the northbound database, on a connection of its own.
    pub(crate) struct SwitchPorts = "OVN_Northbound" {
        pub(crate) ports: SwitchPort,
        pub(crate) switches: Switch,
    }
}

impl SwitchPort {
    fn ips(&self) -> Vec<IpAddr> {
        let texts = self.addresses.iter().chain(&self.dynamic_addresses);
        texts.flat_map(|text| text.split_whitespace()).filter_map(|word| word.parse().ok()).collect()
    }
}

impl SwitchPorts {
    /// The name of the port of this switch that has the address. The same address may be another tenant's, too.
    pub(crate) fn name(&self, switch: &str, address: IpAddr) -> Option<&Arc<str>> {
        let (_, switch) = self.switches.find(|by| &by.name, switch).next()?;
        let mut ports = self.ports.find(|by| &by.address, address);
        ports.find(|(uuid, _)| switch.ports.contains(uuid)).map(|(_, port)| &port.name)
    }
}

/// The ports, once somebody has asked for them.
pub(crate) struct Ports {
    config: Config,
    view: OnceLock<View<SwitchPorts>>,
    opened: Notify,
}

impl Ports {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, view: OnceLock::new(), opened: Notify::new() }
    }

    fn view(&self) -> &View<SwitchPorts> {
        self.view.get_or_init(|| {
            self.opened.notify_one();
            View { replica: Replica::open(self.config.clone()) }
        })
    }

    /// What was seen last: a lost connection must not keep a load balancer from being repaired.
    pub(crate) fn last(&self) -> Result<Snapshot<SwitchPorts>, Error> {
        let replica = &self.view().replica;
        let seen = replica.snapshot();
        if seen.generation() == 0 {
            return Err(Error::OutOfSight { why: replica.client().state().to_string() });
        }
        Ok(seen)
    }

    /// Returns when they were read once, or could not be.
    pub(crate) async fn read(&self) {
        let replica = &self.view().replica;
        if replica.snapshot().generation() == 0 {
            let _ = timeout(PATIENCE, replica.synced()).await;
        }
    }

    /// Wakes whoever waits for a port, until `stop`.
    pub(crate) async fn follow(
        self: Arc<Self>,
        waiting: Waiting,
        looks: broadcast::Sender<Look>,
        stop: CancellationToken,
    ) {
        let following = async {
            self.opened.notified().await;
            let mut changes = self.view().replica.changes();
            loop {
                for look in concerned(&changes.next().await, &waiting) {
                    let _ = looks.send(look);
                }
            }
        };
        let _: Option<()> = stop.run_until_cancelled(following).await;
    }
}

fn concerned(changed: &Changed<SwitchPorts>, waiting: &Waiting) -> Vec<Look> {
    let Rows::Some(rows) = &changed.rows else { return vec![Look::Everywhere] };
    let ports = rows.iter().filter(|RowId { table, .. }| **table == *SwitchPort::TABLE);
    let addresses: BTreeSet<_> = ports
        .flat_map(|RowId { uuid, .. }| [&changed.before, &changed.after].map(|state| state.ports.get(*uuid)))
        .flatten()
        .flat_map(|port| port.ips())
        .collect();
    let services: BTreeSet<_> =
        addresses.into_iter().flat_map(|address| waiting.take(&Obstacle::Port(address))).collect();
    services.into_iter().map(Look::At).collect()
}

#[cfg(test)]
mod tests {
    use ovsdb_client::Touched;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_port_is_found_by_any_of_its_addresses_on_its_own_switch_only() {
        let id = Uuid::from_u128;
        let port = |name: &str, addresses: &[&str], dynamic: Option<&str>| {
            json!({ "initial": { "name": name, "addresses": ["set", addresses],
                "dynamic_addresses": dynamic.map_or(json!(["set", []]), |text| json!(text)) } })
        };
        let switch = |name: &str, ports: &[u128]| {
            let ports: Vec<_> = ports.iter().map(|port| json!(["uuid", id(*port)])).collect();
            json!({ "initial": { "name": name, "ports": ["set", ports] } })
        };
        let tables = json!({
            "Logical_Switch_Port": {
                id(1).to_string(): port("web", &["0a:00:00:00:00:01 10.1.0.41 fd00::41"], None),
                id(2).to_string(): port("dyn", &["dynamic"], Some("0a:00:00:00:00:02 10.1.0.42")),
                id(3).to_string(): port("theirs", &["0a:00:00:00:00:03 10.1.0.41"], None),
                id(4).to_string(): port("router", &["router"], None),
            },
            "Logical_Switch": {
                id(5).to_string(): switch("shop", &[1, 2, 4]), id(6).to_string(): switch("other", &[3]),
            },
        });
        let mut ports = SwitchPorts::default();
        ovsdb_client::apply(&tables.to_string(), &mut ports, &mut Touched::default()).unwrap();
        let name = |switch, address: &str| ports.name(switch, address.parse().unwrap()).map(|name| &**name);
        assert_eq!((name("shop", "10.1.0.41"), name("other", "10.1.0.41")), (Some("web"), Some("theirs")));
        assert_eq!((name("shop", "fd00::41"), name("shop", "10.1.0.42")), (Some("web"), Some("dyn")));
        assert_eq!((name("other", "10.1.0.42"), name("none", "10.1.0.41")), (None, None));
    }
}
