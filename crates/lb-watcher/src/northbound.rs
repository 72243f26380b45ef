//! What we read of OVN's northbound database. Only columns that every version of OVN since 21.03 has.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use groundcrew_api::names::kube_ovn;
use groundcrew_ovn::mark;
use ovsdb_client::{BlockSet, Set, StrMap, Uuid};

ovsdb_client::table! {
    /// Virtual addresses and their backends, for one protocol.
    pub(crate) struct LoadBalancer = "Load_Balancer" {
        pub(crate) name: Arc<str>,
        pub(crate) vips: StrMap,
        /// Absent is tcp.
        pub(crate) protocol: Option<Box<str>>,
        pub(crate) options: StrMap,
        pub(crate) health_check: Set<Uuid>,
        pub(crate) external_ids: StrMap,
    }
    indexes LoadBalancersBy {
        name: Arc<str> = |row| Some(row.name.clone()),
    }
}

ovsdb_client::table! {
    /// A project's router.
    pub(crate) struct LogicalRouter = "Logical_Router" {
        pub(crate) name: Arc<str>,
        pub(crate) load_balancer: BlockSet<Uuid>,
    }
    indexes LogicalRoutersBy {
        name: Arc<str> = |row| Some(row.name.clone()),
    }
}

ovsdb_client::table! {
    /// A project's switch.
    pub(crate) struct LogicalSwitch = "Logical_Switch" {
        pub(crate) name: Arc<str>,
        pub(crate) load_balancer: BlockSet<Uuid>,
    }
    indexes LogicalSwitchesBy {
        name: Arc<str> = |row| Some(row.name.clone()),
    }
}

ovsdb_client::table! {
    /// The one row that counts how often somebody waited for his change.
    pub(crate) struct Global = "NB_Global" {
        pub(crate) nb_cfg: i64,
    }
}

ovsdb_client::database! {
    /// The northbound database, as far as it concerns us.
    pub(crate) struct Northbound = "OVN_Northbound" {
        pub(crate) load_balancers: LoadBalancer,
        pub(crate) routers: LogicalRouter,
        pub(crate) switches: LogicalSwitch,
        pub(crate) globals: Global,
    }
}

impl LoadBalancer {
    /// Whether it is one of this project's own controllers'.
    pub(crate) fn is_groundcrews(&self) -> bool {
        self.external_ids.get(mark::CLUSTER).is_some()
    }

    /// Whether kube-ovn's client made it, for whomever.
    pub(crate) fn is_of_kube_ovns_client(&self) -> bool {
        self.external_ids.get(kube_ovn::VENDOR_KEY) == Some(kube_ovn::VENDOR)
    }

    /// Options and health checks in short: kube-dc sets none, so only a change of them says something.
    pub(crate) fn extras(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.options, &*self.health_check).hash(&mut hasher);
        hasher.finish()
    }
}

/// What a load balancer is attached to. Both are needed: the router serves clients outside, the switch those inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum PlaceKind {
    /// A `Logical_Router`.
    Router,
    /// A `Logical_Switch`.
    Switch,
}

impl PlaceKind {
    pub(crate) const ALL: [Self; 2] = [Self::Router, Self::Switch];

    pub(crate) fn table(self) -> &'static str {
        match self {
            Self::Router => "Logical_Router",
            Self::Switch => "Logical_Switch",
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Switch => "switch",
        }
    }
}

impl Northbound {
    /// Members of each router or switch of this name; names are not unique in OVN.
    pub(crate) fn places(&self, kind: PlaceKind, name: &str) -> Vec<&BlockSet<Uuid>> {
        match kind {
            PlaceKind::Router => self.routers.find(|by| &by.name, name).map(|(_, row)| &row.load_balancer).collect(),
            PlaceKind::Switch => self.switches.find(|by| &by.name, name).map(|(_, row)| &row.load_balancer).collect(),
        }
    }

    /// Name and members of a router or switch.
    pub(crate) fn place(&self, kind: PlaceKind, uuid: Uuid) -> Option<(&Arc<str>, &BlockSet<Uuid>)> {
        match kind {
            PlaceKind::Router => self.routers.get(uuid).map(|row| (&row.name, &row.load_balancer)),
            PlaceKind::Switch => self.switches.get(uuid).map(|row| (&row.name, &row.load_balancer)),
        }
    }

    /// All routers or switches: uuid and name.
    pub(crate) fn all_places(&self, kind: PlaceKind) -> Box<dyn Iterator<Item = (Uuid, &Arc<str>)> + '_> {
        match kind {
            PlaceKind::Router => Box::new(self.routers.iter().map(|(uuid, row)| (uuid, &row.name))),
            PlaceKind::Switch => Box::new(self.switches.iter().map(|(uuid, row)| (uuid, &row.name))),
        }
    }

    /// A number that only grows, unless the database is put back to an earlier state.
    pub(crate) fn sequence(&self) -> Option<i64> {
        self.globals.iter().map(|(_, row)| row.nb_cfg).max()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.load_balancers.is_empty() && self.routers.is_empty() && self.switches.is_empty()
    }
}
