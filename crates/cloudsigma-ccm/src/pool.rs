//! Which addresses may be given to Services. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use jiff::Timestamp;

use crate::client::Ip;
use crate::inventory::Inventory;
use crate::marks::{self, Mark};

/// The annotation that chooses a pool.
pub(crate) const ANNOTATION: &str = groundcrew_api::names::annotation::IP_POOL;

/// Where an address comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pool {
    /// Subscribed to: it may be on any server.
    #[default]
    Static,
    /// Not subscribed to, and on no server. It stays on the first that it is on: the cloud forbids to move it.
    Dynamic,
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
        })
    }
}

impl FromStr for Pool {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "static" => Ok(Self::Static),
            "dynamic" => Ok(Self::Dynamic),
            _ => Err(format!("{ANNOTATION}: {text:?} is no pool; use static or dynamic")),
        }
    }
}

/// What the operator lets be given out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// Addresses of this network.
    Network(IpNet),
    /// Addresses with the tag of this uuid: names are not unique.
    Tag(String),
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(tag) = text.strip_prefix("tag:").filter(|tag| !tag.is_empty()) {
            return Ok(Self::Tag(tag.to_owned()));
        }
        let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network
            .map(Self::Network)
            .map_err(|_| "write a network as 203.0.113.0/28, an address, or tag:<uuid of a tag>".into())
    }
}

/// Why an address is not given to a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    Unknown,
    Shared,
    NotSubscribed,
    Subscribed,
    Expired,
    OnServer(String),
    NodeAddress,
    NotAllowed,
    OtherCluster(String),
    InUse(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("is not one of this account"),
            Self::Shared => f.write_str("belongs to another account that shares it"),
            Self::NotSubscribed => f.write_str("is not subscribed to, so that it is in the dynamic pool"),
            Self::Subscribed => f.write_str("is subscribed to, so that it is in the static pool"),
            Self::Expired => f.write_str("has a subscription that is over; renew it"),
            Self::OnServer(server) => write!(f, "is attached to server {server}"),
            Self::NodeAddress => f.write_str("is a node's own address"),
            Self::NotAllowed => f.write_str("is not among the addresses that this cluster may use (--allow-ip)"),
            Self::OtherCluster(cluster) => write!(f, "belongs to cluster {cluster}"),
            Self::InUse(service) => write!(f, "is held by {service}"),
        }
    }
}

/// What is known besides the account.
#[derive(Debug, Clone)]
pub(crate) struct Rules<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) allowed: &'a [Allowed],
    /// Addresses of Kubernetes nodes.
    pub(crate) nodes: &'a BTreeSet<IpAddr>,
    pub(crate) now: Timestamp,
}

/// Addresses of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Marked as this cluster's: a Service has it, or it is kept for one.
    pub(crate) used: i64,
    pub(crate) free: i64,
}

/// Whether an address may be given to `service` (`namespace/name`), of which it may have been kept.
pub(crate) fn fit(ip: &Ip, service: &str, pool: Pool, inventory: &Inventory, rules: &Rules<'_>) -> Result<(), Unfit> {
    if ip.owner.as_deref() != Some(&*inventory.user) {
        return Err(Unfit::Shared);
    }
    match pool {
        Pool::Static if !ip.subscribed => return Err(Unfit::NotSubscribed),
        Pool::Dynamic if ip.subscribed => return Err(Unfit::Subscribed),
        Pool::Static => {
            // Without a word about its end, what is subscribed to is paid for.
            let paid = inventory.subscriptions.get(&ip.address);
            if paid.is_some_and(|paid| paid.is_over(rules.now)) {
                return Err(Unfit::Expired);
            }
        }
        Pool::Dynamic => {}
    }
    if rules.nodes.contains(&ip.address) {
        return Err(Unfit::NodeAddress);
    }
    if let Some(server) = &ip.server {
        return Err(Unfit::OnServer(server.clone()));
    }
    let allows = |allowed: &Allowed| match allowed {
        Allowed::Network(network) => network.contains(&ip.address),
        Allowed::Tag(tag) => ip.tags.contains(tag),
    };
    if !rules.allowed.is_empty() && !rules.allowed.iter().any(allows) {
        return Err(Unfit::NotAllowed);
    }
    match marks::read(&ip.meta, rules.cluster) {
        Mark::None => Ok(()),
        Mark::Foreign(cluster) => Err(Unfit::OtherCluster(cluster)),
        Mark::Ours(claim) => match (claim.owners.values().next(), claim.kept) {
            (Some(holder), _) => Err(Unfit::InUse(holder.to_string())),
            (None, Some(kept)) if kept != service => Err(Unfit::InUse(format!("nobody, but kept for {kept}"))),
            (None, _) => Ok(()),
        },
    }
}

/// How many addresses of a pool and a family Services have, and how many any Service could still get. What is on servers,
/// over, or others' is in no pool.
pub(crate) fn counts(inventory: &Inventory, rules: &Rules<'_>) -> BTreeMap<(Pool, bool), Counts> {
    let mut all: BTreeMap<(Pool, bool), Counts> = BTreeMap::new();
    for ip in inventory.ips.values() {
        let pool = if ip.subscribed { Pool::Static } else { Pool::Dynamic };
        let used = matches!(marks::read(&ip.meta, rules.cluster), Mark::Ours(_));
        if used || fit(ip, "", pool, inventory, rules).is_ok() {
            let counts = all.entry((pool, ip.address.is_ipv6())).or_default();
            if used { counts.used += 1 } else { counts.free += 1 }
        }
    }
    all
}

/// The addresses that `service` could have, best first: one that was kept for it before all others.
pub(crate) fn choices(
    service: &str,
    pool: Pool,
    v6: bool,
    inventory: &Inventory,
    rules: &Rules<'_>,
    taken: &BTreeSet<IpAddr>,
) -> Vec<IpAddr> {
    let of_family = inventory.ips.values().filter(|ip| ip.address.is_ipv6() == v6 && !taken.contains(&ip.address));
    let mut free: Vec<_> = of_family.filter(|ip| fit(ip, service, pool, inventory, rules).is_ok()).collect();
    free.sort_by_key(|ip| (marks::read(&ip.meta, rules.cluster) == Mark::None, ip.address));
    free.into_iter().map(|ip| ip.address).collect()
}

#[cfg(test)]
mod tests {
    use groundcrew_core::key::ServiceKey;
    use groundcrew_core::provider::Owner;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    const CLUSTER: &str = "us";

    fn address(n: u8) -> IpAddr {
        [203, 0, 113, n].into()
    }

    fn owner(name: &str) -> Owner {
        Owner { key: ServiceKey::new("shop", name), uid: Uuid::from_u128(7) }
    }

    fn ip(n: u8, more: Value) -> Ip {
        let mut ip =
            json!({ "uuid": address(n), "owner": { "uuid": "me" }, "subscription": { "id": "1" }, "meta": {} });
        let Value::Object(more) = more else { panic!("{more}") };
        for (key, value) in more {
            ip[key] = value;
        }
        serde_json::from_value(ip).unwrap()
    }

    fn inventory(ips: Vec<Ip>) -> Inventory {
        let subscription = |end: &str, status: &str| {
            serde_json::from_value(json!({ "end_time": end, "status": status, "auto_renew": false })).unwrap()
        };
        Inventory {
            user: "me".into(),
            ips: ips.into_iter().map(|ip| (ip.address, ip)).collect(),
            subscriptions: [
                (address(1), subscription("2099-01-01T00:00:00Z", "active")),
                (address(2), subscription("2020-01-01T00:00:00Z", "active")),
                (address(3), subscription("2099-01-01T00:00:00Z", "expired")),
            ]
            .into(),
            complete: true,
            ..Inventory::default()
        }
    }

    fn why(ip: &Ip, pool: Pool, allowed: &[Allowed]) -> Result<(), Unfit> {
        let nodes = BTreeSet::from([address(9)]);
        let rules = Rules { cluster: CLUSTER, allowed, nodes: &nodes, now: "2026-01-01T00:00:00Z".parse().unwrap() };
        fit(ip, "shop/web", pool, &inventory(vec![ip.clone()]), &rules)
    }

    #[test]
    fn an_address_is_given_out_only_if_nothing_speaks_against_it() {
        let fine = |n| why(&ip(n, json!({})), Pool::Static, &[]);
        assert_eq!(fine(1), Ok(()));
        assert_eq!(fine(2), Err(Unfit::Expired), "by the clock");
        assert_eq!(fine(3), Err(Unfit::Expired), "by its status");
        assert_eq!(fine(9), Err(Unfit::NodeAddress));
        let with = |more| why(&ip(1, more), Pool::Static, &[]);
        assert_eq!(with(json!({ "owner": { "uuid": "them" } })), Err(Unfit::Shared));
        assert_eq!(with(json!({ "server": { "uuid": "s" } })), Err(Unfit::OnServer("s".into())));
        assert_eq!(with(json!({ "subscription": null })), Err(Unfit::NotSubscribed));
        assert_eq!(
            with(json!({ "meta": marks::with(&[].into(), "them", &owner("x"), false) })),
            Err(Unfit::OtherCluster("them".into()))
        );
        assert_eq!(
            with(json!({ "meta": marks::with(&[].into(), CLUSTER, &owner("x"), false) })),
            Err(Unfit::InUse("shop/x".into()))
        );
    }

    #[test]
    fn pools_do_not_mix() {
        assert_eq!(why(&ip(1, json!({})), Pool::Dynamic, &[]), Err(Unfit::Subscribed));
        assert_eq!(why(&ip(1, json!({ "subscription": null })), Pool::Dynamic, &[]), Ok(()));
        assert!("fixed".parse::<Pool>().unwrap_err().contains("static or dynamic"));
    }

    #[test]
    fn the_operators_list_is_kept_to() {
        let allowed = ["203.0.113.0/30".parse().unwrap(), "tag:t1".parse().unwrap()];
        assert_eq!(why(&ip(1, json!({})), Pool::Static, &allowed), Ok(()));
        assert_eq!(why(&ip(8, json!({})), Pool::Static, &allowed), Err(Unfit::NotAllowed));
        assert_eq!(why(&ip(8, json!({ "tags": [{ "uuid": "t1" }] })), Pool::Static, &allowed), Ok(()));
        assert!("tag:".parse::<Allowed>().is_err() && "everything".parse::<Allowed>().is_err());
    }

    #[test]
    fn a_pool_has_what_services_have_and_what_they_could_get() {
        let ours = marks::with(&[].into(), CLUSTER, &owner("web"), false);
        let kept = marks::without(&marks::with(&[].into(), CLUSTER, &owner("x"), true), CLUSTER, &owner("x"));
        let theirs = marks::with(&[].into(), "them", &owner("x"), false);
        let inventory = inventory(vec![
            ip(1, json!({})),
            ip(2, json!({})),
            // What serves may be on a server.
            ip(4, json!({ "meta": ours, "server": { "uuid": "s" } })),
            ip(5, json!({ "meta": kept })),
            ip(6, json!({ "meta": theirs })),
            ip(7, json!({ "server": { "uuid": "s" } })),
            ip(8, json!({ "subscription": null })),
            ip(9, json!({})),
        ]);
        let nodes = BTreeSet::from([address(9)]);
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let found = counts(&inventory, &Rules { cluster: CLUSTER, allowed: &[], nodes: &nodes, now });
        let wanted = [
            ((Pool::Static, false), Counts { used: 2, free: 1 }),
            ((Pool::Dynamic, false), Counts { used: 0, free: 1 }),
        ];
        assert_eq!(found, wanted.into());
    }

    #[test]
    fn a_kept_address_is_its_services_first_choice_and_nobody_elses() {
        let kept = marks::without(&marks::with(&[].into(), CLUSTER, &owner("web"), true), CLUSTER, &owner("web"));
        let inventory = inventory(vec![ip(1, json!({})), ip(5, json!({ "meta": kept }))]);
        let nodes = BTreeSet::new();
        let rules = Rules { cluster: CLUSTER, allowed: &[], nodes: &nodes, now: Timestamp::now() };
        let choices = |service| choices(service, Pool::Static, false, &inventory, &rules, &BTreeSet::new());
        assert_eq!(choices("shop/web"), [address(5), address(1)]);
        assert_eq!(choices("shop/other"), [address(1)]);
    }
}
