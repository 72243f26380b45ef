//! A cloud with a memory and no outside: for tests and for measuring the controller alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{self, Either, Pending, Ready};
use futures::stream::BoxStream;
use tokio::sync::broadcast;
use uuid::Uuid;

use crate::key::ServiceKey;
use crate::leader::Term;
use crate::provider::{
    AddressAsk, Difference, ErrorKind, Families, Held, Ingress, IpMode, Listing, Living, LoadBalancers, Look, Owned,
    Owner, ProviderError, Reachable, Realised, Routable, Verdict, Wanted,
};

/// What it is told is what it says next time. Clones share one memory, as two processes share one cloud.
#[derive(Clone)]
pub struct MemoryCloud {
    state: Arc<Mutex<State>>,
    together: bool,
    /// How often it is listed, where that is all that can be done.
    polled: Option<Duration>,
    looks: broadcast::Sender<Look>,
}

#[derive(Default)]
struct State {
    held: BTreeMap<Owner, Vec<IpAddr>>,
    load_balancers: BTreeMap<Owner, Wanted>,
    /// The same as of the last listing, and what was written since.
    listed: BTreeMap<Owner, Wanted>,
    /// What somebody else has changed.
    spoiled: BTreeSet<Owner>,
    failing: Option<ProviderError>,
    /// How many writes are done and get no answer.
    mute: usize,
    hanging: Option<ServiceKey>,
    unanswered: usize,
    /// How many comparisons see nothing.
    blind: usize,
    incomplete: bool,
    writes: usize,
}

impl Default for MemoryCloud {
    fn default() -> Self {
        Self { state: Arc::default(), together: false, polled: None, looks: broadcast::Sender::new(65_536) }
    }
}

impl MemoryCloud {
    /// One that takes what many Services want in one write.
    #[must_use]
    pub fn sharing_writes() -> Self {
        Self { together: true, ..Self::default() }
    }

    /// One that tells nothing by itself and is listed this often, as the API of a cloud.
    #[must_use]
    pub fn polled(every: Duration) -> Self {
        Self { polled: Some(every), ..Self::default() }
    }

    /// What is there for this Service.
    #[must_use]
    pub fn load_balancer(&self, key: &ServiceKey) -> Option<Wanted> {
        self.lock().load_balancers.iter().find(|(owner, _)| owner.key == *key).map(|(_, wanted)| wanted.clone())
    }

    /// How many load balancers are there.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().load_balancers.len()
    }

    /// Uids of everybody for whom something is there.
    #[must_use]
    pub fn owner_uids(&self) -> BTreeSet<Uuid> {
        let state = self.lock();
        state.held.keys().chain(state.load_balancers.keys()).map(|owner| owner.uid).collect()
    }

    /// How many writes it has taken so far.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.lock().writes
    }

    /// Every write fails like this until told otherwise.
    pub fn fail_with(&self, error: Option<ProviderError>) {
        self.lock().failing = error;
    }

    /// The next writes, this many, are done, and nobody is told.
    pub fn lose_answers(&self, writes: usize) {
        self.lock().mute = writes;
    }

    /// Whoever asks for something for this Service gets no answer until told otherwise, and none after it either.
    pub fn hang_on(&self, key: Option<ServiceKey>) {
        self.lock().hanging = key;
    }

    /// How often somebody was left without an answer.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.lock().unanswered
    }

    /// The next comparisons, this many, cannot tell what is there.
    pub fn blind(&self, comparisons: usize) {
        self.lock().blind = comparisons;
    }

    /// Listings say that they are incomplete until told otherwise.
    pub fn list_incompletely(&self, incomplete: bool) {
        self.lock().incomplete = incomplete;
    }

    /// Somebody else removes a load balancer; `told` says whether the provider notices.
    pub fn lose(&self, key: &ServiceKey, told: bool) {
        self.lock().load_balancers.retain(|owner, _| owner.key != *key);
        if told {
            let _ = self.looks.send(Look::At(key.clone()));
        }
    }

    /// Somebody else changes a load balancer, and the provider notices.
    pub fn spoil(&self, key: &ServiceKey) {
        let mut state = self.lock();
        let found = state.load_balancers.iter_mut().find(|(owner, _)| owner.key == *key);
        if let Some((owner, wanted)) = found {
            wanted.frontends.clear();
            let owner = owner.clone();
            state.spoiled.insert(owner);
        }
        drop(state);
        let _ = self.looks.send(Look::At(key.clone()));
    }

    /// Somebody else removes all of them at once, and the provider only notices that something happened.
    pub fn lose_all(&self) {
        self.lock().load_balancers.clear();
        let _ = self.looks.send(Look::Everywhere);
    }

    /// Something with our mark appears for an owner that has no Service.
    pub fn litter(&self, owner: Owner, address: IpAddr) {
        self.lock().held.insert(owner, vec![address]);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never comes back if one of them is the one to hang on.
    fn hear<'a>(&self, keys: impl IntoIterator<Item = &'a ServiceKey>) -> Either<Ready<()>, Pending<()>> {
        let mut state = self.lock();
        if state.hanging.as_ref().is_some_and(|hanging| keys.into_iter().any(|key| key == hanging)) {
            state.unanswered += 1;
            return Either::Right(future::pending());
        }
        Either::Left(future::ready(()))
    }

    async fn write<T>(
        &self,
        term: &Term,
        change: impl FnOnce(&mut State) -> Result<T, ProviderError>,
    ) -> Result<T, ProviderError> {
        let write = async {
            let mut state = self.lock();
            if let Some(error) = &state.failing {
                return Err(error.clone());
            }
            state.writes += 1;
            let done = change(&mut state)?;
            if state.mute > 0 {
                state.mute -= 1;
                return Err(ProviderError::new(ErrorKind::Unavailable, "no answer").with_maybe_applied(true));
            }
            Ok(done)
        };
        Ok(term.write(Duration::from_secs(1), write).await?)
    }

    /// Whether the listing shows something else than the one before.
    fn list(&self) -> bool {
        let mut state = self.lock();
        let differs = state.listed != state.load_balancers;
        state.listed = state.load_balancers.clone();
        differs
    }
}

impl State {
    fn taken(&self) -> BTreeSet<IpAddr> {
        self.held.values().flatten().copied().collect()
    }

    fn hold(&mut self, ask: &AddressAsk) -> Result<Vec<IpAddr>, ProviderError> {
        if let Some(held) = self.held.get(&ask.owner) {
            return Ok(held.clone());
        }
        let addresses = if let Some(other) = &ask.share_with {
            let shared = self.held.get(other).cloned();
            shared.ok_or_else(|| ProviderError::new(ErrorKind::Conflict, format!("{other} has no address yet")))?
        } else if !ask.requested.is_empty() {
            let taken = self.taken();
            if let Some(address) = ask.requested.iter().find(|address| taken.contains(address)) {
                let message = format!("{address} is held by another Service");
                return Err(ProviderError::new(ErrorKind::Quota, message).with_reason("AddressTaken"));
            }
            ask.requested.clone()
        } else {
            self.free(ask.families)
        };
        self.held.insert(ask.owner.clone(), addresses.clone());
        Ok(addresses)
    }

    fn free(&self, families: Families) -> Vec<IpAddr> {
        let n = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        let taken = self.taken();
        let v4 = (n..).map(|n| IpAddr::from(Ipv4Addr::from(0x0a40_0000 + n)));
        let v6 = (n..).map(|n| IpAddr::from(Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(n))));
        let v4 = v4.into_iter().find(|a| !taken.contains(a));
        let v6 = v6.into_iter().find(|a| !taken.contains(a));
        let in_order = match families {
            Families::V4 => [v4, None],
            Families::V6 => [v6, None],
            Families::V4V6 => [v4, v6],
            Families::V6V4 => [v6, v4],
        };
        in_order.into_iter().flatten().collect()
    }
}

fn reachable(addresses: &[IpAddr]) -> Reachable {
    let ingress = addresses.iter().map(|address| Ingress { address: *address, mode: IpMode::Vip }).collect();
    Reachable { ingress, realised: Realised::Yes, routable: Routable::Unasked, caveats: Vec::new() }
}

/// The wish without what the Service has published: that changes when we publish, and is not part of the cloud.
fn stored(want: &Wanted) -> Wanted {
    let mut stored = want.clone();
    stored.ask.current.clear();
    stored
}

impl LoadBalancers for MemoryCloud {
    async fn begin(&self, term: &Term, living: &[Living]) -> Result<(), ProviderError> {
        self.write(term, |state| {
            for living in living {
                state.held.entry(living.owner.clone()).or_insert_with(|| living.addresses.clone());
            }
            Ok(())
        })
        .await
    }

    async fn hold(&self, want: &Wanted, term: &Term) -> Result<Held, ProviderError> {
        self.hear([&want.owner().key]).await;
        self.write(term, |state| Ok(Held { addresses: state.hold(&want.ask)? })).await
    }

    async fn ensure(&self, want: &Wanted, term: &Term) -> Result<Reachable, ProviderError> {
        self.hear([&want.owner().key]).await;
        self.write(term, |state| {
            state.spoiled.remove(want.owner());
            state.load_balancers.insert(want.owner().clone(), stored(want));
            state.listed.insert(want.owner().clone(), stored(want));
            Ok(reachable(&want.addresses))
        })
        .await
    }

    async fn ensure_all(&self, wants: &[Wanted], term: &Term) -> Vec<Result<Reachable, ProviderError>> {
        self.hear(wants.iter().map(|want| &want.owner().key)).await;
        let written = self.write(term, |state| {
            state.spoiled.retain(|owner| wants.iter().all(|want| want.owner() != owner));
            state.load_balancers.extend(wants.iter().map(|want| (want.owner().clone(), stored(want))));
            Ok(())
        });
        let written = written.await;
        wants.iter().map(|want| written.clone().map(|()| reachable(&want.addresses))).collect()
    }

    fn shares_writes(&self) -> bool {
        self.together
    }

    async fn release(&self, owner: &Owner, term: &Term) -> Result<(), ProviderError> {
        self.hear([&owner.key]).await;
        self.write(term, |state| {
            state.load_balancers.remove(owner);
            state.held.remove(owner);
            Ok(())
        })
        .await
    }

    fn verify(&self, want: &Wanted) -> Verdict {
        let mut state = self.lock();
        if state.blind > 0 {
            state.blind -= 1;
            return Verdict::Unknown;
        }
        let seen = if self.polled.is_some() { &state.listed } else { &state.load_balancers };
        match seen.get(want.owner()) {
            Some(found) if *found == stored(want) => Verdict::Same(reachable(&want.addresses)),
            found => Verdict::Differs(vec![Difference {
                kind: if found.is_some() { "changed" } else { "missing" },
                expected: format!("{} ports", want.frontends.len()),
                found: found.map_or_else(|| "nothing".to_owned(), |f| format!("{} ports", f.frontends.len())),
            }]),
        }
    }

    fn is_as_left(&self, want: &Wanted) -> bool {
        let state = self.lock();
        let seen = if self.polled.is_some() { &state.listed } else { &state.load_balancers };
        seen.contains_key(want.owner()) && !state.spoiled.contains(want.owner())
    }

    async fn owned(&self) -> Result<Listing<Owned>, ProviderError> {
        let state = self.lock();
        let owners: BTreeSet<_> = state.held.keys().chain(state.load_balancers.keys()).collect();
        let items =
            owners.into_iter().map(|owner| Owned { owner: owner.clone(), what: "load balancer".into(), unused: false });
        Ok(Listing { items: items.collect(), complete: !state.incomplete })
    }

    fn changes(&self) -> BoxStream<'static, Look> {
        if let Some(pause) = self.polled {
            let poll = move |cloud: Self| async move {
                loop {
                    tokio::time::sleep(pause).await;
                    if cloud.list() {
                        return Some((Look::Everywhere, cloud));
                    }
                }
            };
            return futures::stream::unfold(self.clone(), poll).boxed();
        }
        let looks = self.looks.subscribe();
        let next = |mut looks: broadcast::Receiver<Look>| async move {
            let look = match looks.recv().await {
                Ok(look) => look,
                Err(broadcast::error::RecvError::Lagged(_)) => Look::Everywhere,
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            Some((look, looks))
        };
        futures::stream::unfold(looks, next).boxed()
    }

    fn concurrency(&self) -> usize {
        64
    }

    fn annotation_prefixes(&self) -> &'static [&'static str] {
        &["memory.example/"]
    }
}
