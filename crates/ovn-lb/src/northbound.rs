//! What we read of OVN's northbound database. Only columns that every version of OVN since 21.03 has.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use ovsdb_client::{BlockSet, Set, StrMap, Uuid};

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
        pub(crate) load_balancer: BlockSet<Uuid>,
        pub(crate) load_balancer_group: Set<Uuid> = optional,
        pub(crate) ports: Set<Uuid>,
        pub(crate) static_routes: Set<Uuid>,
        pub(crate) policies: Set<Uuid>,
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
    /// Where a router sends packets by their destination, or with the policy `src-ip` by their source.
    pub(crate) struct StaticRoute = "Logical_Router_Static_Route" {
        pub(crate) policy: Option<Box<str>>,
        pub(crate) ip_prefix: Box<str>,
        pub(crate) nexthop: Box<str>,
    }
}

ovsdb_client::table! {
    /// Where a router sends what matches, whatever its routes say.
    pub(crate) struct RouterPolicy = "Logical_Router_Policy" {
        pub(crate) r#match: Box<str>,
        pub(crate) action: Box<str>,
        pub(crate) nexthop: Option<Box<str>>,
        pub(crate) nexthops: Set<Box<str>> = optional,
    }
}

ovsdb_client::table! {
    /// A project's switch; the same holds for its set.
    pub(crate) struct LogicalSwitch = "Logical_Switch" {
        pub(crate) name: Arc<str>,
        pub(crate) load_balancer: BlockSet<Uuid>,
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
        pub(crate) load_balancer: BlockSet<Uuid>,
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
        pub(crate) static_routes: StaticRoute,
        pub(crate) router_policies: RouterPolicy,
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

impl StaticRoute {
    fn is_by_source(&self) -> bool {
        self.policy.as_deref() == Some("src-ip")
    }

    fn is_default(&self) -> bool {
        !self.is_by_source() && matches!(&*self.ip_prefix, "0.0.0.0/0" | "::/0")
    }
}

impl RouterPolicy {
    /// The next hops of what comes from there. Only addresses and networks are read of the match, and nothing where it
    /// denies them.
    fn hops_from(&self, source: IpAddr) -> impl Iterator<Item = IpAddr> {
        let words =
            self.r#match.split(|c: char| c.is_whitespace() || "{},()=".contains(c)).filter(|word| !word.is_empty());
        let named: Vec<_> = words
            .skip_while(|word| !matches!(*word, "ip4.src" | "ip6.src"))
            .take_while(|word| !matches!(*word, "ip4.dst" | "ip6.dst"))
            .collect();
        let denies = named.get(1) == Some(&"!");
        let is_it =
            |word: &&str| word.parse() == Ok(source) || word.parse::<IpNet>().is_ok_and(|net| net.contains(&source));
        let applies = &*self.action == "reroute" && !denies && named.iter().any(is_it);
        let hops = self.nexthop.iter().chain(&self.nexthops).filter(move |_| applies);
        hops.filter_map(|hop| hop.parse().ok())
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
        self.only(router).into_iter().flat_map(|router| self.ports_on(router))
    }

    fn ports_on(&self, router: &LogicalRouter) -> impl Iterator<Item = &Arc<LogicalRouterPort>> {
        router.ports.iter().filter_map(|port| self.router_ports.get(*port))
    }

    /// The routers that serve these rows: the one of this name; of several those that the rows are on, and where there is
    /// none any that they are on.
    pub(crate) fn serving(&self, router: &str, rows: &[Uuid]) -> Vec<&Arc<LogicalRouter>> {
        if let Some(only) = self.only(router) {
            return vec![only];
        }
        let is_named = self.routers.find(|by| &by.name, router).next().is_some();
        let serves = |uuid| rows.iter().any(|row| self.is_on(*row, Kind::Router, uuid));
        let found = self.routers.iter().filter(|(uuid, found)| (!is_named || *found.name == *router) && serves(*uuid));
        found.map(|(_, router)| router).collect()
    }

    /// The ports by which switches lead to a router.
    pub(crate) fn ports_to(&self, router: &LogicalRouter) -> impl Iterator<Item = Uuid> {
        let peers =
            |port: &Arc<LogicalRouterPort>| self.switch_router_ports.find(|by| &by.router_port, port.name.clone());
        self.ports_on(router).flat_map(move |port| peers(port).map(|(uuid, _)| uuid))
    }

    /// A port by which packets come to this router that no switch has seen.
    pub(crate) fn unswitched_port(&self, router: &str) -> Option<&str> {
        self.ports_of(router).find(|port| port.peer.is_some()).map(|port| &*port.name)
    }

    /// The networks inside a project, each with the router's address in it. Of several routers with one name any may be
    /// the one.
    pub(crate) fn inside(&self, router: &str) -> BTreeSet<IpNet> {
        let routers = self.routers.find(|by| &by.name, router);
        let ports = routers.flat_map(|(_, router)| self.ports_on(router));
        ports.filter(|port| !port.is_external()).flat_map(|port| port.networks()).collect()
    }

    /// The networks that a router leads out to, by its gateway ports.
    pub(crate) fn outside(&self, router: &str) -> Vec<Vec<IpNet>> {
        self.ports_of(router).filter(|port| port.is_external()).map(|port| port.networks().collect()).collect()
    }

    /// Where a router sends what it has no other route for.
    pub(crate) fn default_hops(&self, router: &str) -> impl Iterator<Item = IpAddr> {
        self.routes_of(router).filter(|route| route.is_default()).filter_map(|route| route.nexthop.parse().ok())
    }

    /// Where a router sends what comes from there, whatever its destination.
    pub(crate) fn hops_from(&self, router: &str, source: IpAddr) -> impl Iterator<Item = IpAddr> {
        let from = move |route: &&Arc<StaticRoute>| {
            let prefix = route.ip_prefix.parse::<IpNet>().map(|net| net.contains(&source));
            route.is_by_source() && (prefix == Ok(true) || route.ip_prefix.parse() == Ok(source))
        };
        let by_route = self.routes_of(router).filter(from).filter_map(|route| route.nexthop.parse().ok());
        let policies = self.only(router).into_iter().flat_map(|router| router.policies.iter());
        let policies = policies.filter_map(|policy| self.router_policies.get(*policy));
        by_route.chain(policies.flat_map(move |policy| policy.hops_from(source)))
    }

    fn routes_of(&self, router: &str) -> impl Iterator<Item = &Arc<StaticRoute>> {
        let ids = self.only(router).into_iter().flat_map(|router| router.static_routes.iter());
        ids.filter_map(|route| self.static_routes.get(*route))
    }

    /// The router of this name; of several none is meant.
    fn only(&self, router: &str) -> Option<&Arc<LogicalRouter>> {
        let mut routers = self.routers.find(|by| &by.name, router);
        routers.next().filter(|_| routers.next().is_none()).map(|(_, router)| router)
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
    pub(crate) fn places(&self, kind: Kind, name: &str) -> Vec<(Place, &BlockSet<Uuid>)> {
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
    pub(crate) fn place(&self, kind: Kind, uuid: Uuid) -> Option<(&Arc<str>, &BlockSet<Uuid>)> {
        match kind {
            Kind::Router => self.routers.get(uuid).map(|row| (&row.name, &row.load_balancer)),
            Kind::Switch => self.switches.get(uuid).map(|row| (&row.name, &row.load_balancer)),
            Kind::Group => self.groups.get(uuid).map(|row| (&row.name, &row.load_balancer)),
        }
    }

    /// Whether the row is on this router or switch, by itself or in a group.
    pub(crate) fn is_on(&self, row: Uuid, kind: Kind, uuid: Uuid) -> bool {
        let groups = self.groups_on(kind, uuid).into_iter().flatten();
        let groups = groups.filter_map(|group| self.place(Kind::Group, *group));
        self.place(kind, uuid).into_iter().chain(groups).any(|(_, members)| members.contains(&row))
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
