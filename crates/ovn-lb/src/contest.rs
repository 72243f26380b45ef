//! Ports of a shared address that a load balancer of somebody else's has on the same router. Pure.
//!
//! OVN takes both rows, and leaves it to chance who answers. Whoever was there first stays: a newcomer gets no row, and a
//! Service that is served already is told and stays, too.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use groundcrew_core::provider::{Caveat, Protocol, Wanted};
use ovsdb_client::Uuid;

use crate::desired::Site;
use crate::error::Error;
use crate::marks;
use crate::northbound::{Kind, LoadBalancer, Northbound};
use crate::plan;

/// A port that this Service wants and another load balancer has.
struct Contested {
    /// Of the frontends.
    index: usize,
    protocol: Protocol,
    address: IpAddr,
    vip: String,
    /// Name and uuid of the other one.
    rival: (Arc<str>, Uuid),
}

/// What each Service was refused, for when its rows are taken: they tell it while they are there.
#[derive(Default)]
pub(crate) struct Refused(Mutex<HashMap<Uuid, Ports>>);

/// Protocols and virtual addresses.
pub(crate) type Ports = BTreeSet<(Protocol, String)>;

impl Refused {
    pub(crate) fn of(&self, service: Uuid) -> Ports {
        self.lock().get(&service).cloned().unwrap_or_default()
    }

    pub(crate) fn note(&self, service: Uuid, ports: Ports) {
        if ports.is_empty() {
            self.lock().remove(&service);
        } else {
            self.lock().insert(service, ports);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Ports>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is left of a wish.
#[derive(Debug)]
pub(crate) struct Contest<'a> {
    pub(crate) want: Cow<'a, Wanted>,
    pub(crate) refused: Ports,
    pub(crate) caveat: Option<Caveat>,
}

/// The virtual addresses of a wish, as rows have them.
pub(crate) fn vips(want: &Wanted) -> impl Iterator<Item = String> {
    asked(want).map(|(.., vip)| vip)
}

fn asked(want: &Wanted) -> impl Iterator<Item = (usize, Protocol, IpAddr, String)> {
    want.frontends.iter().enumerate().flat_map(|(index, frontend)| {
        let vip = |address: &IpAddr| SocketAddr::new(*address, frontend.port).to_string();
        want.addresses.iter().map(move |address| (index, frontend.protocol, *address, vip(address)))
    })
}

/// The wish without the ports that it may not have, and a word about those. A newcomer gets none. `refused` is what it was
/// refused before.
pub(crate) fn contest<'a>(
    want: &'a Wanted,
    router: &str,
    site: &Site,
    nb: &Northbound,
    refused: &Ports,
) -> Result<Contest<'a>, Error> {
    let own = plan::ours(want.owner(), site, nb);
    let rivals = rivals(want, router, site, nb, &own);
    let whole = |caveat| Contest { want: Cow::Borrowed(want), refused: Ports::new(), caveat };
    let Some(first) = rivals.first() else { return Ok(whole(None)) };
    let has = |c: &Contested| own.iter().any(|(_, row)| is_of(row, c.protocol) && row.vips.get(&c.vip).is_some());
    // A Service whose rows were taken comes back to what it had; else whoever takes them would decide. One that was
    // refused all that it wants keeps a row without ports: the next process knows by it.
    let had = |c: &Contested| {
        own.is_empty() && want.ask.current.contains(&c.address) && !refused.contains(&(c.protocol, c.vip.clone()))
    };
    let lost: Vec<_> = rivals.iter().filter(|contested| !has(contested) && !had(contested)).collect();
    let Some(new) = lost.first() else {
        let (name, uuid) = &first.rival;
        let message = format!(
            "port {}/{} of {} is answered by the OVN load balancer {name} ({uuid}), too, which is not ours and came later; \
             remove one of the two",
            want.frontends[first.index].port, first.protocol, first.address
        );
        return Ok(whole(Some(Caveat { reason: "PortConflict", message, stops: false })));
    };
    let (name, uuid) = &new.rival;
    let port = format!("{}/{}", want.frontends[new.index].port, new.protocol);
    let error = Error::PortTaken { port, address: new.address, name: name.to_string(), uuid: *uuid };
    if own.is_empty() && refused.is_empty() {
        return Err(error);
    }
    let without: BTreeSet<_> = lost.iter().map(|contested| contested.index).collect();
    let mut less = want.clone();
    let mut index = 0..;
    less.frontends.retain(|_| index.next().is_some_and(|index| !without.contains(&index)));
    let caveat = Caveat { reason: "PortConflict", message: error.to_string(), stops: less.frontends.is_empty() };
    let refused = lost.iter().map(|contested| (contested.protocol, contested.vip.clone())).collect();
    Ok(Contest { want: Cow::Owned(less), refused, caveat: Some(caveat) })
}

fn rivals(
    want: &Wanted,
    router: &str,
    site: &Site,
    nb: &Northbound,
    own: &[(Uuid, Arc<LoadBalancer>)],
) -> Vec<Contested> {
    let key = &want.owner().key;
    let asked: Vec<_> = asked(want).collect();
    // What kube-dc had for this very Service is not somebody else's where it is taken over.
    let is_legacy = |row: &LoadBalancer, protocol: Protocol| {
        site.take_over && *row.name == format!("{}-{}-{protocol}", key.namespace, key.name)
    };
    let rows = on_router(router, nb).into_iter().filter_map(|uuid| Some((uuid, nb.load_balancers.get(uuid)?)));
    let foreign = rows.filter(|(uuid, row)| {
        marks::owner(&row.external_ids, &site.cluster).is_none() && own.iter().all(|(ours, _)| ours != uuid)
    });
    let contested = foreign.flat_map(|(uuid, row)| {
        let has = asked.iter().filter(move |(.., vip)| row.vips.get(vip).is_some());
        let has = has.filter(move |(_, protocol, ..)| is_of(row, *protocol) && !is_legacy(row, *protocol));
        has.map(move |(index, protocol, address, vip)| Contested {
            index: *index,
            protocol: *protocol,
            address: *address,
            vip: vip.clone(),
            rival: (row.name.clone(), uuid),
        })
    });
    contested.collect()
}

/// All rows on a router, by itself or by a group.
fn on_router(router: &str, nb: &Northbound) -> BTreeSet<Uuid> {
    let mut rows = BTreeSet::new();
    for (place, members) in nb.places(Kind::Router, router) {
        rows.extend(members.iter().copied());
        let groups = nb.groups_on(Kind::Router, place.uuid).into_iter().flat_map(|groups| groups.iter());
        rows.extend(groups.filter_map(|group| nb.place(Kind::Group, *group)).flat_map(|(_, members)| members.iter()));
    }
    rows
}

fn is_of(row: &LoadBalancer, protocol: Protocol) -> bool {
    row.protocol.as_deref().unwrap_or("tcp") == protocol.to_string()
}

#[cfg(test)]
mod tests {
    use ovsdb_client::{Touched, apply};
    use serde_json::{Value, json};

    use super::*;
    use crate::desired::desired;
    use crate::testing::{frontend, owner, site, wanted};

    const VIP: &str = "192.0.2.7:80";

    fn id(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    fn row(name: &str, vip: &str, external_ids: &Value) -> Value {
        json!({ "initial": { "name": name, "vips": ["map", [[vip, ""]]], "external_ids": external_ids } })
    }

    fn foreign(vip: &str) -> Value {
        row("shop-old-tcp", vip, &json!(["map", []]))
    }

    /// The row that `shop/web` has, with this virtual address.
    fn own(vip: &str) -> (Uuid, Value) {
        let web = owner("shop", "web");
        let marks = [
            [marks::CLUSTER, "c1"],
            [marks::NAMESPACE, "shop"],
            [marks::SERVICE, "web"],
            [marks::UID, &web.uid.to_string()],
        ];
        (marks::row_uuid("c1", &web, Protocol::Tcp), row("ours", vip, &json!(["map", marks])))
    }

    /// Router `shop` with these rows; those of `grouped` are on it by a group.
    fn northbound(rows: &[(Uuid, Value)], grouped: &[(Uuid, Value)]) -> Northbound {
        let set =
            |rows: &[(Uuid, Value)]| json!(["set", rows.iter().map(|(id, _)| json!(["uuid", id])).collect::<Vec<_>>()]);
        let all: serde_json::Map<_, _> =
            rows.iter().chain(grouped).map(|(id, row)| (id.to_string(), row.clone())).collect();
        let tables = json!({
            "Load_Balancer": all,
            "Load_Balancer_Group": { id(70).to_string(): { "initial": { "name": "g", "load_balancer": set(grouped) } } },
            "Logical_Router": { id(80).to_string(): { "initial": {
                "name": "shop", "load_balancer": set(rows), "load_balancer_group": ["uuid", id(70)],
            } } },
        });
        let mut nb = Northbound::default();
        apply(&tables.to_string(), &mut nb, &mut Touched::default()).unwrap();
        nb
    }

    fn web() -> Wanted {
        wanted(&owner("shop", "web"), &["192.0.2.7"])
    }

    fn ask<'a>(want: &'a Wanted, nb: &Northbound) -> Result<Contest<'a>, Error> {
        contest(want, "shop", &site(), nb, &Ports::new())
    }

    #[test]
    fn a_newcomer_is_refused_a_port_that_another_row_has_on_its_router_by_itself_or_by_a_group() {
        let theirs = [(id(1), foreign(VIP))];
        for nb in [northbound(&theirs, &[]), northbound(&[], &theirs)] {
            let refused = ask(&web(), &nb).unwrap_err();
            assert!(matches!(&refused, Error::PortTaken { name, .. } if name == "shop-old-tcp"), "{refused}");
            let elsewhere = web();
            let elsewhere = contest(&elsewhere, "another", &site(), &nb, &Ports::new()).unwrap();
            assert!(elsewhere.caveat.is_none(), "on another router");
        }
        for other in [row("x", "192.0.2.7:443", &json!(["map", []])), row("x", "192.0.2.7", &json!(["map", []]))] {
            let nb = northbound(&[(id(1), other)], &[]);
            assert!(ask(&web(), &nb).unwrap().caveat.is_none(), "another port");
        }
        let mut udp = foreign(VIP);
        udp["initial"]["protocol"] = json!("udp");
        assert!(ask(&web(), &northbound(&[(id(1), udp)], &[])).unwrap().caveat.is_none());
    }

    #[test]
    fn a_service_that_is_served_stays_and_is_told_even_where_its_rows_were_taken() {
        let nb = northbound(&[(id(1), foreign(VIP)), own(VIP)], &[]);
        let stays = |want: &Wanted, nb: &Northbound| {
            let left = ask(want, nb).unwrap();
            assert_eq!(&*left.want, want);
            let caveat = left.caveat.unwrap();
            assert!(caveat.reason == "PortConflict" && !caveat.stops, "{caveat:?}");
        };
        stays(&web(), &nb);
        let mut published = web();
        published.ask.current = published.addresses.clone();
        stays(&published, &northbound(&[(id(1), foreign(VIP))], &[]));
    }

    #[test]
    fn a_port_that_comes_later_and_is_taken_is_left_out() {
        let nb = northbound(&[(id(1), foreign("192.0.2.7:443")), own(VIP)], &[]);
        let mut want = web();
        want.ask.current = want.addresses.clone();
        want.frontends.push(frontend(Protocol::Tcp, 443, &["10.1.0.41:8443"]));
        let left = ask(&want, &nb).unwrap();
        assert_eq!(left.want.frontends.iter().map(|frontend| frontend.port).collect::<Vec<_>>(), [80]);
        assert_eq!(left.refused, [(Protocol::Tcp, "192.0.2.7:443".to_owned())].into());
        assert!(left.caveat.is_some_and(|caveat| !caveat.stops && caveat.message.contains("443/tcp")));

        // Somebody takes its rows away: what it had comes back, and no more.
        let bare = northbound(&[(id(1), foreign("192.0.2.7:443"))], &[]);
        let again = contest(&want, "shop", &site(), &bare, &left.refused).unwrap();
        assert_eq!((&again.want, &again.refused), (&left.want, &left.refused));
    }

    #[test]
    fn a_service_that_moves_to_a_port_that_is_taken_waits_for_it_with_a_row_that_reminds_of_that() {
        let mut want = web();
        want.ask.current = want.addresses.clone();
        want.frontends[0].port = 443;
        let theirs = (id(1), foreign("192.0.2.7:443"));
        let (uuid, mut reminder) = own(VIP);
        let moving = northbound(&[theirs.clone(), (uuid, reminder.clone())], &[]);
        let row = desired(&want, &site()).rows.remove(0).bare();
        assert_eq!((row.uuid, row.vips), (uuid, ovsdb_client::StrMap::default()));
        reminder["initial"]["vips"] = json!(["map", []]);
        for nb in [moving, northbound(&[theirs, (uuid, reminder)], &[])] {
            let left = ask(&want, &nb).unwrap();
            assert!(left.want.frontends.is_empty() && left.caveat.is_some_and(|caveat| caveat.stops));
        }
    }

    #[test]
    fn what_kube_dc_had_for_the_service_itself_is_no_rival_where_it_is_taken_over() {
        let nb = northbound(&[(id(1), row("shop-web-tcp", VIP, &json!(["map", []])))], &[]);
        let taking = Site { take_over: true, ..site() };
        assert!(contest(&web(), "shop", &taking, &nb, &Ports::new()).unwrap().caveat.is_none());
        assert!(ask(&web(), &nb).is_err());
    }

    #[test]
    fn our_own_rows_are_no_rivals_not_even_without_their_marks() {
        let (uuid, _) = own(VIP);
        let nb = northbound(&[(uuid, row("ours", VIP, &json!(["map", []])))], &[]);
        assert!(ask(&web(), &nb).unwrap().caveat.is_none());
    }
}
