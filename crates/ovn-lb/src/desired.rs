//! What the northbound database should say about one Service. Pure.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use groundcrew_core::provider::{Frontend, Owner, Protocol, Wanted};
use groundcrew_ovn::Template;
use ovsdb_client::{Set, StrMap, Uuid};

use crate::affinity;
use crate::kube_ovn::Places;
use crate::marks;
use crate::northbound::Kind;
use crate::ranges::{Guard, guard};

pub(crate) const PROTOCOLS: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

/// How the name of a row for clients inside ends.
pub(crate) const INSIDE: &str = "-inside";

/// What holds for every Service of this cluster.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) cluster: Arc<str>,
    pub(crate) router: Template,
    pub(crate) switch: Template,
    /// The load balancer group of a namespace, where rows are attached by way of one.
    pub(crate) group: Option<Template>,
    /// Whether rows that kube-dc made for our Services are adopted.
    pub(crate) take_over: bool,
    /// What kube-ovn says, which counts for more than the templates.
    pub(crate) places: Places,
}

impl Site {
    /// The logical router of a namespace.
    pub(crate) fn router_of(&self, namespace: &str) -> String {
        self.places.of(namespace).router.map_or_else(|| self.router.of(namespace), |router| router.to_string())
    }

    /// The logical switch of a namespace.
    pub(crate) fn switch_of(&self, namespace: &str) -> String {
        self.places.of(namespace).switch.map_or_else(|| self.switch.of(namespace), |switch| switch.to_string())
    }
}

/// Everything that should be there for one Service.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Desired {
    pub(crate) owner: Owner,
    pub(crate) router: String,
    pub(crate) switch: String,
    /// The group that the rows are in, instead of being attached to router and switch themselves.
    pub(crate) group: Option<String>,
    /// One for each protocol, in the order of the protocols; with affinity two. None: nothing should be there.
    pub(crate) rows: Vec<Row>,
    /// Who may not connect, if not everybody may.
    pub(crate) guard: Option<Guard>,
}

/// For whom a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clients {
    /// Everybody: it is on the router and on the switch, or in the group that is on both.
    All,
    /// It is on the router alone.
    Outside,
    /// It is on the switch alone.
    Inside,
}

impl Clients {
    /// Whether a row for them belongs there.
    pub(crate) fn are_served_by(self, kind: Kind) -> bool {
        match self {
            Self::All => kind != Kind::Group,
            Self::Outside => kind == Kind::Router,
            Self::Inside => kind == Kind::Switch,
        }
    }
}

/// One `Load_Balancer` row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// Under which it is made. A restored database has it under another.
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    pub(crate) clients: Clients,
    pub(crate) protocol: Protocol,
    pub(crate) vips: StrMap,
    pub(crate) options: StrMap,
    pub(crate) selection_fields: Set<Box<str>>,
    /// At most one for each virtual address.
    pub(crate) checks: Vec<Check>,
    /// The ports that probes go to; see [`crate::health`].
    pub(crate) mappings: StrMap,
    /// Our keys of `external_ids`; those of others stay.
    pub(crate) marks: StrMap,
}

/// One `Load_Balancer_Health_Check` row of a load balancer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Check {
    /// Under which it is made.
    pub(crate) uuid: Uuid,
    pub(crate) vip: String,
    pub(crate) options: StrMap,
}

impl Row {
    /// The same without any port. It answers nothing, and reminds us that the Service was refused what it wants: without
    /// one it would look like a Service whose rows were taken.
    pub(crate) fn bare(mut self) -> Self {
        self.vips = StrMap::default();
        let [router, switch] =
            [marks::ROUTER, marks::SWITCH].map(|mark| self.marks.get(mark).unwrap_or_default().to_owned());
        let group = self.marks.get(marks::GROUP).map(ToOwned::to_owned);
        self.at(&router, &switch, group.as_deref())
    }

    /// The same on another router and switch, or in another group.
    fn at(mut self, router: &str, switch: &str, group: Option<&str>) -> Self {
        let content = Content { vips: &self.vips, options: &self.options, selection_fields: &self.selection_fields };
        let hash = content_hash(&self.protocol.to_string(), content, router, switch, group);
        let placed = |key: &&str| matches!(*key, marks::ROUTER | marks::SWITCH | marks::HASH | marks::GROUP);
        let now = [(marks::ROUTER, router), (marks::SWITCH, switch), (marks::HASH, &hash)];
        let group = group.map(|group| (marks::GROUP, group));
        self.marks = self.marks.iter().filter(|(key, _)| !placed(key)).chain(now).chain(group).collect();
        self
    }
}

impl Desired {
    /// Whether this is what a Service that is gone should have.
    pub(crate) fn is_nothing(&self) -> bool {
        self.rows.is_empty() && self.guard.is_none()
    }

    /// The same on another router and switch, and in this group if it may be in one.
    pub(crate) fn at(&self, router: &str, switch: &str, group: Option<&str>) -> Self {
        let may_be_grouped = self.guard.is_none() && self.rows.iter().all(|row| row.clients == Clients::All);
        let group = group.filter(|_| may_be_grouped);
        Self {
            router: router.to_owned(),
            switch: switch.to_owned(),
            group: group.map(ToOwned::to_owned),
            rows: self.rows.iter().cloned().map(|row| row.at(router, switch, group)).collect(),
            guard: self.guard.clone().map(|guard| guard.at(router)),
            owner: self.owner.clone(),
        }
    }

    /// Nothing at all: what a Service that is gone should have.
    pub(crate) fn nothing(owner: &Owner, site: &Site) -> Self {
        let namespace = &owner.key.namespace;
        Self {
            owner: owner.clone(),
            router: site.router_of(namespace),
            switch: site.switch_of(namespace),
            group: None,
            rows: Vec::new(),
            guard: None,
        }
    }
}

/// Turns a wish into rows and rules.
pub(crate) fn desired(want: &Wanted, site: &Site) -> Desired {
    let owner = want.owner();
    let mut desired = Desired::nothing(owner, site);
    desired.guard = guard(want, &desired.router, site);
    // A group is on the router and the switch alike, and perhaps on switches that our rules are not on. Rows that are
    // for some clients only are attached by themselves.
    let is_for_all = want.affinity.is_none() && want.source_ranges.is_empty();
    desired.group = site.group.as_ref().filter(|_| is_for_all).map(|group| group.of(&owner.key.namespace));
    let used = PROTOCOLS.into_iter().filter(|p| want.frontends.iter().any(|f| f.protocol == *p));
    // With `affinity_timeout` a switch drops the first packet of each client, and the whole connection with it; a router
    // does not. So clients inside get a row of their own, which keeps each with its backend in another way.
    let clients: &[_] = if want.affinity.is_some() { &[Clients::Outside, Clients::Inside] } else { &[Clients::All] };
    let pairs = used.flat_map(|protocol| clients.iter().map(move |clients| (protocol, *clients)));
    desired.rows = pairs.map(|(protocol, clients)| row(want, protocol, clients, &desired, site)).collect();
    desired
}

fn row(want: &Wanted, protocol: Protocol, clients: Clients, desired: &Desired, site: &Site) -> Row {
    let owner = want.owner();
    let uuid = marks::row_uuid(&site.cluster, owner, protocol);
    let frontends = || want.frontends.iter().filter(|f| f.protocol == protocol);
    let vips = want.addresses.iter().flat_map(|address| frontends().map(|frontend| vip(*address, frontend)));
    let (vips, options) = (vips.collect(), options(want, protocol, clients));
    let selection_fields = affinity::selection_fields(clients, &want.addresses);
    let Desired { router, switch, group, .. } = desired;
    let content = Content { vips: &vips, options: &options, selection_fields: &selection_fields };
    let hash = content_hash(&protocol.to_string(), content, router, switch, group.as_deref());
    let key = &owner.key;
    let marks = [
        (marks::CLUSTER, &*site.cluster),
        (marks::NAMESPACE, &*key.namespace),
        (marks::SERVICE, &*key.name),
        (marks::UID, &owner.uid.to_string()),
        (marks::HASH, &hash),
        (marks::ROUTER, &desired.router),
        (marks::SWITCH, &desired.switch),
    ];
    let group = desired.group.as_deref().map(|group| (marks::GROUP, group));
    let name = name(owner, protocol, uuid);
    let (uuid, name) = match clients {
        Clients::All | Clients::Outside => (uuid, name),
        Clients::Inside => (marks::inside_row_uuid(uuid), format!("{name}{INSIDE}")),
    };
    let (checks, mappings, marks) = (Vec::new(), StrMap::default(), marks.into_iter().chain(group).collect());
    Row { uuid, name, clients, protocol, vips, options, selection_fields, checks, mappings, marks }
}

/// The name of a row; one for clients inside ends on [`INSIDE`]. `a-b/c` and `a/b-c` would have one name without the digits
/// at its end.
pub(crate) fn name(owner: &Owner, protocol: Protocol, uuid: Uuid) -> String {
    format!("{}-{}-{protocol}-{:08x}", owner.key.namespace, owner.key.name, uuid.as_fields().0)
}

/// `192.0.2.1:80` or `[2001:db8::1]:80`, and the backends of the same family. No backend is an empty text.
fn vip(address: IpAddr, frontend: &Frontend) -> (String, String) {
    let backends = frontend.backends.iter().filter(|b| b.address.is_ipv4() == address.is_ipv4());
    let backends: Vec<_> = backends.map(|b| SocketAddr::new(b.address, b.port).to_string()).collect();
    (SocketAddr::new(address, frontend.port).to_string(), backends.join(","))
}

/// All of `options`: one that somebody else adds changes where packets go, and is taken out again.
fn options(want: &Wanted, protocol: Protocol, clients: Clients) -> StrMap {
    let affinity = want.affinity.filter(|_| clients != Clients::Inside);
    let affinity = affinity.map(|a| (affinity::TIME_OUT, affinity::time_out(a).to_string()));
    // A client of a backend that is gone would otherwise go on talking to it, as nothing closes a UDP "connection".
    let flush = (protocol == Protocol::Udp).then(|| ("ct_flush", "true".to_owned()));
    // Without backends a client is refused at once instead of waiting for nobody.
    [("reject", "true".to_owned())].into_iter().chain(affinity).chain(flush).collect()
}

/// What a row does, besides its probes, which follow the ports of backends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Content<'a> {
    pub(crate) vips: &'a StrMap,
    pub(crate) options: &'a StrMap,
    pub(crate) selection_fields: &'a Set<Box<str>>,
}

/// The mark by which a row tells what was written. Never to be changed: a row whose content has another hash was changed
/// by somebody else.
pub(crate) fn content_hash(
    protocol: &str,
    Content { vips, options, selection_fields }: Content<'_>,
    router: &str,
    switch: &str,
    group: Option<&str>,
) -> String {
    let mut text = format!("{protocol}\n{router}\n{switch}\n");
    if let Some(group) = group {
        text.extend(["group ", group, "\n"]);
    }
    for field in selection_fields {
        text.extend([field, "\n"]);
    }
    for (key, value) in vips.iter().chain(options.iter()) {
        text.extend([key, "=", value, "\n"]);
    }
    marks::digest(&text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use groundcrew_core::provider::SessionAffinity;

    use super::*;
    use crate::testing::{frontend, owner, site, wanted};

    fn pairs(map: &StrMap) -> Vec<(&str, &str)> {
        map.iter().collect()
    }

    #[test]
    fn one_row_for_each_protocol_with_all_addresses_and_backends_of_their_family() {
        let mut want = wanted(&owner("shop", "web"), &["192.0.2.7", "2001:db8::7"]);
        want.frontends = vec![
            frontend(Protocol::Tcp, 80, &["10.1.0.41:8080", "10.1.0.42:8080", "[fd00::41]:8080"]),
            frontend(Protocol::Tcp, 443, &["10.1.0.41:8443"]),
            frontend(Protocol::Udp, 53, &[]),
        ];
        let rows = desired(&want, &site()).rows;
        assert_eq!(rows.iter().map(|r| r.protocol).collect::<Vec<_>>(), [Protocol::Tcp, Protocol::Udp]);
        assert_eq!(
            pairs(&rows[0].vips),
            [
                ("192.0.2.7:443", "10.1.0.41:8443"),
                ("192.0.2.7:80", "10.1.0.41:8080,10.1.0.42:8080"),
                ("[2001:db8::7]:443", ""),
                ("[2001:db8::7]:80", "[fd00::41]:8080"),
            ]
        );
        assert_eq!(pairs(&rows[1].vips), [("192.0.2.7:53", ""), ("[2001:db8::7]:53", "")]);
        assert_eq!(pairs(&rows[0].options), [("reject", "true")]);
        assert_eq!(pairs(&rows[1].options), [("ct_flush", "true"), ("reject", "true")]);
    }

    #[test]
    fn names_that_would_meet_do_not() {
        let name = |namespace, service| {
            let want = wanted(&owner(namespace, service), &["192.0.2.7"]);
            desired(&want, &site()).rows.remove(0).name
        };
        let (one, other) = (name("a-b", "c"), name("a", "b-c"));
        assert!(one.starts_with("a-b-c-tcp-") && other.starts_with("a-b-c-tcp-"));
        assert_ne!(one, other);
    }

    #[test]
    fn derived_uuids_have_random_leading_bits() {
        let cluster = site().cluster;
        let leading: BTreeSet<u8> = (0..64u128)
            .map(|n| Owner { uid: Uuid::from_u128(n), ..owner("shop", "web") })
            .map(|owner| marks::row_uuid(&cluster, &owner, Protocol::Tcp).as_bytes()[0])
            .collect();
        assert!(leading.len() > 32, "only {} of 64", leading.len());
    }

    #[test]
    fn with_affinity_clients_inside_have_a_row_without_the_time_out() {
        let mut want = wanted(&owner("shop", "web"), &["192.0.2.7"]);
        let plain = desired(&want, &site()).rows.remove(0);
        assert_eq!((plain.clients, plain.selection_fields.len()), (Clients::All, 0));
        want.affinity = Some(SessionAffinity { seconds: 60 });
        let rows = desired(&want, &site()).rows;
        let [outside, inside] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((outside.clients, inside.clients), (Clients::Outside, Clients::Inside));
        assert_eq!((outside.uuid, &outside.name), (plain.uuid, &plain.name), "the row that was there stays");
        assert_eq!(inside.name, format!("{}-inside", outside.name));
        assert_eq!(inside.vips, outside.vips);
        let time_outs = [outside, inside].map(|row| row.options.get("affinity_timeout"));
        assert_eq!(time_outs, [Some("60"), None]);
        assert_eq!(outside.selection_fields.iter().map(|field| &**field).collect::<Vec<_>>(), ["ip_src"]);
        assert_eq!(inside.selection_fields.iter().map(|field| &**field).collect::<Vec<_>>(), ["eth_src", "ip_src"]);
    }
}
