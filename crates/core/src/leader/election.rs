//! The campaign for the Lease.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::{GetParams, PostParams};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::clock::Moment;
use super::term::Term;

/// How often a follower looks at the Lease, and a leader tries again after a failed renewal. It bounds how late a
/// release or a dead leader is noticed.
const LOOK: Duration = Duration::from_millis(500);

/// What a shutdown spends on giving the lease back.
const RELEASE: Duration = Duration::from_secs(1);

/// Which Lease to campaign for, and as whom.
#[derive(Debug, Clone)]
pub struct Election {
    /// Name of the Lease; one per controller.
    pub name: String,
    /// Unique to this process: a restarted container has the same pod name, but must not inherit its old self's lease.
    pub identity: String,
    /// How long a lease lasts without renewal. Whole seconds, at least three.
    pub duration: Duration,
}

/// Whether this process may write.
#[derive(Debug, Clone)]
pub enum Role {
    /// Somebody else leads, or nobody does yet.
    Following,
    /// This process leads until the term is over.
    Leading(Term),
}

impl Role {
    /// The term, while leading.
    #[must_use]
    pub fn term(&self) -> Option<&Term> {
        match self {
            Self::Following => None,
            Self::Leading(term) => Some(term),
        }
    }
}

/// Campaigns until `stop`, then gives a held lease back so that a successor need not wait for it to run out.
pub async fn campaign(api: Api<Lease>, election: Election, role: watch::Sender<Role>, stop: CancellationToken) {
    let candidate = Candidate { api, election };
    while let Some((lease, term)) = stop.run_until_cancelled(candidate.win()).await {
        info!(lease = candidate.election.name, identity = candidate.election.identity, "leading");
        role.send_replace(Role::Leading(term.clone()));
        let kept = candidate.keep(lease, &term, &stop).await;
        term.end();
        role.send_replace(Role::Following);
        if let Some(lease) = kept {
            return candidate.release(lease).await;
        }
        warn!(lease = candidate.election.name, "lease lost; following");
    }
}

struct Candidate {
    api: Api<Lease>,
    election: Election,
}

/// The Lease as it was first seen like this. Its age is measured by our own clock: clocks of other machines are not
/// trusted.
struct Sighting {
    spec: Option<LeaseSpec>,
    since: Moment,
}

impl Candidate {
    /// Waits until the lease is free or has run out, and takes it.
    async fn win(&self) -> (Lease, Term) {
        let mut sighting: Option<Sighting> = None;
        loop {
            match timeout(self.patience(), self.cached()).await {
                Ok(Ok(seen)) => {
                    let ours = self.election.duration;
                    let wait = wait_before_taking(ours, seen.as_ref(), &mut sighting, Moment::now());
                    if wait.is_zero() {
                        let is_new = seen.is_none() && sighting.is_none();
                        if let Some((lease, sent)) = self.take(seen).await {
                            return (lease, self.term(sent, is_new));
                        }
                    } else {
                        sleep(wait.min(LOOK)).await;
                        continue;
                    }
                }
                Ok(Err(error)) => warn!(lease = self.election.name, %error, "cannot read the lease"),
                Err(_) => warn!(lease = self.election.name, "no answer about the lease"),
            }
            sleep(LOOK).await;
        }
    }

    fn term(&self, sent: Moment, is_new: bool) -> Term {
        let held_until = sent + self.election.duration;
        Term::won(&self.election.identity, held_until, if is_new { held_until } else { sent })
    }

    /// The lease and when it was asked for.
    async fn take(&self, seen: Option<Lease>) -> Option<(Lease, Moment)> {
        let transitions =
            seen.as_ref().and_then(|l| l.spec.as_ref()).and_then(|s| s.lease_transitions).map_or(0, |n| n + 1);
        let now = MicroTime(Timestamp::now());
        let spec = LeaseSpec { acquire_time: Some(now), lease_transitions: Some(transitions), ..self.spec() };
        let sent = Moment::now();
        let written = match seen {
            None => timeout(self.patience(), self.create(Some(spec))).await,
            Some(lease) => timeout(self.patience(), self.replace(&Lease { spec: Some(spec), ..lease })).await,
        };
        match written {
            Ok(Ok(lease)) => Some((lease, sent)),
            Ok(Err(error)) if is_conflict(&error) => None,
            Ok(Err(error)) => {
                warn!(lease = self.election.name, %error, "cannot take the lease");
                None
            }
            // It may have been taken all the same. Then the next look finds it held by us, and it runs out: rare, and
            // the safe side, as nothing was written in that term.
            Err(_) => None,
        }
    }

    /// Renews until the process stops; `None` if the lease is lost before.
    async fn keep(&self, mut lease: Lease, term: &Term, stop: &CancellationToken) -> Option<Lease> {
        let interval = self.election.duration / 5;
        let mut pause = interval;
        loop {
            tokio::select! {
                () = sleep(pause.min(term.left())) => {}
                () = stop.cancelled() => return Some(lease),
            }
            let left = term.left();
            if left.is_zero() {
                return None;
            }
            pause = LOOK.min(interval);
            let sent = Moment::now();
            let held = lease.spec.take().unwrap_or_default();
            let spec =
                LeaseSpec { acquire_time: held.acquire_time, lease_transitions: held.lease_transitions, ..self.spec() };
            lease.spec = Some(spec);
            // An answer later than the end of the lease is worth nothing.
            match timeout(left.min(self.patience()), self.renew(&lease)).await {
                Ok(Ok(renewed)) => {
                    lease = renewed;
                    term.renewed(sent + self.election.duration);
                    pause = interval;
                }
                Ok(Err(error)) if is_conflict(&error) => match timeout(left.min(self.patience()), self.current()).await
                {
                    // Somebody labelled the object, or our own unanswered renewal came through.
                    Ok(Ok(Some(now))) if self.is_ours(&now) => {
                        lease = now;
                        pause = Duration::ZERO;
                    }
                    // Still ours, unless another is quicker to make it again.
                    Ok(Ok(None)) => {
                        warn!(lease = self.election.name, "somebody deleted the lease; making it again");
                        lease.metadata = ObjectMeta::default();
                        pause = Duration::ZERO;
                    }
                    Ok(Ok(Some(_))) => return None,
                    Ok(Err(_)) | Err(_) => debug!(lease = self.election.name, "lease changed, and cannot be read"),
                },
                Ok(Err(error)) => warn!(lease = self.election.name, %error, "cannot renew the lease"),
                Err(_) => warn!(lease = self.election.name, "no answer to the renewal of the lease"),
            }
        }
    }

    /// Leaves the lease free, for whoever looks next.
    async fn release(&self, lease: Lease) {
        let give_back = async {
            match self.replace(&freed(lease)).await {
                // Our last renewal went unanswered, but came through.
                Err(error) if is_conflict(&error) => match self.current().await? {
                    Some(now) if self.is_ours(&now) => self.replace(&freed(now)).await.map(drop),
                    _ => Ok(()),
                },
                done => done.map(drop),
            }
        };
        match timeout(RELEASE, give_back).await {
            Ok(Ok(())) => info!(lease = self.election.name, "lease released"),
            Ok(Err(error)) => warn!(lease = self.election.name, %error, "lease not released; it runs out by itself"),
            Err(_) => warn!(lease = self.election.name, "lease not released: no answer; it runs out by itself"),
        }
    }

    fn spec(&self) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.election.identity.clone()),
            lease_duration_seconds: i32::try_from(self.election.duration.as_secs()).ok(),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        let holder = lease.spec.as_ref().and_then(|s| s.holder_identity.as_ref());
        holder == Some(&self.election.identity)
    }

    /// A request must leave room for another try before the lease ends.
    fn patience(&self) -> Duration {
        self.election.duration / 5
    }

    /// Once more, or anew where somebody has deleted it.
    async fn renew(&self, lease: &Lease) -> kube::Result<Lease> {
        match &lease.metadata.uid {
            Some(_) => self.replace(lease).await,
            None => self.create(lease.spec.clone()).await,
        }
    }

    async fn create(&self, spec: Option<LeaseSpec>) -> kube::Result<Lease> {
        let metadata = ObjectMeta { name: Some(self.election.name.clone()), ..ObjectMeta::default() };
        self.api.create(&PostParams::default(), &Lease { metadata, spec }).await
    }

    async fn replace(&self, lease: &Lease) -> kube::Result<Lease> {
        self.api.replace(&self.election.name, &PostParams::default(), lease).await
    }

    /// From the API server's cache, so that followers cost etcd nothing. A stale answer is caught by the
    /// resourceVersion of the write that follows.
    async fn cached(&self) -> kube::Result<Option<Lease>> {
        let any = GetParams { resource_version: Some("0".into()) };
        match self.api.get_with(&self.election.name, &any).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            got => got.map(Some),
        }
    }

    async fn current(&self) -> kube::Result<Option<Lease>> {
        self.api.get_opt(&self.election.name).await
    }
}

/// How long the lease must still stay as it is before it may be taken. The times that it says are those of another
/// machine, whose clock may be wrong or jump: that they change is all that counts.
fn wait_before_taking(ours: Duration, seen: Option<&Lease>, sighting: &mut Option<Sighting>, now: Moment) -> Duration {
    let spec = seen.and_then(|lease| lease.spec.as_ref());
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
    if seen.is_some() && holder.is_empty() {
        return Duration::ZERO;
    }
    let sighting = match (seen, sighting) {
        // Somebody deleted the Lease. Whoever held it does not know yet, and may write until it has run out.
        (None, Some(before)) => before,
        // Most likely the first start of all. The term knows that it is not sure.
        (None, None) => return Duration::ZERO,
        (Some(_), Some(before)) if before.spec.as_ref() == spec => before,
        (Some(_), sighting) => sighting.insert(Sighting { spec: spec.cloned(), since: now }),
    };
    // The holder may run with a longer lease than ours, for example during an upgrade.
    let theirs = sighting.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let theirs = theirs.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
    now.until(sighting.since + ours.max(Duration::from_secs(theirs)))
}

fn freed(mut lease: Lease) -> Lease {
    if let Some(spec) = &mut lease.spec {
        spec.holder_identity = Some(String::new());
        spec.renew_time = Some(MicroTime(Timestamp::now()));
    }
    lease
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict() || status.is_already_exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    /// A Lease that was renewed then, by its holder's clock.
    fn held(renewed: i64) -> Lease {
        let renew_time = Some(MicroTime(Timestamp::from_second(renewed).unwrap()));
        let spec = LeaseSpec {
            holder_identity: Some("other".into()),
            lease_duration_seconds: Some(15),
            renew_time,
            ..LeaseSpec::default()
        };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    #[test]
    fn whatever_the_clock_of_its_holder_does_a_lease_is_waited_for_since_it_last_changed() {
        let began = Moment::now();
        // Half a century behind, and a year ahead.
        for clock in [0, Timestamp::now().as_second() + 31_536_000] {
            let mut sighting = None;
            let mut left = |clock: i64, second: u64| {
                let now = began + Duration::from_secs(second);
                wait_before_taking(LEASE, Some(&held(clock)), &mut sighting, now).as_secs()
            };
            assert_eq!((left(clock, 0), left(clock, 10)), (15, 5));
            // It is renewed, and its clock was put back by an hour.
            assert_eq!((left(clock - 3_600, 10), left(clock - 3_600, 24)), (15, 1));
            assert_eq!(left(clock - 3_600, 25), 0);
        }
    }

    #[test]
    fn a_free_lease_is_taken_at_once_and_a_deleted_one_when_it_would_have_run_out() {
        let (now, mut sighting) = (Moment::now(), None);
        let minute = Duration::from_mins(1);
        assert_eq!(wait_before_taking(LEASE, None, &mut sighting, now), Duration::ZERO, "the first start of all");
        let mut longer = held(0);
        longer.spec.as_mut().unwrap().lease_duration_seconds = Some(60);
        assert_eq!(wait_before_taking(LEASE, Some(&longer), &mut sighting, now), minute);
        assert_eq!(wait_before_taking(LEASE, None, &mut sighting, now + LEASE), minute.saturating_sub(LEASE));
        assert_eq!(wait_before_taking(LEASE, Some(&freed(longer)), &mut sighting, now), Duration::ZERO);
    }
}
