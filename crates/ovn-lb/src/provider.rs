//! OVN as a cloud that has load balancers.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::{self, BoxStream, StreamExt};
use groundcrew_api::names::annotation::{
    BIND_ON_DEFAULT_GW_EIP, BIND_ON_EIP, EXTERNAL_NETWORK_TYPE, HEALTH_CHECK, LB_RESYNC_TIMESTAMP,
};
use groundcrew_api::names::finalizer;
use groundcrew_core::drift::Attribute;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{
    Beside, Caveat, Difference, Held, Ingress, IpMode, Listing, Living, LoadBalancers, Look, Owned, Owner,
    ProviderError, Reachable, Routable, Verdict, Wanted,
};
use groundcrew_core::runtime::Readiness;
use ovsdb_client::{StrMap, Uuid};
use tokio::sync::{broadcast, watch};
use tracing::{debug, info};

use crate::addresses::{Addresses, bound_to, may_be_others};
use crate::affinity;
use crate::commit::{Committer, present_epoch};
use crate::contest::{self, Contest, Refused, contest};
use crate::desired::{Desired, Site, desired};
use crate::error::Error;
use crate::fence::fence;
use crate::health::{self, Probing};
use crate::looks::looks;
use crate::marks;
use crate::memo::{Known, Memos, Plans, Question};
use crate::northbound::{Kind, Northbound};
use crate::northd::Northd;
use crate::plan::{self, Legacy, Plan, Step, legacy, plan};
use crate::ports::Ports;
use crate::shift::Evidence;
use crate::unseen::Unseen;
use crate::view::View;
use crate::waiting::{Obstacle, Waiting};
use crate::ways;

/// Services that have no row because their source ranges could not be enforced: nobody else took it.
#[derive(Default)]
pub(crate) struct Closed(Mutex<HashSet<Uuid>>);

impl Closed {
    /// What stood in the way at its last look.
    fn note(&self, owner: &Owner, held: &[plan::Held]) {
        let mut closed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.iter().any(|held| matches!(held, plan::Held::Unguarded { .. })) {
            closed.insert(owner.uid);
        } else {
            closed.remove(&owner.uid);
        }
    }

    fn is(&self, want: &Wanted, site: &Site, nb: &Northbound) -> bool {
        let closed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        closed.contains(&want.owner().uid) && plan::ours(want.owner(), site, nb).is_empty()
    }
}

/// How often a reconcile plans again because somebody was quicker, before it gives way to others.
const ATTEMPTS: usize = 4;

pub(crate) struct Ovn {
    pub(crate) site: Site,
    pub(crate) view: View,
    pub(crate) committer: Committer,
    pub(crate) northd: Northd,
    pub(crate) addresses: Arc<Addresses>,
    /// The term whose living addresses are known.
    pub(crate) begun: watch::Sender<Option<Term>>,
    pub(crate) waiting: Waiting,
    pub(crate) unseen: Unseen,
    pub(crate) memos: Memos,
    pub(crate) plans: Plans,
    pub(crate) closed: Closed,
    pub(crate) refused: Refused,
    pub(crate) evidence: Arc<Evidence>,
    pub(crate) ports: Arc<Ports>,
    pub(crate) health_check_sources: Vec<IpAddr>,
    pub(crate) looks: broadcast::Sender<Look>,
    pub(crate) ready: Readiness,
    /// What must have been read once before anything is decided.
    pub(crate) needs: Vec<&'static str>,
}

impl Ovn {
    /// What should be there on this view of OVN, and what its user should know about it.
    fn wish(&self, want: &Wanted, nb: &Northbound) -> Result<(Desired, Vec<Caveat>), Error> {
        let (router, switch) = self.places_of(want, nb);
        let Contest { want: uncontested, refused, caveat: contested } = self.uncontested(want, &router)?;
        let has_lost_all = uncontested.frontends.is_empty() && !refused.is_empty();
        let reminder = has_lost_all.then(|| desired(want, &self.site).rows.swap_remove(0).bare());
        let (want, outside) = fence(&uncontested, &router, nb);
        let mut desired = desired(&want, &self.site);
        desired.rows.extend(reminder);
        let kept = self.addresses.kept(&want.ask);
        let mut caveats = self.addresses.caveats(&want.ask);
        caveats.extend(contested);
        caveats.extend(outside.into_iter().chain(kept).chain(self.missing_routes(&want, &router, nb)));
        caveats.extend(affinity::caveat(&want, nb.northd_release()));
        match health::asked(&want) {
            Ok(None) => {}
            Ok(Some(options)) => caveats.extend(self.probe(&mut desired, &options, (&router, &switch), nb)?),
            Err(caveat) => caveats.push(caveat),
        }
        caveats.extend(self.not_taken_over(&desired, nb));
        caveats.extend(self.namesake(&desired, nb));
        Ok((desired, caveats))
    }

    /// The router and the switch of a Service. While they cannot be told, those that its rows stay on.
    fn places_of(&self, want: &Wanted, nb: &Northbound) -> (String, String) {
        let (owner, site) = (want.owner(), &self.site);
        let (router, switch) = (site.router_of(&owner.key.namespace), site.switch_of(&owner.key.namespace));
        let routers = nb.places(Kind::Router, &router).len();
        if routers == 1 && nb.places(Kind::Switch, &switch).len() == 1 {
            return (router, switch);
        }
        let rows = plan::ours(owner, site, nb);
        if let Some(staying) = plan::staying(&desired(want, site), &rows, site, nb) {
            return (staying.router, staying.switch);
        }
        if routers > 0 {
            return (router, switch);
        }
        // One that was renamed.
        let rows: Vec<_> = rows.into_iter().map(|(row, _)| row).collect();
        let other = nb.serving(&router, &rows).into_iter().next();
        (other.map_or(router, |other| other.name.to_string()), switch)
    }

    /// The wish without ports that somebody else's load balancer has on its router.
    fn uncontested<'a>(&self, want: &'a Wanted, router: &str) -> Result<Contest<'a>, Error> {
        // The address of any other Service is its own, unless it shared one before and does not say so any more.
        if bound_to(&want.ask.annotations).is_none()
            && want.ask.share_with.is_none()
            && self.addresses.is_alone(want.owner())
        {
            return Ok(Contest { want: Cow::Borrowed(want), refused: contest::Ports::new(), caveat: None });
        }
        // First the word about what is waited for: a row that comes or goes from here on wakes us.
        for vip in contest::vips(want) {
            self.waiting.add(Obstacle::Vip(vip), &want.owner().key);
        }
        let uid = want.owner().uid;
        let left = contest(want, router, &self.site, &*self.view.now()?, &self.refused.of(uid))?;
        self.refused.note(uid, left.refused.clone());
        Ok(left)
    }

    /// Another row under the name of one of its own.
    fn namesake(&self, desired: &Desired, nb: &Northbound) -> Option<Caveat> {
        let mut named = desired.rows.iter().filter_map(|row| Some((&row.name, plan::namesake(row, &self.site, nb)?)));
        let (name, uuid) = named.next()?;
        let message =
            format!("another OVN load balancer, {uuid}, has the name {name} and is not ours; remove or rename it");
        Some(Caveat { reason: "NameShared", message, stops: false })
    }

    /// What keeps the backends of this Service from answering on its addresses.
    fn missing_routes(&self, want: &Wanted, router: &str, nb: &Northbound) -> Vec<Caveat> {
        if self.addresses.has_routers() {
            return self.addresses.missing_routes(want);
        }
        let missing = ways::missing(want, router, nb);
        if !missing.is_empty() {
            self.waiting.add(Obstacle::Ways, &want.owner().key);
        }
        missing
    }

    /// A row under the name that kube-dc had for this Service, but not with its addresses.
    fn not_taken_over(&self, desired: &Desired, nb: &Northbound) -> Option<Caveat> {
        let left = |row| match legacy(row, &desired.owner, nb) {
            Legacy::Anothers(uuid, name) => Some((uuid, name)),
            _ => None,
        };
        let (uuid, name) = desired.rows.iter().filter(|_| self.site.take_over).find_map(left)?;
        let message =
            format!("the OVN load balancer {name} ({uuid}) has none of the Service's addresses and is not taken over");
        Some(Caveat { reason: "TakeOverRefused", message, stops: false })
    }

    /// Sees to it that what its backends answer leaves by the network that it came from.
    fn steer(&self, want: &Wanted, nb: &Northbound) {
        let key = &want.owner().key;
        if self.addresses.leaves_elsewhere(key, &want.addresses) {
            self.addresses.note_routes(&fence(want, &self.places_of(want, nb).0, nb).0);
        } else {
            self.addresses.forget_routes(want.owner());
        }
    }

    /// Reads where backends are plugged in, if this one is to be probed.
    async fn read_ports(&self, want: &Wanted) {
        if matches!(health::asked(want), Ok(Some(_))) {
            self.ports.read().await;
        }
    }

    /// Adds health checks, and asks to be woken when a backend's port changes.
    fn probe(
        &self,
        desired: &mut Desired,
        options: &StrMap,
        (router, switch): (&str, &str),
        nb: &Northbound,
    ) -> Result<Vec<Caveat>, Error> {
        // First the word about what is waited for: a port that changes from here on wakes us.
        for backend in desired.rows.iter().flat_map(health::backends) {
            self.waiting.add(Obstacle::Port(backend), &desired.owner.key);
        }
        let ports = self.ports.last()?;
        Ok(health::add(
            desired,
            options,
            &Probing { nb, ports: &ports, router, switch, sources: &self.health_check_sources },
        ))
    }

    /// The steps for a Service that has its addresses, if nothing else is to be done for it.
    fn repair(&self, want: &Wanted, nb: &Northbound) -> Result<(Vec<Step>, Vec<Caveat>), Error> {
        if self.addresses.settled(&want.ask).as_ref() != Some(&want.addresses) {
            return Err(Error::Lost);
        }
        if let Some(planned) = self.plans.take(want.owner().uid, want.fingerprint()) {
            return Ok(planned);
        }
        let (desired, caveats) = self.wish(want, nb)?;
        let Plan { steps, held } = plan(&desired, &self.site, nb);
        match held.first() {
            Some(held) => Err(held.into()),
            None => Ok((steps, caveats)),
        }
    }

    /// Brings the rows to what they should be. What is in the way of some of them is told after the rest is done.
    async fn settle<T>(
        &self,
        wish: impl Fn(&Northbound) -> Result<(Desired, T), Error> + Sync,
        term: &Term,
    ) -> Result<T, Error> {
        for _ in 0..ATTEMPTS {
            let nb = self.view.now()?;
            let (desired, more) = wish(&nb)?;
            let mut found = plan(&desired, &self.site, &nb);
            if found.steps.is_empty() && desired.rows.is_empty() {
                // Nothing to take away, but an earlier write may still be on its way.
                self.committer.commit(Vec::new(), term).await?;
                found = plan(&desired, &self.site, &*self.view.now()?);
            }
            if !found.steps.is_empty() {
                debug!(service = %desired.owner, steps = found.steps.len(), "writing to OVN: {}", found.show());
                let under_way = self.unseen.write(vec![desired.owner.key.clone()], &self.view.replica, &self.looks);
                let committed = self.committer.commit(found.steps, term).await;
                drop(under_way);
                match committed {
                    Err(Error::Lost) => continue,
                    Err(error) => return Err(error),
                    Ok(Some(number)) => self.northd.wrote(&desired.owner, number),
                    Ok(None) => {}
                }
            }
            self.closed.note(&desired.owner, &found.held);
            let Some(held) = found.held.first() else { return Ok(more) };
            if self.still_held(&desired, &found.held)? {
                return Err(held.into());
            }
        }
        Err(Error::Lost)
    }

    fn reachable(&self, want: &Wanted, caveats: Vec<Caveat>) -> Reachable {
        // The packets that a node sees were addressed by OVN: it must not take the address for its own.
        let ingress = want.addresses.iter().map(|address| Ingress { address: *address, mode: IpMode::Proxy }).collect();
        let realised = self.northd.realised(&want.owner().key);
        Reachable { ingress, realised, routable: Routable::Unasked, caveats }
    }

    /// Says what is waited for, and then looks once more: what comes before it is said wakes nobody.
    fn still_held(&self, desired: &Desired, held: &[plan::Held]) -> Result<bool, Error> {
        for held in held {
            self.waiting.add(Obstacle::from(held), &desired.owner.key);
        }
        Ok(plan(desired, &self.site, &*self.view.now()?).held == held)
    }
}

impl Plan {
    fn show(&self) -> String {
        self.steps.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

/// Whether its own rows, its router and its switch are all that its comparison looks at.
fn is_plain(want: &Wanted) -> bool {
    want.source_ranges.is_empty() && want.ask.annotations.is_empty() && want.ask.share_with.is_none()
}

impl LoadBalancers for Ovn {
    async fn begin(&self, term: &Term, living: &[Living]) -> Result<(), ProviderError> {
        let nb = self.view.now()?;
        self.evidence.starts(living, &nb, present_epoch(&nb, &self.site.cluster)?.is_some());
        drop(nb);
        // First the epoch: from here on no write of an older term can follow what is read next.
        self.committer.begin(term).await?;
        self.addresses.begin(term, living).await?;
        // After it: whose addresses our own rows have is known now.
        self.addresses.avoid(&*self.view.now()?, &self.site.cluster);
        self.begun.send_replace(Some(term.clone()));
        self.addresses.begun(living);
        self.evidence.started();
        Ok(())
    }

    async fn hold(&self, want: &Wanted, term: &Term) -> Result<Held, ProviderError> {
        self.read_ports(want).await;
        // What cannot be served takes no address.
        self.wish(want, &*self.view.now()?)?;
        if self.addresses.is_to_move(&want.ask) {
            // The row first, as in the end: the address that it leaves may be somebody else's soon.
            let staying = Wanted { addresses: want.ask.current.clone(), ..want.clone() };
            if staying.addresses.is_empty() {
                self.settle(|_| Ok((Desired::nothing(want.owner(), &self.site), ())), term).await?;
            } else {
                self.settle(|nb| self.wish(&staying, nb), term).await?;
            }
        }
        let held = match self.addresses.hold(&want.ask, term).await {
            Err(Error::SubnetNotConnected { .. }) => {
                // First the word about what is waited for; whatever connects the router before it wakes nobody.
                let key = &want.owner().key;
                self.waiting.add(Obstacle::Ports(self.site.router_of(&key.namespace)), key);
                self.addresses.hold(&want.ask, term).await
            }
            held => held,
        };
        Ok(Held { addresses: held? })
    }

    async fn ensure(&self, want: &Wanted, term: &Term) -> Result<Reachable, ProviderError> {
        self.read_ports(want).await;
        let caveats = self.settle(|nb| self.wish(want, nb), term).await?;
        if want.ask.current.is_empty() {
            self.northd.found(want.owner());
        }
        // Its rows do not have them any more.
        self.addresses.release_surplus(&want.ask, term).await?;
        self.steer(want, &*self.view.now()?);
        Ok(self.reachable(want, caveats))
    }

    /// What is in the way of one of them, or already in order, is left to a look of its own.
    async fn ensure_all(&self, wants: &[Wanted], term: &Term) -> Vec<Result<Reachable, ProviderError>> {
        let nb = self.view.now();
        let mut steps = Vec::with_capacity(wants.len());
        let mut planned = Vec::with_capacity(wants.len());
        for want in wants {
            let repair = nb.as_ref().map_err(Clone::clone).and_then(|nb| self.repair(want, nb));
            planned.push(repair.map(|(these, caveats)| {
                steps.push(these);
                caveats
            }));
        }
        drop(nb);
        let services = wants.iter().map(|want| want.owner().key.clone()).collect();
        let under_way = self.unseen.write(services, &self.view.replica, &self.looks);
        let mut outcomes = self.committer.commit_all(steps, term).await.into_iter();
        drop(under_way);
        let answers = wants.iter().zip(planned).map(|(want, planned)| {
            let caveats = planned?;
            // What is published already was taken once; a repair says nothing about that.
            outcomes.next().unwrap_or(Err(Error::Lost))?;
            self.closed.note(want.owner(), &[]);
            Ok(self.reachable(want, caveats))
        });
        answers.collect()
    }

    fn shares_writes(&self) -> bool {
        true
    }

    fn attribution(&self) -> Arc<dyn Attribute> {
        self.evidence.clone()
    }

    /// The row first: an address that is given to somebody else must not answer here any more.
    async fn release(&self, owner: &Owner, term: &Term) -> Result<(), ProviderError> {
        self.settle(|_| Ok((Desired::nothing(owner, &self.site), ())), term).await?;
        self.northd.forget(owner);
        self.memos.forget(owner.uid);
        self.plans.forget(owner.uid);
        self.closed.note(owner, &[]);
        self.refused.note(owner.uid, contest::Ports::new());
        Ok(self.addresses.release(owner, term).await?)
    }

    async fn release_inherited(&self, owner: &Owner, addresses: &[IpAddr], term: &Term) -> Result<(), ProviderError> {
        // A change of its type takes away what it had published.
        let had: Vec<_> = addresses.iter().copied().chain(self.addresses.said_of(owner)).collect();
        let is_anothers = |address| self.addresses.is_anothers(owner, address);
        let steps = plan::discard(owner, &had, is_anothers, &*self.view.now()?)?;
        if !steps.is_empty() {
            info!(service = %owner, rows = steps.len(), "taking away what kube-dc left for a Service that goes");
            self.committer.commit(steps, term).await?;
        }
        self.release(owner, term).await
    }

    fn verify(&self, want: &Wanted) -> Verdict {
        let Ok(nb) = self.view.now() else { return Verdict::Unknown };
        let (Owner { key, uid }, fingerprint) = (want.owner(), want.fingerprint());
        // Before they are asked: what changes meanwhile is another version's.
        let addresses = self.addresses.version();
        if addresses.is_some_and(|version| self.memos.stands(*uid, fingerprint, version, &nb)) {
            return Verdict::Same(self.reachable(want, Vec::new()));
        }
        let settled = self.addresses.settled(&want.ask);
        if settled.is_none() && self.begun.borrow().is_some() && self.addresses.is_to_ask(&want.ask) {
            // Whether it differs is known once somebody has asked: there may be nothing more for it.
            return Verdict::Unknown;
        }
        let (router, switch) = (self.site.router_of(&key.namespace), self.site.switch_of(&key.namespace));
        let question = Question { uid: *uid, fingerprint, router: &router, switch: &switch, addresses, nb: &nb };
        // What is said about addresses at kube-ovn, and about routes, is no part of the memo.
        let is_safe = self.addresses.caveats(&want.ask).is_empty()
            && !self.addresses.leaves_elsewhere(key, &want.addresses)
            && !ways::are_several(&router, &nb);
        if !is_safe {
            // Else what was seen before would be taken for all of it when it is safe again.
            self.memos.forget(*uid);
        }
        let is_settled = settled.as_ref() == Some(&want.addresses) && is_safe;
        let known =
            if is_settled { self.memos.ask(&question, want.owner(), &self.site.cluster) } else { Known::Nothing };
        let wish = match known {
            Known::Same => {
                self.plans.forget(*uid);
                return Verdict::Same(self.reachable(want, Vec::new()));
            }
            Known::Other(rows) => {
                let (owner, router, switch) = (want.owner().clone(), router.clone(), switch.clone());
                Ok((Desired { owner, router, switch, group: None, rows, guard: None }, Vec::new()))
            }
            Known::Nothing => self.wish(want, &nb),
        };
        let (mut differences, caveats) = match wish {
            Ok((desired, caveats)) => {
                let plan = plan(&desired, &self.site, &nb);
                let differences = plan.differences();
                if plan.held.is_empty() && !plan.steps.is_empty() && self.begun.borrow().is_some() {
                    self.plans.keep(*uid, fingerprint, plan.steps, caveats.clone());
                } else {
                    // One of an earlier look would be carried out in its place.
                    self.plans.forget(*uid);
                }
                (differences, caveats)
            }
            Err(Error::OutOfSight { .. }) => return Verdict::Unknown,
            Err(error) => {
                self.plans.forget(*uid);
                let expected = "a Service that can be served".into();
                (vec![Difference { kind: "refused", expected, found: error.to_string() }], Vec::new())
            }
        };
        if settled.as_ref() != Some(&want.addresses) {
            let found = settled.map_or_else(|| "no EIp says so".to_owned(), |found| format!("{found:?}"));
            differences.push(Difference { kind: "address", expected: format!("{:?}", want.addresses), found });
        }
        self.steer(want, &nb);
        if differences.is_empty() {
            let is_plain = is_plain(want) && self.addresses.is_alone(want.owner());
            if is_safe && caveats.is_empty() && is_plain && !self.site.take_over && self.site.group.is_none() {
                self.memos.note(&question);
            }
            Verdict::Same(self.reachable(want, caveats))
        } else {
            Verdict::Differs(differences)
        }
    }

    fn is_as_left(&self, want: &Wanted) -> bool {
        self.view
            .now()
            .map_or(true, |nb| self.closed.is(want, &self.site, &nb) || plan::is_as_left(want, &self.site, &nb))
    }

    /// Backends follow the router's networks and others' load balancers, the places in the marks follow kube-ovn, and what
    /// cannot be closed to some is closed to all. An older state of the database is nobody's wish.
    fn may_move_on(&self, differences: &[Difference]) -> bool {
        let follows = |difference: &Difference| {
            matches!(
                difference.kind,
                "vips"
                    | "marks"
                    | "row_left"
                    | "router_missing"
                    | "switch_missing"
                    | "router_ambiguous"
                    | "switch_ambiguous"
            )
        };
        differences.iter().any(follows) && !self.evidence.is_replaced()
    }

    fn holds(&self, owner: &Owner, address: IpAddr) -> bool {
        self.addresses.holds(owner, address)
    }

    fn beside(&self, owner: &Owner, named: Option<&str>) -> Beside {
        self.addresses.beside(owner, named)
    }

    async fn owned(&self) -> Result<Listing<Owned>, ProviderError> {
        let mut items = self.addresses.owned();
        items.extend(self.addresses.forgotten().await);
        let Ok(nb) = self.view.now() else { return Ok(Listing::incomplete(items)) };
        let rows = nb.load_balancers.iter().filter_map(|(_, row)| {
            let owner = marks::owner(&row.external_ids, &self.site.cluster)?;
            Some(Owned { owner, what: format!("load balancer {}", row.name), unused: false })
        });
        items.extend(rows);
        let groups = nb.port_groups.iter().filter_map(|(_, group)| {
            let owner = marks::owner(&group.external_ids, &self.site.cluster)?;
            Some(Owned { owner, what: format!("port group {}", group.name), unused: false })
        });
        items.extend(groups);
        Ok(Listing::complete(items))
    }

    fn changes(&self) -> BoxStream<'static, Look> {
        let (cluster, waiting, unseen) = (self.site.cluster.clone(), self.waiting.clone(), self.unseen.clone());
        let (evidence, addresses) = (self.evidence.clone(), self.addresses.clone());
        let rows = self.view.replica.changes().into_stream().flat_map(move |changed| {
            let mut look = looks(&changed.before, &changed.after, &changed.rows, &cluster, &waiting);
            let in_passing = unseen.passed(changed.after.generation(), &mut look);
            if may_be_others(&changed, &cluster) || addresses.may_be_strays(&changed, &cluster) {
                addresses.others.notify_one();
            }
            // What our own writes changed is evidence of nobody.
            evidence.add(changed, look.is_some());
            stream::iter(look.into_iter().chain(in_passing))
        });
        let addresses = stream::unfold(self.looks.subscribe(), |mut looks| async move {
            match looks.recv().await {
                Ok(look) => Some((look, looks)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((Look::Everywhere, looks)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        });
        stream::select(rows, addresses).boxed()
    }

    async fn synced(&self) {
        self.ready.until_done(&self.needs).await;
    }

    fn named_address(&self, annotations: &BTreeMap<Box<str>, Box<str>>) -> Option<String> {
        bound_to(annotations).map(ToOwned::to_owned)
    }

    fn is_on(&self, owner: &Owner, name: &str) -> bool {
        self.addresses.is_on(owner, name)
    }

    /// As many as share a transaction well, and no more than an API server takes at once.
    fn concurrency(&self) -> usize {
        128
    }

    fn takes_over(&self) -> &'static [&'static str] {
        if self.site.take_over { &[finalizer::KUBE_DC_SERVICE] } else { &[] }
    }

    fn annotation_prefixes(&self) -> &'static [&'static str] {
        &[BIND_ON_EIP, BIND_ON_DEFAULT_GW_EIP, EXTERNAL_NETWORK_TYPE, HEALTH_CHECK, LB_RESYNC_TIMESTAMP]
    }
}
