//! The right to write, and its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::clock::Moment;
use crate::fault;
use crate::provider::{ErrorKind, ProviderError};

/// Kept between the end of the last write and the end of the lease, for the difference between our clock and the one
/// of whoever waits for the lease to end.
const MARGIN: Duration = Duration::from_secs(1);

/// One won election. Every outside write goes through [`Term::write`].
#[derive(Debug, Clone)]
pub struct Term {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    identity: String,
    began: Moment,
    /// `None` where nobody else can write, because leader election is off.
    held_until: Option<Mutex<Moment>>,
    /// Until when another process may believe that it leads.
    disputed_until: Moment,
    ended: watch::Sender<bool>,
}

/// Why a write did not happen or did not finish.
#[derive(Debug, thiserror::Error)]
pub enum WriteError<E> {
    /// The lease does not last for as long as the write may take; nothing was sent.
    #[error("not the leader any more; nothing was written")]
    NotLeader,
    /// No answer in time: the write may or may not have happened.
    #[error("no answer within {} ms; the outcome is unknown", .0.as_millis())]
    Unknown(Duration),
    /// The other side refused it.
    #[error(transparent)]
    Failed(E),
}

impl Term {
    /// `disputed_until` is in the past where the lease that was taken proves that nobody else leads.
    pub(super) fn won(identity: &str, held_until: Moment, disputed_until: Moment) -> Self {
        Self::new(identity, Some(Mutex::new(held_until)), disputed_until)
    }

    /// A term without end, for a process that runs alone.
    #[must_use]
    pub fn alone(identity: &str) -> Self {
        Self::new(identity, None, Moment::now())
    }

    fn new(identity: &str, held_until: Option<Mutex<Moment>>, disputed_until: Moment) -> Self {
        let ended = watch::Sender::new(false);
        let shared = Shared { identity: identity.to_owned(), began: Moment::now(), held_until, disputed_until, ended };
        Self { shared: Arc::new(shared) }
    }

    /// Who leads: the identity in the Lease.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.shared.identity
    }

    /// When it was won. What is read from then on has everything that an earlier leader wrote.
    #[must_use]
    pub fn began(&self) -> Moment {
        self.shared.began
    }

    pub(super) fn renewed(&self, held_until: Moment) {
        if let Some(held) = &self.shared.held_until {
            *held.lock().unwrap_or_else(PoisonError::into_inner) = held_until;
        }
    }

    pub(super) fn end(&self) {
        self.shared.ended.send_replace(true);
    }

    /// How long writes may still go on without a renewal.
    pub(super) fn left(&self) -> Duration {
        self.held_until().map_or(Duration::MAX, |until| Moment::now().until(until).saturating_sub(MARGIN))
    }

    fn held_until(&self) -> Option<Moment> {
        let held = self.shared.held_until.as_ref()?;
        Some(*held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a write that takes at most `deadline` may begin now.
    #[must_use]
    pub fn allows(&self, deadline: Duration) -> bool {
        if *self.shared.ended.borrow() {
            return false;
        }
        self.held_until().is_none_or(|until| Moment::now() + deadline + MARGIN < until)
    }

    /// Resolves when the term is over.
    pub async fn over(&self) {
        let mut ended = self.shared.ended.subscribe();
        // The sender lives in `self`, so the channel cannot close under us.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// For how long another process may still believe that it leads. Zero, but where there was no Lease at all: then this
    /// is the first start, or somebody deleted it under a leader, who may write until it has run out.
    #[must_use]
    pub fn disputed(&self) -> Duration {
        Moment::now().until(self.shared.disputed_until)
    }

    /// Begins `write` only if the lease outlasts `deadline`, and gives up on it at the deadline.
    pub async fn write<T, E>(
        &self,
        deadline: Duration,
        write: impl Future<Output = Result<T, E>>,
    ) -> Result<T, WriteError<E>> {
        if !self.allows(deadline) {
            return Err(WriteError::NotLeader);
        }
        fault::point("between check and send");
        match tokio::time::timeout(deadline, write).await {
            Ok(done) => done.map_err(WriteError::Failed),
            Err(_) => Err(WriteError::Unknown(deadline)),
        }
    }
}

impl<E: Into<ProviderError>> From<WriteError<E>> for ProviderError {
    fn from(error: WriteError<E>) -> Self {
        match error {
            WriteError::Failed(error) => error.into(),
            WriteError::NotLeader => Self::new(ErrorKind::Unavailable, "not the leader any more; nothing was written"),
            WriteError::Unknown(after) => Self::new(
                ErrorKind::Unavailable,
                format!("no answer within {} ms; the outcome is unknown", after.as_millis()),
            )
            .with_maybe_applied(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(lasts: Duration) -> Term {
        Term::won("me", Moment::now() + lasts, Moment::now())
    }

    #[test]
    fn a_write_that_could_outlive_the_lease_does_not_begin() {
        assert!(term(Duration::from_mins(1)).allows(Duration::from_secs(5)));
        assert!(!term(Duration::from_secs(5)).allows(Duration::from_secs(5)));
        assert!(!term(Duration::from_millis(5_900)).allows(Duration::from_secs(5)), "the margin counts");
    }

    #[test]
    fn an_ended_term_allows_nothing_however_long_its_lease() {
        let term = term(Duration::from_mins(1));
        term.end();
        assert!(!term.allows(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_answer_is_unknown_not_failed() {
        let never = std::future::pending::<Result<(), ProviderError>>();
        let written = Term::alone("me").write(Duration::from_secs(1), never).await;
        let Err(error @ WriteError::Unknown(_)) = written else { panic!("{written:?}") };
        assert!(ProviderError::from(error).maybe_applied());
    }
}
