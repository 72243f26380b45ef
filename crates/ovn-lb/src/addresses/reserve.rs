//! What is asked of whoever gives out addresses, where that is not the pools: kube-ovn.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{AddressAsk, Caveat, Owner, Wanted};

use super::book::{Made, Need};
use super::eip::EipKey;
use super::lack::Lack;
use super::{Addresses, State};
use crate::error::Error;
use crate::kube_ovn::KubeOvn;

impl Addresses {
    /// The type that is named, else the configured one, else the one that the project leaves by.
    pub(super) fn network_type(&self, namespace: &str, named: Option<&str>) -> Option<Box<str>> {
        let chosen = named.filter(|named| !named.is_empty()).or(self.network_type.as_deref());
        chosen.map(Into::into).or_else(|| self.projects.egress_of(namespace))
    }

    /// Who gives out new addresses, if it is not the pools.
    pub(super) fn giver(&self) -> Option<&Arc<KubeOvn>> {
        self.kube_ovn.as_ref().filter(|_| !self.from_pools)
    }

    /// Who is to give this address to nobody else. What kube-ovn gave is its own to hold, wherever new ones are from.
    pub(super) fn keeper(&self, made: &Made) -> Option<&Arc<KubeOvn>> {
        let is_theirs = |kube_ovn: &KubeOvn| made.is_child || kube_ovn.may_be_from(&made.reference);
        self.kube_ovn.as_ref().filter(|kube_ovn| !self.from_pools || is_theirs(kube_ovn))
    }

    /// An address from kube-ovn that nobody uses, and the `OvnEip` that holds it.
    pub(super) async fn reserve(
        &self,
        owner: &Owner,
        need: &Need,
        kube_ovn: &KubeOvn,
        term: &Term,
    ) -> Result<(Arc<str>, IpAddr), Error> {
        if let Some(requested) = need.requested {
            let state = self.lock();
            state.book.check_unused(requested, &owner.key.namespace)?;
            state.book.check_not_taken(requested, &need.eip)?;
        }
        let needed = kube_ovn.of(owner.uid).into_iter().filter(|name| self.is_needed(kube_ovn, owner, name, None));
        let (name, address) = kube_ovn.assign(owner, need, &needed.collect(), term).await?;
        // kube-ovn gives an address away while somebody uses it, once his OvnEip is deleted. He keeps it.
        let unused = self.lock().book.check_unused(address, &owner.key.namespace);
        if unused.is_err() {
            // But for one that holds an address of the other family, too.
            self.unreserve(owner, None, term).await?;
        }
        unused?;
        // Nor does kube-ovn ask who else has it. The OvnEip stays: the next one would have the same address.
        let taken = self.lock().book.check_not_taken(address, &need.eip);
        match taken {
            Err(Error::AddressTaken { address, holder }) => Err(Error::OvnEipUnusable { name, address, holder }),
            taken => taken.map(|()| (name, address)),
        }
    }

    /// Living addresses whose `EIp`s are lost are still from where they were. Not left to their next look: a Service that is
    /// paused has none, and what no `EIp` refers to is taken for an orphan.
    pub(super) fn refer_imported(&self) {
        let Some(kube_ovn) = &self.kube_ovn else { return };
        let imported = self.lock().book.imported();
        for (key, address) in imported {
            if let Some(name) = kube_ovn.holder_of_ours(&key.namespace, address) {
                self.lock().book.refer(&key, &name);
            }
        }
    }

    /// Sees to it that kube-ovn gives the address of an `EIp` of ours to nobody else.
    pub(super) async fn safeguard(&self, key: &EipKey, term: &Term) {
        let made = self.lock().book.made(key).filter(|made| !made.is_child);
        let Some((kube_ovn, made)) = made.and_then(|made| Some((self.keeper(&made)?, made))) else { return };
        if let Some(name) = kube_ovn.keep(&made, term).await {
            self.lock().book.refer(key, &name);
        }
    }

    /// Whether nothing is to be written for these addresses; no I/O.
    pub(super) fn are_kept(&self, ask: &AddressAsk, addresses: &[IpAddr]) -> bool {
        if self.kube_ovn.is_none() {
            return true;
        }
        let is_kept = |made: &Made| self.keeper(made).is_none_or(|kube_ovn| kube_ovn.is_kept(made));
        self.made(ask, addresses).iter().all(|made| made.is_child || is_kept(made))
    }

    /// What the user should know about the addresses of this Service; no I/O.
    pub(crate) fn caveats(&self, ask: &AddressAsk) -> Vec<Caveat> {
        let state = self.lock();
        let (lack, torn) = (state.lack(ask).map(Lack::caveat), state.book.torn(ask));
        drop(state);
        let made = if self.kube_ovn.is_some() { self.made(ask, &ask.current) } else { Vec::new() };
        made.iter().filter_map(|made| self.keeper(made)?.caveat(made)).chain(torn).chain(lack).collect()
    }

    /// What keeps the backends of this Service from answering on its addresses; no I/O.
    pub(crate) fn missing_routes(&self, want: &Wanted) -> Vec<Caveat> {
        let Some(kube_ovn) = &self.kube_ovn else { return Vec::new() };
        let namespace = &*want.owner().key.namespace;
        let egress = self.projects.egress_of(namespace);
        kube_ovn.missing_routes(namespace, egress.as_deref(), &want.addresses, &backends(want))
    }

    /// Whether kube-ovn has the routers, and so the routes that replies leave by.
    pub(crate) fn has_routers(&self) -> bool {
        self.kube_ovn.is_some()
    }

    /// Whether replies from the addresses of this Service need a way of their own; no I/O.
    pub(crate) fn leaves_elsewhere(&self, service: &ServiceKey, addresses: &[IpAddr]) -> bool {
        let Some(kube_ovn) = &self.kube_ovn else { return false };
        let egress = self.projects.egress_of(&service.namespace);
        kube_ovn.leaves_elsewhere(&service.namespace, egress.as_deref(), addresses)
    }

    /// This Service is served as it wants to be: the backends that are in its wish get their way back.
    pub(crate) fn note_routes(&self, want: &Wanted) {
        let Some(kube_ovn) = &self.kube_ovn else { return };
        let owner = want.owner();
        let egress = self.projects.egress_of(&owner.key.namespace);
        kube_ovn.note_routes(owner, egress.as_deref(), &want.addresses, &backends(want));
    }

    /// This Service needs no way back.
    pub(crate) fn forget_routes(&self, owner: &Owner) {
        if let Some(kube_ovn) = &self.kube_ovn {
            kube_ovn.note_routes(owner, None, &[], &BTreeSet::new());
        }
    }

    /// Neither does one that is gone; another one of its name may.
    pub(super) fn release_routes(&self, owner: &Owner) {
        if let Some(kube_ovn) = &self.kube_ovn {
            kube_ovn.release_routes(owner);
        }
    }

    fn made(&self, ask: &AddressAsk, addresses: &[IpAddr]) -> Vec<Made> {
        let state = self.lock();
        addresses.iter().filter_map(|address| state.book.made_on(&ask.owner, *address)).collect()
    }

    /// Lets go of what kube-ovn holds for an `EIp` that goes next. kube-ovn frees the address at that moment, and the load
    /// balancer is gone already.
    pub(super) async fn unreserve_of(&self, key: &EipKey, term: &Term) -> Result<(), Error> {
        let made = self.lock().book.made(key);
        match made {
            Some(made) => self.unreserve_made(&made, key, term).await,
            None => Ok(()),
        }
    }

    pub(super) async fn unreserve_made(&self, made: &Made, leaving: &EipKey, term: &Term) -> Result<(), Error> {
        if let Some(kube_ovn) = self.keeper(made).filter(|_| !made.is_child) {
            kube_ovn.reclaim(made, term).await?;
        }
        self.unreserve(&made.owner, Some(leaving), term).await
    }

    /// Lets go of what kube-ovn holds for this owner and no `EIp` but `leaving` needs.
    pub(super) async fn unreserve(&self, owner: &Owner, leaving: Option<&EipKey>, term: &Term) -> Result<(), Error> {
        let Some(kube_ovn) = &self.kube_ovn else { return Ok(()) };
        for name in kube_ovn.of(owner.uid) {
            if !self.is_needed(kube_ovn, owner, &name, leaving) {
                kube_ovn.release(&name, term).await?;
            }
        }
        Ok(())
    }

    /// Whether an `EIp` other than `leaving` has an address of this `OvnEip`.
    fn is_needed(&self, kube_ovn: &KubeOvn, owner: &Owner, name: &str, leaving: Option<&EipKey>) -> bool {
        let addresses = kube_ovn.addresses(name);
        self.lock().book.refers(owner, name, &addresses, leaving)
    }

    /// Whom something outside was made for looks again: a Service, or a tenant's own `EIp`.
    pub(crate) fn wake_owner(&self, owner: ServiceKey) {
        let key = EipKey { namespace: owner.namespace.clone(), name: owner.name.clone() };
        let mut state = self.lock();
        if state.book.is_tenants(&key) {
            self.tenants.add(key);
        }
        // What it lacks may be there now.
        state.waiting.remove(&owner);
        drop(state);
        self.wake([owner]);
    }

    /// Those that use an address look again.
    pub(crate) fn wake_users(&self, address: IpAddr) {
        let state = self.lock();
        let (services, tenants) = (state.book.users_of(address), state.book.tenants_on(address));
        drop(state);
        self.tenants.add_all(tenants);
        self.wake(services);
    }

    /// Tenants' own that wait for this `OvnEip`, which they name as their child, look again.
    pub(crate) fn wake_children(&self, name: &str) {
        let state = self.lock();
        let children: Vec<_> = state.unserved.iter().filter(|key| state.book.has_child(key, name)).cloned().collect();
        drop(state);
        self.tenants.add_all(children);
    }

    /// All of a namespace look again.
    pub(crate) fn wake_project(&self, namespace: &str) {
        let mut state = self.lock();
        let services = services_of(&state, namespace);
        for service in &services {
            state.waiting.remove(service);
        }
        drop(state);
        self.wake(services);
    }

    pub(crate) fn wake_waiting_for_address(&self) {
        self.wake_waiting(&mut self.lock());
    }
}

fn backends(want: &Wanted) -> BTreeSet<IpAddr> {
    want.frontends.iter().flat_map(|frontend| &frontend.backends).map(|backend| backend.address).collect()
}

fn services_of(state: &State, namespace: &str) -> Vec<ServiceKey> {
    let waiting = state.waiting.keys().filter(|key| *key.namespace == *namespace).cloned();
    state.book.services_of(namespace).chain(waiting).collect()
}
