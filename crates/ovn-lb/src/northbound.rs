//! What we read of OVN's northbound database. Only columns that every version of OVN since 21.03 has.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use ovsdb_client::{Set, StrMap, Uuid};

use crate::marks;

ovsdb_client::table! {
    /// Virtual addresses and their backends, for one protocol.
    pub(crate) struct LoadBalancer = "Load_Balancer" {
        pub(crate) name: Arc<str>,
        pub(crate) vips: StrMap,
        /// Absent is tcp.
        pub(crate) protocol: Option<Box<str>>,
        pub(crate) options: StrMap,
        /// What a backend is chosen by; empty is by connection.
        pub(crate) selection_fields: Set<Box<str>>,
        pub(crate) health_check: Set<Uuid>,
        /// From a backend's address to the port that it is probed on and the address that the probe comes from.
        pub(crate) ip_port_mappings: StrMap,
        pub(crate) external_ids: StrMap,
    }
    indexes LoadBalancersBy {
        name: Arc<str> = |row| Some(row.name.clone()),
        uid: Uuid = |row| marks::uid(&row.external_ids),
        health_check: Uuid = |row| row.health_check.to_vec(),
    }
}

ovsdb_client::table! {
    /// How the backends of one virtual address are probed. It lives as long as a load balancer refers to it.
    pub(crate) struct HealthCheck = "Load_Balancer_Health_Check" {
        pub(crate) vip: Box<str>,
        pub(crate) options: StrMap,
    }
}

ovsdb_client::table! {
    /// A project's router. The set is everybody's: members are added and taken one by one, never written whole.
    pub(crate) struct LogicalRouter = "Logical_Router" {
        pub(crate) name: Arc<str>,
        pub(crate) load_balancer: Set<Uuid>,
        pub(crate) load_balancer_group: Set<Uuid> = optional,
        pub(crate) ports: Set<Uuid>,
        /// With `chassis` it is on that one as a whole, and has no gateway ports.
        pub(crate) options: StrMap,
    }
    indexes LogicalRoutersBy {
        name: Arc<str> = |row| Some(row.name.clone()),
        group: Uuid = |row| row.load_balancer_group.to_vec(),
        port: Uuid = |row| row.ports.iter().copied().collect::<Vec<_>>(),
    }
}

ovsdb_client::table! {
    /// Where a router meets a network: inside the project, or outside through a gateway chassis.
    pub(crate) struct LogicalRouterPort = "Logical_Router_Port" {
        pub(crate) name: Arc<str>,
        /// The router's own addresses with their prefix lengths, as in `10.1.0.1/16`.
        pub(crate) networks: Set<Box<str>>,
        pub(crate) gateway_chassis: Set<Uuid>,
        pub(crate) ha_chassis_group: Option<Uuid>,
        /// The port of another router that it is connected to without a switch between.
        pub(crate) peer: Option<Box<str>>,
    }
    indexes LogicalRouterPortsBy {
        name: Arc<str> = |row| Some(row.name.clone()),
    }
}

ovsdb_client::table! {
    /// A project's switch; the same holds for its set.
    pub(crate) struct LogicalSwitch = "Logical_Switch" {
        pub(crate) name: Arc<str>,
        pub(crate) load_balancer: Set<Uuid>,
        pub(crate) load_balancer_group: Set<Uuid> = optional,
    }
    indexes LogicalSwitchesBy {
        name: Arc<str> = |row| Some(row.name.clone()),
    }
}

ovsdb_client::table! {
    /// Load balancers that routers and switches have in common, since OVN 21.12. It has no column for a mark: whoever
    /// made it is its owner, and we are not.
    pub(crate) struct LoadBalancerGroup = "Load_Balancer_Group" {
        pub(crate) name: Arc<str>,
        pub(crate) load_balancer: Set<Uuid>,
    }
    indexes LoadBalancerGroupsBy {
        name: Arc<str> = |row| Some(row.name.clone()),
    }
}

ovsdb_client::table! {
    /// An address that a router translates to or from.
    pub(crate) struct Nat = "NAT" {
        pub(crate) external_ip: Box<str>,
    }
}

ovsdb_client::table! {
    /// Where a switch meets a router. Every pod has a row in this table; those are not asked for.
    pub(crate) struct SwitchRouterPort = "Logical_Switch_Port" where r#type == "router" {
        pub(crate) r#type: Box<str>,
        /// `router-port` is the name of the router's side.
        pub(crate) options: StrMap,
    }
    indexes SwitchRouterPortsBy {
        router_port: Arc<str> = |row| row.router_port().map(Arc::from),
    }
}

ovsdb_client::table! {
    /// Rules, and the ports whose switches they hold on. Others have many, with all their pods; ours are asked for.
    pub(crate) struct PortGroup = "Port_Group" where external_ids["groundcrew-kind"] == "source-ranges" {
        pub(crate) name: Arc<str>,
        pub(crate) ports: Set<Uuid>,
        pub(crate) acls: Set<Uuid>,
        pub(crate) external_ids: StrMap,
    }
    indexes PortGroupsBy {
        uid: Uuid = |row| marks::uid(&row.external_ids),
        acl: Uuid = |row| row.acls.to_vec(),
    }
}

ovsdb_client::table! {
    /// A rule; likewise.
    pub(crate) struct Acl = "ACL" where external_ids["groundcrew-kind"] == "source-ranges" {
        pub(crate) priority: i64,
        pub(crate) direction: Box<str>,
        pub(crate) r#match: Box<str>,
        pub(crate) action: Box<str>,
        /// Rules of a higher tier come later.
        pub(crate) tier: i64 = optional,
        /// With `apply-after-lb` a rule sees the backend instead of the VIP.
        pub(crate) options: StrMap = optional,
        pub(crate) external_ids: StrMap,
    }
}

ovsdb_client::table! {
    /// The one row in which the epoch of the leader is kept, and how far `ovn-northd` has come.
    pub(crate) struct Global = "NB_Global" {
        pub(crate) external_ids: StrMap,
        pub(crate) options: StrMap,
        /// Moved on by writers that want to know when their write was taken.
        pub(crate) nb_cfg: i64,
        /// The last `nb_cfg` that northd has translated into the southbound database.
        pub(crate) sb_cfg: i64,
    }
}

ovsdb_client::database! {
    /// The northbound database, as far as it concerns us.
    pub(crate) struct Northbound = "OVN_Northbound" {
        pub(crate) load_balancers: LoadBalancer,
        pub(crate) health_checks: HealthCheck,
        pub(crate) routers: LogicalRouter,
        pub(crate) router_ports: LogicalRouterPort,
        pub(crate) nats: Nat,
        pub(crate) switches: LogicalSwitch,
        pub(crate) groups: LoadBalancerGroup = optional,
        pub(crate) switch_router_ports: SwitchRouterPort,
        pub(crate) port_groups: PortGroup,
        pub(crate) acls: Acl,
        pub(crate) global: Global,
    }
}

/// What a load balancer is attached to. The router serves clients outside, the switch those inside; both are needed, or a
/// group that is on both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A `Logical_Router`.
    Router,
    /// A `Logical_Switch`.
    Switch,
    /// A `Load_Balancer_Group`.
    Group,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Router, Self::Switch, Self::Group];

    pub(crate) fn table(self) -> &'static str {
        match self {
            Self::Router => "Logical_Router",
            Self::Switch => "Logical_Switch",
            Self::Group => "Load_Balancer_Group",
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Switch => "switch",
            Self::Group => "load balancer group",
        }
    }
}

/// One router, switch or group as it was seen. A write that attaches to it names both: the uuid alone may have been given a
/// new name, and the name alone may have been given to a new row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) uuid: Uuid,
    pub(crate) name: Arc<str>,
}

impl LogicalRouter {
    /// Whether it is on one chassis as a whole.
    pub(crate) fn is_bound(&self) -> bool {
        self.options.get("chassis").is_some()
    }
}

impl LogicalRouterPort {
    /// Whether it leads out of the project.
    pub(crate) fn is_external(&self) -> bool {
        !self.gateway_chassis.is_empty() || self.ha_chassis_group.is_some()
    }

    /// Its addresses with their networks; what cannot be read is left out.
    pub(crate) fn networks(&self) -> impl Iterator<Item = IpNet> {
        self.networks.iter().filter_map(|network| network.parse().ok())
    }
}

impl SwitchRouterPort {
    /// The router's side of it.
    pub(crate) fn router_port(&self) -> Option<&str> {
        // A server that cannot filter sends the other types as well.
        if *self.r#type == *"router" { self.options.get("router-port") } else { None }
    }
}

impl Northbound {
    /// The ports of a router of this name; of several none is meant.
    fn ports_of(&self, router: &str) -> impl Iterator<Item = &Arc<LogicalRouterPort>> {
        let mut routers = self.routers.find(|by| &by.name, router);
        let only = routers.next().filter(|_| routers.next().is_none());
        only.into_iter().flat_map(|(_, router)| router.ports.iter().filter_map(|port| self.router_ports.get(*port)))
    }

    /// The ports by which switches lead to this router.
    pub(crate) fn ports_to(&self, router: &str) -> BTreeSet<Uuid> {
        let peers =
            |port: &Arc<LogicalRouterPort>| self.switch_router_ports.find(|by| &by.router_port, port.name.clone());
        self.ports_of(router).flat_map(|port| peers(port).map(|(uuid, _)| uuid).collect::<Vec<_>>()).collect()
    }

    /// A port by which packets come to this router that no switch has seen.
    pub(crate) fn unswitched_port(&self, router: &str) -> Option<&str> {
        self.ports_of(router).find(|port| port.peer.is_some()).map(|port| &*port.name)
    }

    /// The networks inside a project, each with the router's address in it. Of several routers with one name none is
    /// meant.
    pub(crate) fn inside(&self, router: &str) -> BTreeSet<IpNet> {
        let mut routers = self.routers.find(|by| &by.name, router);
        let (Some((_, router)), None) = (routers.next(), routers.next()) else { return BTreeSet::new() };
        let ports = router.ports.iter().filter_map(|port| self.router_ports.get(*port));
        ports.filter(|port| !port.is_external()).flat_map(|port| port.networks().collect::<Vec<_>>()).collect()
    }

    /// Whether a router of this name is on one chassis as a whole.
    pub(crate) fn is_bound(&self, router: &str) -> bool {
        self.routers.find(|by| &by.name, router).any(|(_, router)| router.is_bound())
    }

    /// The release of OVN whose northd runs, as in `(23, 3)`; unknown until one has run.
    pub(crate) fn northd_release(&self) -> Option<(u32, u32)> {
        let (_, global) = self.global.iter().next()?;
        let mut parts = global.options.get("northd_internal_version")?.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    /// The routers, switches or groups of this name with their members; names are not unique in OVN.
    pub(crate) fn places(&self, kind: Kind, name: &str) -> Vec<(Place, &Set<Uuid>)> {
        let place = |uuid, name: &Arc<str>| Place { kind, uuid, name: name.clone() };
        match kind {
            Kind::Router => {
                let found = self.routers.find(|by| &by.name, name);
                found.map(|(uuid, row)| (place(uuid, &row.name), &row.load_balancer)).collect()
            }
            Kind::Switch => {
                let found = self.switches.find(|by| &by.name, name);
                found.map(|(uuid, row)| (place(uuid, &row.name), &row.load_balancer)).collect()
            }
            Kind::Group => {
                let found = self.groups.find(|by| &by.name, name);
                found.map(|(uuid, row)| (place(uuid, &row.name), &row.load_balancer)).collect()
            }
        }
    }

    /// Name and members of a router, switch or group.
    pub(crate) fn place(&self, kind: Kind, uuid: Uuid) -> Option<(&Arc<str>, &Set<Uuid>)> {
        match kind {
            Kind::Router => self.routers.get(uuid).map(|row| (&row.name, &row.load_balancer)),
            Kind::Switch => self.switches.get(uuid).map(|row| (&row.name, &row.load_balancer)),
            Kind::Group => self.groups.get(uuid).map(|row| (&row.name, &row.load_balancer)),
        }
    }

    /// The groups that a router or switch has.
    pub(crate) fn groups_on(&self, kind: Kind, uuid: Uuid) -> Option<&Set<Uuid>> {
        match kind {
            Kind::Router => self.routers.get(uuid).map(|row| &row.load_balancer_group),
            Kind::Switch => self.switches.get(uuid).map(|row| &row.load_balancer_group),
            Kind::Group => None,
        }
    }
}
