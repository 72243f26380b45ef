//! What commands read of OVN.

use std::time::Duration;

use groundcrew_ovn::TlsFlags;
use ovsdb_client::{Database, Endpoint, Replica, Set, Snapshot, StrMap, Uuid};
use tokio::time::timeout;

use crate::cluster::{Seen, Unseen};

/// For connecting and reading.
const PATIENCE: Duration = Duration::from_secs(10);

/// How to reach OVN's databases, if at all.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "OVN options")]
#[group(id = "ovn-databases")]
pub(crate) struct OvnArgs {
    /// OVN's northbound database, as the controller has it; without it OVN is not looked at
    #[arg(long, env = "GROUNDCREW_OVN_NB", value_name = "ENDPOINTS", value_delimiter = ',')]
    pub(crate) ovn_nb: Vec<Endpoint>,

    /// OVN's southbound database: which chassis is the gateway, and which backends answer health checks
    #[arg(long, env = "GROUNDCREW_OVN_SB", value_name = "ENDPOINTS", value_delimiter = ',')]
    pub(crate) ovn_sb: Vec<Endpoint>,

    #[command(flatten)]
    pub(crate) tls: TlsFlags,
}

impl OvnArgs {
    /// A connection to the northbound database; `None` if it was not named.
    pub(crate) fn northbound<D: Database + Default>(&self) -> Option<Replica<D>> {
        (!self.ovn_nb.is_empty()).then(|| Replica::open(self.tls.config(&self.ovn_nb)))
    }

    /// The same for the southbound database.
    pub(crate) fn southbound<D: Database + Default>(&self) -> Option<Replica<D>> {
        (!self.ovn_sb.is_empty()).then(|| Replica::open(self.tls.config(&self.ovn_sb)))
    }
}

/// Everything, once it is there.
pub(crate) async fn everything<D: Database>(replica: &Replica<D>) -> Seen<Snapshot<D>> {
    match timeout(PATIENCE, replica.synced()).await {
        Ok(snapshot) => Ok(snapshot),
        Err(_) => Err(Unseen(format!("cannot see OVN: {}", replica.client().state()))),
    }
}

ovsdb_client::table! {
    /// Virtual addresses and their backends, for one protocol.
    pub(crate) struct LoadBalancer = "Load_Balancer" {
        pub(crate) name: Box<str>,
        pub(crate) vips: StrMap,
        /// Absent is tcp.
        pub(crate) protocol: Option<Box<str>>,
        pub(crate) health_check: Set<Uuid>,
        pub(crate) external_ids: StrMap,
    }
}

ovsdb_client::table! {
    /// A project's router.
    pub(crate) struct LogicalRouter = "Logical_Router" {
        pub(crate) name: Box<str>,
        pub(crate) load_balancer: Set<Uuid>,
        pub(crate) load_balancer_group: Set<Uuid> = optional,
        pub(crate) ports: Set<Uuid>,
        /// With `chassis` it is on that one as a whole, and has no gateway ports.
        pub(crate) options: StrMap,
    }
}

ovsdb_client::table! {
    /// Where a router meets a network.
    pub(crate) struct LogicalRouterPort = "Logical_Router_Port" {
        pub(crate) name: Box<str>,
        pub(crate) networks: Set<Box<str>>,
        pub(crate) gateway_chassis: Set<Uuid>,
        pub(crate) ha_chassis_group: Option<Uuid>,
    }
}

ovsdb_client::table! {
    /// A project's switch.
    pub(crate) struct LogicalSwitch = "Logical_Switch" {
        pub(crate) name: Box<str>,
        pub(crate) load_balancer: Set<Uuid>,
        pub(crate) load_balancer_group: Set<Uuid> = optional,
    }
}

ovsdb_client::table! {
    /// Load balancers that routers and switches have in common.
    pub(crate) struct LoadBalancerGroup = "Load_Balancer_Group" {
        pub(crate) name: Box<str>,
        pub(crate) load_balancer: Set<Uuid>,
    }
}

ovsdb_client::table! {
    /// A chassis that may be the gateway of a port, by its priority.
    pub(crate) struct GatewayChassis = "Gateway_Chassis" {
        pub(crate) chassis_name: Box<str>,
        pub(crate) priority: i64,
    }
}

ovsdb_client::table! {
    /// How far `ovn-northd` has come, and which it is.
    pub(crate) struct Global = "NB_Global" {
        pub(crate) nb_cfg: i64,
        pub(crate) sb_cfg: i64,
        pub(crate) options: StrMap,
    }
}

ovsdb_client::database! {
    /// The northbound database.
    pub(crate) struct Northbound = "OVN_Northbound" {
        pub(crate) load_balancers: LoadBalancer,
        pub(crate) routers: LogicalRouter,
        pub(crate) router_ports: LogicalRouterPort,
        pub(crate) switches: LogicalSwitch,
        pub(crate) groups: LoadBalancerGroup = optional,
        pub(crate) gateways: GatewayChassis,
        pub(crate) global: Global,
    }
}

ovsdb_client::table! {
    /// A hypervisor.
    pub(crate) struct Chassis = "Chassis" {
        pub(crate) name: Box<str>,
        pub(crate) hostname: Box<str>,
    }
}

ovsdb_client::table! {
    /// Where a port is; those of gateways are asked for.
    pub(crate) struct PortBinding = "Port_Binding" where r#type == "chassisredirect" {
        pub(crate) r#type: Box<str>,
        pub(crate) logical_port: Box<str>,
        pub(crate) chassis: Option<Uuid>,
    }
}

ovsdb_client::table! {
    /// A backend that is probed.
    pub(crate) struct ServiceMonitor = "Service_Monitor" {
        pub(crate) ip: Box<str>,
        pub(crate) port: i64,
        pub(crate) protocol: Option<Box<str>>,
        /// `online`, `offline`, `error`, or nothing yet.
        pub(crate) status: Option<Box<str>>,
    }
}

ovsdb_client::database! {
    /// The southbound database.
    pub(crate) struct Southbound = "OVN_Southbound" {
        pub(crate) chassis: Chassis,
        pub(crate) bindings: PortBinding,
        pub(crate) monitors: ServiceMonitor,
    }
}
