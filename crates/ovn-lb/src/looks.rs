//! Which Services a change in OVN concerns. It never says what to do about it. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use groundcrew_api::names::kube_ovn::is_own_load_balancer;
use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::Look;
use ovsdb_client::{Row, RowId, Rows, Set, Uuid};

use crate::marks;
use crate::northbound::{
    Acl, HealthCheck, Kind, LoadBalancer, LogicalRouterPort, Northbound, PortGroup, RouterPolicy, StaticRoute,
    SwitchRouterPort,
};
use crate::waiting::{Obstacle, Waiting};
use crate::ways;

/// `before` is where rows are that are gone now: the owner of a deleted row is still in it.
pub(crate) fn looks(
    before: &Northbound,
    after: &Northbound,
    rows: &Rows,
    cluster: &str,
    waiting: &Waiting,
) -> Option<Look> {
    let Rows::Some(rows) = rows else { return Some(Look::Everywhere) };
    let change = Change { before, after, cluster, waiting };
    let (mut services, mut routers) = (Vec::new(), BTreeSet::new());
    for RowId { table, uuid } in rows {
        if **table == *LoadBalancer::TABLE {
            change.row(*uuid, &mut services);
        } else if **table == *HealthCheck::TABLE {
            change.check(*uuid, &mut services);
        } else if **table == *LogicalRouterPort::TABLE {
            routers.extend(change.routers_with(*uuid));
        } else if **table == *StaticRoute::TABLE || **table == *RouterPolicy::TABLE {
            services.extend(waiting.take(&Obstacle::Ways));
        } else if **table == *SwitchRouterPort::TABLE {
            routers.extend(change.routers_behind(*uuid));
        } else if **table == *PortGroup::TABLE {
            change.group(*uuid, &mut services);
        } else if **table == *Acl::TABLE {
            change.rule(*uuid, &mut services);
        } else if let Some(kind) = Kind::ALL.into_iter().find(|kind| *kind.table() == **table) {
            change.place(kind, *uuid, &mut services);
            if kind == Kind::Router {
                routers.extend(change.moved_ports(*uuid));
            }
        }
    }
    if !routers.is_empty() {
        services.extend(change.behind(&routers));
        services.extend(routers.iter().flat_map(|name| waiting.take(&Obstacle::Ports(name.to_string()))));
    }
    services.sort_unstable();
    services.dedup();
    (!services.is_empty()).then_some(Look::These(services))
}

struct Change<'a> {
    before: &'a Northbound,
    after: &'a Northbound,
    cluster: &'a str,
    waiting: &'a Waiting,
}

impl Change<'_> {
    fn row(&self, uuid: Uuid, services: &mut Vec<ServiceKey>) {
        for nb in [self.before, self.after] {
            let Some(row) = nb.load_balancers.get(uuid) else { continue };
            if let Some(owner) = marks::owner(&row.external_ids, self.cluster) {
                services.push(owner.key);
            } else {
                services.extend(self.waiting.take(&Obstacle::Row(row.name.to_string())));
                services.extend(self.rivals(row));
                services.extend(self.named(&row.name));
            }
        }
    }

    /// Whoever wants an address and a port that this row of somebody else's has. kube-ovn's own have very many, of what is
    /// inside a cluster.
    fn rivals(&self, row: &LoadBalancer) -> Vec<ServiceKey> {
        if is_own_load_balancer(&row.name) {
            return Vec::new();
        }
        row.vips.iter().flat_map(|(vip, _)| self.waiting.take(&Obstacle::Vip(vip.to_owned()))).collect()
    }

    /// Whoever has a row of this name: somebody else's came to it or went.
    fn named(&self, name: &Arc<str>) -> impl Iterator<Item = ServiceKey> {
        let namesakes = self.after.load_balancers.find(|by| &by.name, name.clone());
        namesakes.filter_map(|(_, row)| Some(marks::owner(&row.external_ids, self.cluster)?.key))
    }

    /// One that is made or goes does so with the row that refers to it.
    fn check(&self, uuid: Uuid, services: &mut Vec<ServiceKey>) {
        let rows = self.after.load_balancers.find(|by| &by.health_check, uuid);
        services
            .extend(rows.filter_map(|(_, row)| marks::owner(&row.external_ids, self.cluster)).map(|owner| owner.key));
    }

    fn group(&self, uuid: Uuid, services: &mut Vec<ServiceKey>) {
        let groups = [self.before, self.after].into_iter().filter_map(|nb| nb.port_groups.get(uuid));
        services.extend(groups.filter_map(|group| Some(marks::owner(&group.external_ids, self.cluster)?.key)));
    }

    /// As with a health check; but a rule whose marks were taken is out of our sight, and known by its group alone.
    fn rule(&self, uuid: Uuid, services: &mut Vec<ServiceKey>) {
        let groups = self.after.port_groups.find(|by| &by.acl, uuid);
        services.extend(groups.filter_map(|(_, group)| Some(marks::owner(&group.external_ids, self.cluster)?.key)));
    }

    /// The names of the routers that a switch leads, or led, to by this port.
    fn routers_behind(&self, uuid: Uuid) -> Vec<Arc<str>> {
        let sides =
            [self.before, self.after].into_iter().filter_map(|nb| nb.switch_router_ports.get(uuid)?.router_port());
        let ports = sides.flat_map(|side| self.after.router_ports.find(|by| &by.name, side).map(|(port, _)| port));
        ports.flat_map(|port| self.routers_with(port)).collect()
    }

    fn place(&self, kind: Kind, uuid: Uuid, services: &mut Vec<ServiceKey>) {
        let (before, after) = (self.before.place(kind, uuid), self.after.place(kind, uuid));
        self.regrouped(kind, uuid, services);
        if let (Some((name, were)), Some((same, are))) = (before, after)
            && name == same
        {
            // Others' members come and go all the time; ours that went were taken. A row that is gone tells that itself.
            let taken = were.difference(are).filter_map(|member| self.after.load_balancers.get(*member));
            // So does one that is new. One that was there before may have been put where it does not belong.
            let put = are.difference(were).filter_map(|member| self.before.load_balancers.get(*member));
            let concerned = |row: &Arc<LoadBalancer>| match marks::owner(&row.external_ids, self.cluster) {
                Some(owner) => vec![owner.key],
                None => self.rivals(row),
            };
            services.extend(taken.chain(put).flat_map(concerned));
            return;
        }
        for name in [before, after].into_iter().flatten().map(|(name, _)| name) {
            services.extend(self.waiting.take(&Obstacle::Place(kind, name.to_string())));
            services.extend(self.attached_to(kind, name));
        }
    }

    /// Whoever is in a group that a router or switch got or lost, or waits for one.
    fn regrouped(&self, kind: Kind, uuid: Uuid, services: &mut Vec<ServiceKey>) {
        let none = Set::default();
        let on = |nb: &Northbound| nb.groups_on(kind, uuid).unwrap_or(&none).iter().copied().collect::<BTreeSet<_>>();
        for group in on(self.before).symmetric_difference(&on(self.after)) {
            let Some((name, members)) = self.after.place(Kind::Group, *group) else { continue };
            services.extend(members.iter().filter_map(|member| self.service_of(*member)));
            let rows = members.iter().filter_map(|member| self.after.load_balancers.get(*member));
            services.extend(rows.flat_map(|row| self.rivals(row)));
            services.extend(self.waiting.take(&Obstacle::Place(Kind::Group, name.to_string())));
        }
    }

    /// The name of a router that got or lost a port or its chassis: other backends are inside its project now. Or a route:
    /// replies may leave another way.
    fn moved_ports(&self, uuid: Uuid) -> Option<Arc<str>> {
        let (before, after) = (self.before.routers.get(uuid)?, self.after.routers.get(uuid)?);
        let same = before.ports == after.ports && before.is_bound() == after.is_bound();
        // Routes matter only where there is more than one way out.
        let rerouted = || before.static_routes != after.static_routes || before.policies != after.policies;
        (!same || (rerouted() && ways::are_several(&after.name, self.after))).then(|| after.name.clone())
    }

    /// The names of the routers that have this port.
    fn routers_with(&self, port: Uuid) -> impl Iterator<Item = Arc<str>> {
        let now = self.after.routers.find(|by| &by.port, port);
        now.map(|(_, router)| router.name.clone())
    }

    /// Whoever is served on one of these routers; all rows are looked at once for all of them.
    fn behind(&self, routers: &BTreeSet<Arc<str>>) -> impl Iterator<Item = ServiceKey> {
        let on = |row: &LoadBalancer| row.external_ids.get(marks::ROUTER).is_some_and(|name| routers.contains(name));
        let rows = self.after.load_balancers.iter().filter(move |(_, row)| on(row));
        rows.filter_map(|(_, row)| marks::owner(&row.external_ids, self.cluster).map(|owner| owner.key))
    }

    fn service_of(&self, row: Uuid) -> Option<ServiceKey> {
        let row = self.after.load_balancers.get(row).or_else(|| self.before.load_balancers.get(row))?;
        marks::owner(&row.external_ids, self.cluster).map(|owner| owner.key)
    }

    /// Every row is looked at. That a router comes, goes or is renamed is rare enough to do without an index.
    fn attached_to(&self, kind: Kind, name: &str) -> impl Iterator<Item = ServiceKey> {
        let mark = match kind {
            Kind::Router => marks::ROUTER,
            Kind::Switch => marks::SWITCH,
            Kind::Group => marks::GROUP,
        };
        let attached =
            self.after.load_balancers.iter().filter(move |(_, row)| row.external_ids.get(mark) == Some(name));
        attached.filter_map(|(_, row)| marks::owner(&row.external_ids, self.cluster).map(|owner| owner.key))
    }
}

#[cfg(test)]
mod tests {
    use ovsdb_client::{Touched, apply};
    use serde_json::{Value, json};

    use super::*;

    /// Applies one message of the server and tells whom it wakes.
    fn woken(nb: &mut Northbound, waiting: &Waiting, updates: &Value) -> Vec<String> {
        let before = nb.clone();
        let mut touched = Touched::default();
        apply(&updates.to_string(), nb, &mut touched).unwrap();
        let looks = looks(&before, nb, &Rows::Some(touched.into_rows()), "c1", waiting);
        match looks {
            None => Vec::new(),
            Some(Look::These(keys)) => keys.iter().map(ToString::to_string).collect(),
            Some(other) => vec![format!("{other:?}")],
        }
    }

    fn uuid(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    fn row(service: &str) -> Value {
        let marks = [
            [marks::CLUSTER, "c1"],
            [marks::NAMESPACE, "shop"],
            [marks::SERVICE, service],
            [marks::UID, "00000000-0000-0000-0000-000000000001"],
            [marks::ROUTER, "shop"],
        ];
        json!({ "insert": { "name": service, "external_ids": ["map", marks] } })
    }

    fn served() -> Northbound {
        let mut nb = Northbound::default();
        let members = json!(["set", [["uuid", uuid(1)], ["uuid", uuid(9)]]]);
        let updates = json!({
            "Load_Balancer": { uuid(1).to_string(): row("web") },
            "Logical_Router": { uuid(5).to_string(): { "insert": { "name": "shop", "load_balancer": members } } },
        });
        assert_eq!(woken(&mut nb, &Waiting::default(), &updates), ["shop/web"]);
        nb
    }

    #[test]
    fn the_owner_of_a_deleted_row_is_woken() {
        let gone = json!({ "Load_Balancer": { uuid(1).to_string(): { "delete": null } } });
        assert_eq!(woken(&mut served(), &Waiting::default(), &gone), ["shop/web"]);
    }

    #[test]
    fn a_member_taken_from_a_router_wakes_its_owner_and_one_of_others_nobody() {
        let toggle = |n| json!({ "Logical_Router": { uuid(5).to_string(): { "modify": { "load_balancer": ["uuid", uuid(n)] } } } });
        assert_eq!(woken(&mut served(), &Waiting::default(), &toggle(1)), ["shop/web"]);
        assert_eq!(woken(&mut served(), &Waiting::default(), &toggle(9)), [""; 0]);
    }

    #[test]
    fn a_member_that_somebody_puts_on_a_router_wakes_its_owner_and_one_that_came_with_it_is_told_by_itself() {
        let (mut nb, waiting) = (served(), Waiting::default());
        let toggle = |n| json!({ "modify": { "load_balancer": ["uuid", uuid(n)] } });
        woken(&mut nb, &waiting, &json!({ "Logical_Router": { uuid(5).to_string(): toggle(1) } }));
        let put = json!({ "Logical_Router": { uuid(5).to_string(): toggle(1) } });
        assert_eq!(woken(&mut nb, &waiting, &put), ["shop/web"]);
        let new = json!({ "Load_Balancer": { uuid(2).to_string(): row("api") }, "Logical_Router": { uuid(5).to_string(): toggle(2) } });
        assert_eq!(woken(&mut nb, &waiting, &new), ["shop/api"]);
    }

    #[test]
    fn a_router_that_goes_or_comes_back_wakes_whoever_is_or_should_be_on_it() {
        let (mut nb, waiting) = (served(), Waiting::default());
        let gone = json!({ "Logical_Router": { uuid(5).to_string(): { "delete": null } } });
        assert_eq!(woken(&mut nb, &waiting, &gone), ["shop/web"]);
        waiting.add(Obstacle::Place(Kind::Router, "shop".into()), &ServiceKey::new("shop", "new"));
        let back = json!({ "Logical_Router": { uuid(6).to_string(): { "insert": { "name": "shop" } } } });
        assert_eq!(woken(&mut nb, &waiting, &back), ["shop/new", "shop/web"]);
    }

    #[test]
    fn a_foreign_row_that_goes_wakes_whoever_waits_for_its_name() {
        let (mut nb, waiting) = (served(), Waiting::default());
        let foreign = json!({ "Load_Balancer": { uuid(2).to_string(): { "insert": { "name": "x" } } } });
        assert_eq!(woken(&mut nb, &waiting, &foreign), [""; 0]);
        waiting.add(Obstacle::Row("x".into()), &ServiceKey::new("shop", "new"));
        let gone = json!({ "Load_Balancer": { uuid(2).to_string(): { "delete": null } } });
        assert_eq!(woken(&mut nb, &waiting, &gone), ["shop/new"]);
    }

    #[test]
    fn a_foreign_row_that_comes_goes_or_is_put_on_a_router_wakes_whoever_wants_its_port() {
        let (mut nb, waiting) = (served(), Waiting::default());
        let vip = "192.0.2.7:443";
        let mut wakes = |news: Value| {
            waiting.add(Obstacle::Vip(vip.into()), &ServiceKey::new("shop", "new"));
            woken(&mut nb, &waiting, &news)
        };
        let toggle = |n| json!({ "Logical_Router": { uuid(5).to_string(): { "modify": { "load_balancer": ["uuid", uuid(n)] } } } });
        let row = |name: &str| json!({ "insert": { "name": name, "vips": ["map", [[vip, ""]]] } });
        assert_eq!(wakes(json!({ "Load_Balancer": { uuid(2).to_string(): row("x") } })), ["shop/new"]);
        assert_eq!(wakes(toggle(2)), ["shop/new"]);
        assert_eq!(wakes(json!({ "Load_Balancer": { uuid(2).to_string(): { "delete": null } } })), ["shop/new"]);
        let own = json!({ "Load_Balancer": { uuid(3).to_string(): row("cluster-tcp-loadbalancer") } });
        assert_eq!(wakes(own), [""; 0], "kube-ovn's own");
    }

    #[test]
    fn a_foreign_row_under_a_name_of_ours_wakes_whoever_has_it() {
        let (mut nb, waiting) = (served(), Waiting::default());
        let come = json!({ "Load_Balancer": { uuid(2).to_string(): { "insert": { "name": "web" } } } });
        let gone = json!({ "Load_Balancer": { uuid(2).to_string(): { "delete": null } } });
        for news in [come, gone] {
            assert_eq!(woken(&mut nb, &waiting, &news), ["shop/web"], "{news}");
        }
    }

    #[test]
    fn a_port_that_comes_goes_or_changes_wakes_whoever_is_behind_its_router() {
        let mut nb = served();
        let port = json!({ "insert": { "name": "p", "networks": "10.1.0.1/16" } });
        let toggle = json!({ "modify": { "ports": ["uuid", uuid(7)] } });
        let come = json!({
            "Logical_Router": { uuid(5).to_string(): toggle }, "Logical_Router_Port": { uuid(7).to_string(): port } });
        let other = json!({ "Logical_Router_Port": { uuid(8).to_string(): port } });
        let change =
            json!({ "Logical_Router_Port": { uuid(7).to_string(): { "modify": { "networks": "10.2.0.1/16" } } } });
        let gone = json!({
            "Logical_Router": { uuid(5).to_string(): toggle }, "Logical_Router_Port": { uuid(7).to_string(): { "delete": null } } });
        let bind = json!({ "Logical_Router": { uuid(5).to_string(): { "modify": { "options": ["map", [["chassis", "gw"]]] } } } });
        let waiting = Waiting::default();
        assert_eq!(woken(&mut nb, &waiting, &come), ["shop/web"]);
        assert_eq!(woken(&mut nb, &waiting, &other), [""; 0], "another router's");
        assert_eq!(woken(&mut nb, &waiting, &change), ["shop/web"]);
        assert_eq!(woken(&mut nb, &waiting, &gone), ["shop/web"]);
        assert_eq!(woken(&mut nb, &waiting, &bind), ["shop/web"]);
    }

    #[test]
    fn a_changed_rule_group_or_cable_wakes_whoever_is_guarded_by_it() {
        let mut nb = served();
        let marks = [
            [marks::CLUSTER, "c1"],
            [marks::NAMESPACE, "shop"],
            [marks::SERVICE, "web"],
            [marks::UID, "00000000-0000-0000-0000-000000000001"],
        ];
        let guard = json!({
            "Port_Group": { uuid(20).to_string(): { "insert": { "acls": ["uuid", uuid(21)], "external_ids": ["map", marks] } } },
            "ACL": { uuid(21).to_string(): { "insert": { "match": "x" } } },
        });
        let change = json!({ "ACL": { uuid(21).to_string(): { "modify": { "match": "y" } } } });
        let hide = json!({ "ACL": { uuid(21).to_string(): { "delete": null } } });
        let gone = json!({ "Port_Group": { uuid(20).to_string(): { "delete": null } } });
        let cable = json!({
            "Logical_Router": { uuid(5).to_string(): { "modify": { "ports": ["uuid", uuid(7)] } } },
            "Logical_Router_Port": { uuid(7).to_string(): { "insert": { "name": "p" } } },
        });
        let options = json!(["map", [["router-port", "p"]]]);
        let plug = json!({ "Logical_Switch_Port": { uuid(8).to_string(): { "insert": { "type": "router", "options": options } } } });
        let pull = json!({ "Logical_Switch_Port": { uuid(8).to_string(): { "delete": null } } });
        let waiting = Waiting::default();
        for news in [guard, change, hide, gone, cable, plug, pull] {
            assert_eq!(woken(&mut nb, &waiting, &news), ["shop/web"], "{news}");
        }
        waiting.add(Obstacle::Ports("shop".into()), &ServiceKey::new("shop", "new"));
        let freed = json!({ "Logical_Router_Port": { uuid(7).to_string(): { "modify": { "peer": ["set", []] } } } });
        assert_eq!(woken(&mut nb, &waiting, &freed), ["shop/new", "shop/web"]);
    }

    #[test]
    fn a_group_that_loses_a_row_or_its_router_or_goes_wakes_whoever_is_in_it() {
        let mut nb = served();
        let mark = json!({ "Load_Balancer": { uuid(1).to_string(): { "modify": { "external_ids": ["map", [[marks::GROUP, "g"]]] } } } });
        let members = json!(["set", [["uuid", uuid(1)], ["uuid", uuid(9)]]]);
        let join = json!({
            "Load_Balancer_Group": { uuid(30).to_string(): { "insert": { "name": "g", "load_balancer": members } } },
            "Logical_Router": { uuid(5).to_string(): { "modify": { "load_balancer_group": ["uuid", uuid(30)] } } },
        });
        let toggle = |n| json!({ "Load_Balancer_Group": { uuid(30).to_string(): { "modify": { "load_balancer": ["uuid", uuid(n)] } } } });
        let part = json!({ "Logical_Router": { uuid(5).to_string(): { "modify": { "load_balancer_group": ["uuid", uuid(30)] } } } });
        let gone = json!({ "Load_Balancer_Group": { uuid(30).to_string(): { "delete": null } } });
        let waiting = Waiting::default();
        for news in [&mark, &join, &part, &toggle(1)] {
            assert_eq!(woken(&mut nb, &waiting, news), ["shop/web"], "{news}");
        }
        assert_eq!(woken(&mut nb, &waiting, &toggle(9)), [""; 0], "another's");
        waiting.add(Obstacle::Place(Kind::Group, "g".into()), &ServiceKey::new("shop", "new"));
        assert_eq!(woken(&mut nb, &waiting, &part), ["shop/new"], "it is back where it is waited for");
        assert_eq!(woken(&mut nb, &waiting, &gone), ["shop/web"]);
    }

    #[test]
    fn a_changed_health_check_wakes_whoever_is_probed_by_it() {
        let mut nb = served();
        let refer = json!({
            "Load_Balancer": { uuid(1).to_string(): { "modify": { "health_check": ["uuid", uuid(4)] } } },
            "Load_Balancer_Health_Check": { uuid(4).to_string(): { "insert": { "vip": "192.0.2.7:80" } } },
        });
        let change = json!({ "Load_Balancer_Health_Check": { uuid(4).to_string(): { "modify": { "vip": "x" } } } });
        let other = json!({ "Load_Balancer_Health_Check": { uuid(6).to_string(): { "insert": { "vip": "y" } } } });
        let waiting = Waiting::default();
        assert_eq!(woken(&mut nb, &waiting, &refer), ["shop/web"]);
        assert_eq!(woken(&mut nb, &waiting, &change), ["shop/web"]);
        assert_eq!(woken(&mut nb, &waiting, &other), [""; 0]);
    }
}
