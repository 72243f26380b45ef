//! Services that are served, but not on each family that they ask for: there is no address to give.
//!
//! What they have is kept right, and their users are told. They ask again when an address may have become free.

use std::time::Duration;

use groundcrew_core::leader::Moment;
use groundcrew_core::provider::{AddressAsk, Caveat, ErrorKind, Look, Owner, ProviderError, Retry};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::pool::Family;
use super::{Addresses, State};
use crate::error::Error;

/// When to ask again where nothing tells that an address has become free.
const ASK_AGAIN: Duration = Duration::from_mins(5);

/// The same where it is another Service that lacks it, too: it may be given one at any time.
const ASK_AGAIN_FOR_SHARED: Duration = Duration::from_secs(15);

/// A Service that waits for an address. Another one of its name may be released meanwhile.
#[derive(Debug)]
pub(super) struct Waiter {
    uid: Uuid,
    /// What it does without, if it is served all the same.
    lack: Option<Lack>,
}

/// What a Service does without.
#[derive(Debug)]
pub(super) struct Lack {
    family: Family,
    why: ProviderError,
    until: Moment,
    /// Has its Service looked at then.
    _alarm: AbortOnDropHandle<()>,
}

impl Lack {
    pub(super) fn caveat(&self) -> Caveat {
        let message = format!("has no {} address: {}", self.family.word(), self.why);
        Caveat { reason: self.why.response().reason, message, stops: false }
    }
}

/// Whether a Service is served without an address of this family. A living address is none that it could do without.
pub(super) fn is_bearable(ask: &AddressAsk, family: Family, error: &Error) -> bool {
    let is_living = ask.current.iter().any(|address| Family::of(*address) == family);
    let can_wait = ask.one_is_enough || !ask.current.is_empty();
    let kind = ProviderError::from(error.clone()).kind();
    let lasts = match error {
        // Who is new has a moment to wait for the other one.
        Error::NothingToShare { .. } => !ask.current.is_empty(),
        _ => matches!(kind, ErrorKind::Quota | ErrorKind::NotFound | ErrorKind::Invalid | ErrorKind::Denied),
    };
    can_wait && !is_living && lasts
}

impl Addresses {
    /// It has asked: for all that it wants, or it lacks this.
    pub(super) fn note(&self, ask: &AddressAsk, refused: Option<(Family, Error)>) {
        let key = &ask.owner.key;
        let mut state = self.lock();
        let Some((family, error)) = refused else {
            state.waiting.remove(key);
            return;
        };
        // Woken meanwhile, it asks again at once.
        let Some(waiter) = state.waiting.get_mut(key) else { return };
        let is_anothers = matches!(error, Error::NothingToShare { .. });
        let why = ProviderError::from(error);
        let (why, again) = match why.response().retry {
            _ if is_anothers => (why.with_reason("WaitsForShared"), ASK_AGAIN_FOR_SHARED),
            Retry::After(after) => (why, after),
            _ => (why, ASK_AGAIN),
        };
        // First: who is woken then must find it over.
        let until = Moment::now() + again;
        let (looks, service) = (self.looks.clone(), key.clone());
        let alarm = tokio::spawn(async move {
            tokio::time::sleep(again).await;
            // Nobody listens any more when the process ends.
            let _ = looks.send(Look::At(service));
        });
        waiter.lack = Some(Lack { family, why, until, _alarm: AbortOnDropHandle::new(alarm) });
    }

    /// Whether this Service has all it needs but an address of a family of which it never had one, and for which nobody
    /// has asked lately; no I/O.
    pub(crate) fn is_to_ask(&self, ask: &AddressAsk) -> bool {
        let has = |family: Family| ask.current.iter().any(|address| Family::of(*address) == family);
        let missing = Family::in_order(ask.families).iter().copied().find(|family| !has(*family));
        let state = self.lock();
        let settled = |family| state.book.settled(ask, Some(family)).is_some_and(|settled| settled == ask.current);
        !ask.current.is_empty() && missing.is_some_and(|family| state.lacking(ask) != Some(family) && settled(family))
    }
}

impl State {
    pub(super) fn waits(&mut self, owner: &Owner) {
        let waiter = || Waiter { uid: owner.uid, lack: None };
        let found = self.waiting.entry(owner.key.clone()).or_insert_with(waiter);
        if found.uid != owner.uid {
            *found = waiter();
        }
    }

    pub(super) fn waits_no_more(&mut self, owner: &Owner) {
        if self.waiting.get(&owner.key).is_some_and(|waiter| waiter.uid == owner.uid) {
            self.waiting.remove(&owner.key);
        }
    }

    /// What this Service does without.
    pub(super) fn lack(&self, ask: &AddressAsk) -> Option<&Lack> {
        let waiter = self.waiting.get(&ask.owner.key).filter(|waiter| waiter.uid == ask.owner.uid)?;
        waiter.lack.as_ref().filter(|lack| Family::in_order(ask.families).contains(&lack.family))
    }

    /// The family of which it has asked for an address lately, and got none.
    pub(super) fn lacking(&self, ask: &AddressAsk) -> Option<Family> {
        let lack = self.lack(ask)?;
        (!Moment::now().until(lack.until).is_zero()).then_some(lack.family)
    }
}
