//! The verbs of the Service controller, on CloudSigma.
//!
//! ```text
//! Wanted --hold--> mark in the account --ensure--> FloatingIP --moves--> holder --node agent--> status --> Service
//! ```
//!
//! Who holds an address is decided elsewhere ([`moves`](crate::moves)); a Service is published when its node has said that
//! it does.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use groundcrew_api::floating_ip::{FloatingIP, NatPort};
use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::{
    Beside, Caveat, Difference, Held, Ingress, IpMode, Listing, Living, LoadBalancers, Look, Owned, Owner,
    ProviderError, Reachable, Realised, Routable, Verdict, Wanted,
};
use groundcrew_core::runtime::Readiness;
use jiff::Timestamp;
use tokio::sync::broadcast;
use tracing::{info, warn};

use crate::addresses::{Addresses, KEEP, families, keeps, pool};
use crate::client::Kind;
use crate::error::Error;
use crate::floating::{self, Floating, Word, claimed, owner, unusable, word};
use crate::inventory::Inventory;
use crate::marks::{Claim, Mark};
use crate::pool::ANNOTATION;
use crate::reach::Reach;
use crate::reachability::Reachability;
use crate::troubles::Troubles;
use crate::wishes::Wishes;

pub(crate) struct CloudSigma {
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) floating: Floating,
    pub(crate) wishes: Arc<Wishes>,
    pub(crate) reach: Arc<dyn Reach>,
    pub(crate) troubles: Troubles,
    /// What somebody outside says, where somebody is asked.
    pub(crate) reachability: Option<Reachability>,
    /// Whether nodes balance by themselves.
    pub(crate) nat: bool,
    /// How long a node may take to confirm before that is told.
    pub(crate) patience: Duration,
    /// How long before its end a subscription is warned about.
    pub(crate) expiry_warning: Duration,
    /// Addresses that no node has confirmed, and since when.
    pub(crate) awaited: Mutex<BTreeMap<IpAddr, Moment>>,
    pub(crate) looks: broadcast::Sender<Look>,
    pub(crate) ready: Readiness,
    pub(crate) needs: &'static [&'static str],
}

impl CloudSigma {
    /// What all who share the address want of the node itself; `None` while that is not known.
    fn nat(&self, address: IpAddr, claim: &Claim) -> Option<Vec<NatPort>> {
        if self.nat { self.wishes.nat(address, claim.owners.keys()) } else { Some(Vec::new()) }
    }

    /// What to publish, or why nothing can be yet.
    fn reachable(&self, want: &Wanted, inventory: &Inventory) -> Result<Reachable, Error> {
        let published = !want.ask.current.is_empty();
        let mut caveats = self.caveats(want, inventory);
        let mut realised = Realised::Yes;
        for address in &want.addresses {
            let said = self.floating.get(*address).map_or(Word::NoHolder, |object| word(&object));
            let trouble = self.troubles.get(*address);
            if said == Word::Confirmed {
                self.awaited().remove(address);
                // It should be elsewhere, and is served where it is.
                caveats.extend(trouble.map(|error| Caveat { stops: false, ..caveat(error) }));
                continue;
            }
            if trouble.is_none() && self.waits(*address, &want.owner().key) {
                realised = Realised::Awaited;
                continue;
            }
            let error = trouble.unwrap_or_else(|| match said {
                Word::Awaited { node, said } => Error::NotConfirmed { address: *address, node, said },
                _ => Error::NoNode { address: *address, why: "none is ready, allowed and has a living agent".into() },
            });
            if !published {
                return Err(error);
            }
            caveats.push(caveat(error));
        }
        // What balances in the node itself is not to be short-cut by a proxy on another one.
        let mode = if self.nat { IpMode::Proxy } else { IpMode::Vip };
        let ingress = want.addresses.iter().map(|address| Ingress { address: *address, mode }).collect();
        Ok(Reachable { ingress, realised, routable: self.routable(want), caveats })
    }

    /// Whether it is too early to call it odd that nobody has confirmed an address. The Service is looked at when it is not.
    fn waits(&self, address: IpAddr, service: &groundcrew_core::key::ServiceKey) -> bool {
        let now = Moment::now();
        let mut awaited = self.awaited();
        let since = *awaited.entry(address).or_insert_with(|| {
            let (looks, service, patience) = (self.looks.clone(), service.clone(), self.patience);
            tokio::spawn(async move {
                tokio::time::sleep(patience).await;
                // Nobody listens any more when the process ends.
                let _ = looks.send(Look::At(service));
            });
            now
        });
        since.until(now) < self.patience
    }

    fn awaited(&self) -> std::sync::MutexGuard<'_, BTreeMap<IpAddr, Moment>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What somebody outside said about the Service's addresses.
    fn routable(&self, want: &Wanted) -> Routable {
        let Some(reachability) = &self.reachability else { return Routable::Unasked };
        let said: Vec<_> = want.addresses.iter().map(|address| (address, reachability.of(*address))).collect();
        if let Some((address, _)) = said.iter().find(|(_, reached)| *reached == Some(false)) {
            return Routable::No(lost(**address));
        }
        if said.iter().all(|(_, reached)| *reached == Some(true)) { Routable::Yes } else { Routable::AsTold }
    }

    /// What the Service's user should know about its addresses.
    fn caveats(&self, want: &Wanted, inventory: &Inventory) -> Vec<Caveat> {
        let now = Timestamp::now();
        let mut caveats = Vec::new();
        for address in &want.addresses {
            if self.reachability.as_ref().and_then(|outside| outside.of(*address)) == Some(false) {
                caveats.push(Caveat { reason: "NotRoutable", message: lost(*address), stops: true });
            }
            let Some(ip) = inventory.ips.get(address) else {
                if !inventory.complete {
                    continue;
                }
                let message = format!("{address} is not in the CloudSigma account any more: its subscription is over");
                caveats.push(Caveat { reason: "AddressGone", message, stops: true });
                continue;
            };
            if !ip.subscribed {
                let message = format!(
                    "{address} is a dynamic address: CloudSigma does not let it move to another server, so that it is \
                     gone while its node is"
                );
                caveats.push(Caveat { reason: "DynamicAddress", message, stops: false });
                continue;
            }
            let Some(paid) = inventory.subscriptions.get(address) else { continue };
            if paid.is_over(now) {
                let message =
                    format!("the subscription of {address} is over; renew it: NICs in manual mode cannot use it");
                caveats.push(Caveat { reason: "SubscriptionExpired", message, stops: true });
            } else if let Some(end) = paid.end_time
                && !paid.auto_renew
                && end <= now + self.expiry_warning
            {
                let message = format!("the subscription of {address} ends at {end:.0} and does not renew itself");
                caveats.push(Caveat { reason: "SubscriptionExpires", message, stops: false });
            }
        }
        caveats
    }

    /// What is not as this Service wants it.
    fn differences(&self, want: &Wanted, inventory: &Inventory) -> Vec<Difference> {
        let owner = want.owner();
        let mut differences = Vec::new();
        for v6 in families(want.ask.families) {
            if !want.addresses.iter().any(|address| address.is_ipv6() == *v6) {
                let family = if *v6 { "IPv6" } else { "IPv4" };
                differences.push(difference("address", format!("an {family} address"), "none".into()));
            }
        }
        for address in self.surplus(want, inventory) {
            differences.push(difference("address", format!("no address like {address}"), "it is held".into()));
        }
        for address in want.addresses.iter().filter(|address| want.ask.families.contains(**address)) {
            let claim = match inventory.ips.get(address).map(|ip| self.addresses.mark(ip)) {
                Some(Mark::Ours(claim)) if claim.owners.contains_key(&owner.uid) => claim,
                // Said as a caveat: there is nothing to put right.
                None => continue,
                Some(mark) => {
                    differences.push(difference(
                        "mark",
                        format!("{address} is marked as {owner}'s"),
                        format!("{mark:?}"),
                    ));
                    continue;
                }
            };
            if !claim.keeps_as(owner, keeps(&want.ask)) {
                differences.push(difference("keep", format!("{KEEP} as the Service says"), "another".into()));
            }
            if !self.floating.suits(*address, &claim, self.nat(*address, &claim).as_deref()) {
                differences.push(difference(
                    "floating_ip",
                    format!("a FloatingIP for {address}"),
                    "none like it".into(),
                ));
            }
        }
        differences
    }

    /// A `FloatingIP` for each address, as all who share it want it. The account by which that was found.
    async fn ensure_objects(&self, want: &Wanted, term: &Term) -> Result<Arc<Inventory>, Error> {
        self.wishes.set(want);
        let inventory = self.addresses.read()?;
        for address in &want.addresses {
            let claim = match inventory.ips.get(address).map(|ip| self.addresses.mark(ip)) {
                Some(Mark::Ours(claim)) => claim,
                _ => Claim::default(),
            };
            let nat = self.nat(*address, &claim);
            if !self.floating.suits(*address, &claim, nat.as_deref()) {
                self.floating.ensure(*address, want.owner(), nat.as_deref(), term).await?;
            }
        }
        Ok(inventory)
    }

    /// What is there for this Service in a family that it asks for no more.
    fn surplus(&self, want: &Wanted, inventory: &Inventory) -> Vec<IpAddr> {
        let mut held = self.held_by(want.owner(), inventory);
        held.retain(|address| !want.ask.families.contains(*address));
        held
    }

    async fn release_held(&self, address: IpAddr, owner: &Owner, term: &Term) -> Result<(), Error> {
        self.awaited().remove(&address);
        self.troubles.set(address, None);
        self.release_one(address, owner, term).await?;
        info!(%address, %owner, "released");
        Ok(())
    }

    /// Takes an address from whoever answers on it, and then its mark. Each step is found again by who comes after a crash.
    async fn release_one(&self, address: IpAddr, owner: &Owner, term: &Term) -> Result<(), Error> {
        let mark = match self.addresses.client.ip(address).await {
            Ok(ip) => {
                self.addresses.account.note(&ip);
                self.addresses.mark(&ip)
            }
            Err(error) if error.kind() == Kind::NotFound => Mark::None,
            Err(error) => return Err(error.into()),
        };
        let other = match &mark {
            Mark::Ours(claim) => claim.owners().find(|other| other.uid != owner.uid),
            // Somebody took our mark away and put his there: what answers here is ours all the same.
            Mark::None | Mark::Foreign(_) => None,
        };
        if let Some(other) = other {
            // Who shares it has it from now on.
            if self.floating.get(address).and_then(|object| self::owner(&object)).as_ref() == Some(owner) {
                self.floating.ensure(address, &other, None, term).await?;
            }
        } else if let Some(object) = self.floating.read(address).await?.filter(|object| self.floating.is_ours(object)) {
            self.vacate(address, &object, &mark, term).await?;
        }
        self.addresses.unmark(address, owner, term).await
    }

    /// Sees to it that nobody of ours answers for the address, and removes its object.
    async fn vacate(&self, address: IpAddr, object: &FloatingIP, mark: &Mark, term: &Term) -> Result<(), Error> {
        if let Some(node) = &object.spec.holder {
            self.floating.assign(object, None, None, term).await?;
            return Err(Error::NotLetGo { address, node: node.clone() });
        }
        if let Some(node) = claimed(object) {
            return Err(Error::NotLetGo { address, node: node.to_owned() });
        }
        match self.reach.withdraw(address, floating::server(object), term).await {
            // By whoever has it now.
            Err(Error::AttachedElsewhere { .. }) if matches!(mark, Mark::Foreign(_)) => {}
            withdrawn => withdrawn?,
        }
        self.floating.delete(object, term).await
    }

    /// Gives back an address that somebody else answers for, or that a node has as its own: of NICs in manual mode the cloud
    /// does not tell. The Service gets another one then. What is published, asked for or shared stays, and is told.
    async fn give_back_unusable(&self, want: &Wanted, term: &Term) -> Result<(), Error> {
        let (ask, owner) = (&want.ask, want.owner());
        if !ask.current.is_empty() || !ask.requested.is_empty() || ask.share_with.is_some() {
            return Ok(());
        }
        let inventory = self.addresses.read()?;
        for address in self.addresses.marked(&inventory, owner.uid) {
            let mark = inventory.ips.get(&address).map_or(Mark::None, |ip| self.addresses.mark(ip));
            let alone = matches!(&mark, Mark::Ours(claim) if claim.owners.len() == 1);
            let object = self.floating.get(address).filter(|object| self.floating.is_ours(object));
            if let Some(said) = object.as_deref().and_then(unusable).filter(|_| alone) {
                warn!(%address, %owner, said, "it cannot be used; taking another one");
                self.addresses.shun(address);
            }
            if !alone || !self.addresses.shunned().contains(&address) {
                continue;
            }
            // What nobody wants is not placed again.
            self.wishes.forget(owner.uid);
            if let Some(object) = self.floating.read(address).await?.filter(|object| self.floating.is_ours(object)) {
                self.vacate(address, &object, &mark, term).await?;
            }
            self.addresses.give_up(address, owner, term).await?;
            self.awaited().remove(&address);
            self.troubles.set(address, None);
        }
        Ok(())
    }

    /// The addresses that carry this owner's mark, as they were last read.
    fn claims(&self, owner: &Owner) -> Vec<(IpAddr, Claim)> {
        let Ok(inventory) = self.addresses.read() else { return Vec::new() };
        let marked = inventory.ips.values().filter_map(|ip| match self.addresses.mark(ip) {
            Mark::Ours(claim) if claim.owners.contains_key(&owner.uid) => Some((ip.address, claim)),
            _ => None,
        });
        marked.collect()
    }

    /// Everything that is there for this owner.
    fn held_by(&self, owner: &Owner, inventory: &Inventory) -> Vec<IpAddr> {
        let mut held = self.addresses.marked(inventory, owner.uid);
        let made = self.floating.ours().into_iter().filter(|(_, object)| self::owner(object).as_ref() == Some(owner));
        held.extend(made.map(|(address, _)| address));
        held.sort_unstable();
        held.dedup();
        held
    }
}

fn lost(address: IpAddr) -> String {
    format!(
        "{address} is on its node, but not reached from outside: CloudSigma does not route it, or a firewall is in the way; \
         ask its support"
    )
}

fn difference(kind: &'static str, expected: String, found: String) -> Difference {
    Difference { kind, expected, found }
}

fn caveat(error: Error) -> Caveat {
    let error = ProviderError::from(error);
    Caveat { reason: error.response().reason, message: error.to_string(), stops: true }
}

impl LoadBalancers for CloudSigma {
    async fn begin(&self, _: &Term, living: &[Living]) -> Result<(), ProviderError> {
        Ok(self.addresses.begin(living).await?)
    }

    async fn hold(&self, want: &Wanted, term: &Term) -> Result<Held, ProviderError> {
        self.give_back_unusable(want, term).await?;
        let (addresses, lacking) = self.addresses.hold(&want.ask, term).await?;
        let Some(error) = lacking else { return Ok(Held { addresses }) };
        // What it has is kept right all the same.
        self.ensure_objects(&Wanted { addresses, ..want.clone() }, term).await?;
        Err(error.into())
    }

    async fn ensure(&self, want: &Wanted, term: &Term) -> Result<Reachable, ProviderError> {
        let inventory = self.ensure_objects(want, term).await?;
        // Before it is unpublished: after that nobody would look for it any more.
        for address in self.surplus(want, &inventory) {
            self.release_held(address, want.owner(), term).await?;
        }
        Ok(self.reachable(want, &inventory)?)
    }

    async fn release(&self, owner: &Owner, term: &Term) -> Result<(), ProviderError> {
        // Before anything else: what nobody wants is not placed again.
        self.wishes.forget(owner.uid);
        // On half a view something would be left behind.
        let inventory = self.addresses.read_whole().await?;
        for address in self.held_by(owner, &inventory) {
            self.release_held(address, owner, term).await?;
        }
        self.addresses.forget(owner.uid);
        Ok(())
    }

    fn verify(&self, want: &Wanted) -> Verdict {
        self.wishes.set(want);
        let Ok(inventory) = self.addresses.read() else { return Verdict::Unknown };
        if let Err(error) = pool(&want.ask) {
            return Verdict::Differs(vec![difference(
                "refused",
                "a Service that can be served".into(),
                error.to_string(),
            )]);
        }
        let differences = self.differences(want, &inventory);
        if !differences.is_empty() {
            return Verdict::Differs(differences);
        }
        match self.reachable(want, &inventory) {
            Ok(reachable) => Verdict::Same(reachable),
            Err(_) => Verdict::Unknown,
        }
    }

    fn holds(&self, owner: &Owner, address: IpAddr) -> bool {
        self.claims(owner).iter().any(|(marked, _)| *marked == address)
    }

    fn beside(&self, owner: &Owner, _: Option<&str>) -> Beside {
        let shared = self.claims(owner).into_iter().filter(|(_, claim)| claim.owners.len() > 1);
        Beside {
            services: shared.flat_map(|(_, claim)| claim.owners().collect::<Vec<_>>()).collect(),
            names: Vec::new(),
        }
    }

    async fn owned(&self) -> Result<Listing<Owned>, ProviderError> {
        let read = self.addresses.account.refresh(&self.addresses.client).await.map_err(Error::from)?;
        let marked = read.ips.values().flat_map(|ip| match self.addresses.mark(ip) {
            Mark::Ours(claim) => claim.owners().map(|owner| (owner, ip.address)).collect(),
            _ => Vec::new(),
        });
        let made = self.floating.ours().into_iter();
        let made = made.filter_map(|(address, object)| Some((owner(&object)?, address)));
        let items = marked
            .chain(made)
            .map(|(owner, address)| Owned { owner, what: format!("address {address}"), unused: false })
            .collect();
        Ok(Listing { items, complete: read.complete })
    }

    fn changes(&self) -> BoxStream<'static, Look> {
        let told = stream::unfold(self.looks.subscribe(), |mut looks| async move {
            match looks.recv().await {
                Ok(look) => Some((look, looks)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((Look::Everywhere, looks)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        });
        // Servers say something new at every reading; only what Services depend on is worth a look at all of them.
        let account = self.addresses.account.changes();
        let known = self.addresses.account.last();
        let read = stream::unfold((account, known), |(mut account, known)| async move {
            loop {
                account.changed().await.ok()?;
                let now = account.borrow_and_update().clone();
                let parts =
                    |of: &Option<Arc<Inventory>>| of.as_ref().map(|of| (of.ips.clone(), of.subscriptions.clone()));
                if parts(&now) != parts(&known) {
                    return Some((Look::Everywhere, (account, now)));
                }
            }
        });
        stream::select(told, read).boxed()
    }

    async fn synced(&self) {
        self.ready.until_done(self.needs).await;
    }

    /// Each is some requests to a slow API.
    fn concurrency(&self) -> usize {
        16
    }

    fn annotation_prefixes(&self) -> &'static [&'static str] {
        &[ANNOTATION, KEEP]
    }
}

/// Whether the cloud forbids to move an address, or nobody knows whether it does.
pub(crate) fn is_pinned(address: IpAddr, inventory: Option<&Inventory>) -> bool {
    inventory.and_then(|inventory| inventory.ips.get(&address)).is_none_or(|ip| !ip.subscribed)
}
