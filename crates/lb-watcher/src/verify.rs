//! What OVN has, compared with what it should have. Pure: no clock, no memory of what was before.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use groundcrew_core::provider::{Difference, Protocol};
use ovsdb_client::{BlockSet, StrMap, Uuid};

use crate::northbound::{LoadBalancer, Northbound, PlaceKind};
use crate::wanted::{Row, Vip, Wanted};

/// What can be wrong with a load balancer. The label is a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    RowMissing,
    RowDuplicate,
    Protocol,
    VipMissing,
    VipExtra,
    Backends,
    Options,
    RouterMissing,
    SwitchMissing,
    RouterAmbiguous,
    SwitchAmbiguous,
    RouterDetached,
    SwitchDetached,
}

impl Kind {
    /// For metrics that must exist before the first drift.
    pub(crate) const ALL: [Self; 13] = [
        Self::RowMissing,
        Self::RowDuplicate,
        Self::Protocol,
        Self::VipMissing,
        Self::VipExtra,
        Self::Backends,
        Self::Options,
        Self::RouterMissing,
        Self::SwitchMissing,
        Self::RouterAmbiguous,
        Self::SwitchAmbiguous,
        Self::RouterDetached,
        Self::SwitchDetached,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::RowMissing => "row_missing",
            Self::RowDuplicate => "row_duplicate",
            Self::Protocol => "protocol",
            Self::VipMissing => "vip_missing",
            Self::VipExtra => "vip_extra",
            Self::Backends => "backends",
            Self::Options => "options",
            Self::RouterMissing => "router_missing",
            Self::SwitchMissing => "switch_missing",
            Self::RouterAmbiguous => "router_ambiguous",
            Self::SwitchAmbiguous => "switch_ambiguous",
            Self::RouterDetached => "router_detached",
            Self::SwitchDetached => "switch_detached",
        }
    }
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    /// Wrong whatever kube-dc may have thought. The others may be its own way of seeing things; they are drift only
    /// where they were not there before.
    pub(crate) sure: bool,
    /// Which thing of this Service it is about, in short.
    pub(crate) id: u64,
    /// `shop-web-tcp`, for people.
    pub(crate) row: String,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl Finding {
    pub(crate) fn difference(&self) -> Difference {
        Difference { kind: self.kind.label(), expected: self.expected.clone(), found: self.found.clone() }
    }
}

/// What was seen of one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) findings: Vec<Finding>,
    /// Each row that is there and single: who it is and its options in short.
    pub(crate) extras: Vec<(Protocol, Uuid, u64)>,
    /// Whether OVN has a row of its name.
    pub(crate) has_row: bool,
    /// Whether OVN has the router or the switch of its namespace.
    pub(crate) has_place: bool,
}

pub(crate) fn verify(wanted: &Wanted, nb: &Northbound) -> Sight {
    let mut sight = Sight::default();
    for row in &wanted.rows {
        let found: Vec<_> = nb.load_balancers.find(|by| &by.name, row.name.as_str()).collect();
        sight.has_row |= !found.is_empty();
        let mut look = Look { row, findings: &mut sight.findings };
        match found[..] {
            [] => look.missing(wanted, nb),
            [(uuid, present)] => {
                look.content(present);
                for (kind, name) in wanted.places() {
                    look.attachment(kind, name, uuid, nb);
                }
                sight.extras.push((row.protocol, uuid, present.extras()));
            }
            _ => look.duplicate(&found),
        }
    }
    let has = |kind, name| !nb.places(kind, name).is_empty();
    sight.has_place = has(PlaceKind::Router, &wanted.router) || has(PlaceKind::Switch, &wanted.switch);
    sight
}

struct Look<'a> {
    row: &'a Row,
    findings: &'a mut Vec<Finding>,
}

impl Look<'_> {
    fn add(&mut self, kind: Kind, sure: bool, about: &str, expected: impl Into<String>, found: impl Into<String>) {
        let mut hasher = DefaultHasher::new();
        (kind, self.row.protocol, about).hash(&mut hasher);
        let id = hasher.finish();
        let (row, expected, found) = (self.row.name.clone(), expected.into(), found.into());
        self.findings.push(Finding { kind, sure, id, row, expected, found });
    }

    fn missing(&mut self, wanted: &Wanted, nb: &Northbound) {
        // Without a backend kube-dc may not have made the row in the first place.
        let sure = self.row.vips.iter().any(|vip| !vip.backends.is_empty());
        self.add(Kind::RowMissing, sure, "", self.row.name.clone(), "no such row");
        // It cannot be made whole while these are missing.
        for (kind, name) in wanted.places() {
            self.place(kind, name, nb, sure);
        }
    }

    fn duplicate(&mut self, found: &[(Uuid, &std::sync::Arc<LoadBalancer>)]) {
        let uuids: Vec<_> = found.iter().map(|(uuid, _)| uuid.to_string()).collect();
        self.add(Kind::RowDuplicate, true, "", "one row", uuids.join(", "));
    }

    fn content(&mut self, present: &LoadBalancer) {
        let protocol = present.protocol.as_deref().unwrap_or("tcp");
        if protocol != self.row.protocol.to_string() {
            self.add(Kind::Protocol, true, "", self.row.protocol.to_string(), protocol);
        }
        let row = self.row;
        for vip in &row.vips {
            self.vip(vip, &present.vips);
        }
        let extra = |key: &&str| row.vips.iter().all(|vip| vip.key != **key);
        for key in present.vips.iter().map(|(key, _)| key).filter(extra) {
            self.add(Kind::VipExtra, false, key, "no such address", key);
        }
    }

    fn vip(&mut self, vip: &Vip, present: &StrMap) {
        let Some(found) = present.get(&vip.key) else {
            return self.add(Kind::VipMissing, !vip.backends.is_empty(), &vip.key, vip.key.clone(), "no such address");
        };
        let found: BTreeSet<_> = found.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        if !vip.backends.iter().map(String::as_str).eq(found.iter().copied()) {
            let found = found.into_iter().collect::<Vec<_>>().join(",");
            let expected = vip.backends.iter().cloned().collect::<Vec<_>>().join(",");
            let with_key = |list: &str| format!("{} to [{list}]", vip.key);
            self.add(Kind::Backends, false, &vip.key, with_key(&expected), with_key(&found));
        }
    }

    fn attachment(&mut self, place: PlaceKind, name: &str, uuid: Uuid, nb: &Northbound) {
        let Some(members) = self.place(place, name, nb, false) else { return };
        if !members.contains(&uuid) {
            let detached = match place {
                PlaceKind::Router => Kind::RouterDetached,
                PlaceKind::Switch => Kind::SwitchDetached,
            };
            self.add(detached, true, "", format!("on {} {name}", place.word()), "not on it");
        }
    }

    /// Members of the one router or switch of this name.
    fn place<'n>(
        &mut self,
        place: PlaceKind,
        name: &str,
        nb: &'n Northbound,
        sure: bool,
    ) -> Option<&'n BlockSet<Uuid>> {
        let (missing, ambiguous) = match place {
            PlaceKind::Router => (Kind::RouterMissing, Kind::RouterAmbiguous),
            PlaceKind::Switch => (Kind::SwitchMissing, Kind::SwitchAmbiguous),
        };
        let (kind, found) = match nb.places(place, name)[..] {
            [members] => return Some(members),
            [] => (missing, format!("no such {}", place.word())),
            _ => (ambiguous, format!("several {}s of that name", place.word())),
        };
        self.add(kind, sure, "", format!("on {} {name}", place.word()), found);
        None
    }
}

#[cfg(test)]
mod tests;
