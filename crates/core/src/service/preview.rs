//! What a look at a Service would do, in lines for people.

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::{debug, info};

use super::class::Intent;
use super::names::FINALIZER;
use super::object::Service;
use super::reconcile::Reconciler;
use crate::diff::{self, Diff};
use crate::key::ServiceKey;
use crate::provider::{LoadBalancers, Verdict, Wanted};

impl<P: LoadBalancers> Reconciler<P> {
    /// What a look would do, for followers and for `--dry-run`; writes nothing.
    pub(super) fn preview(&self, key: &ServiceKey, since: Instant) {
        let Some(service) = self.cache.service(key).filter(|s| !s.paused) else { return };
        let lines = match self.class.intent(&service) {
            Intent::Ignore => return,
            Intent::Leave => vec!["- everything that is held for it, then the finalizer".to_owned()],
            Intent::Serve => match self.wanted(&service) {
                Err(error) => vec![format!("! {error}")],
                Ok(wanted) => self.preview_serve(&service, &wanted, since),
            },
        };
        if lines.is_empty() {
            return;
        }
        if self.dry_run {
            info!(service = %key, plan = lines.join("; "), "would change");
            self.board.planned(key.to_string(), lines.clone());
            Diff::of(format!("Service {key}"), lines).print();
        } else {
            debug!(service = %key, plan = lines.join("; "), "the leader should change");
        }
    }

    fn preview_serve(&self, service: &Service, wanted: &Wanted, since: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.class.claimed(service) {
            lines.push(format!("+ finalizer {FINALIZER}"));
        }
        if service.inherited {
            lines.push(format!("- finalizer {}", self.provider.takes_over().join(", ")));
        }
        match self.verify(wanted) {
            Verdict::Same(mut reachable) => {
                // Who takes over knows then what is drift.
                self.drifts.settled(wanted);
                let (status, _) = self.status(wanted, &mut reachable);
                lines.extend(
                    status.patch(service, Timestamp::now()).map(|patch| format!("~ status {}", patch["status"])),
                );
            }
            verdict => {
                if let Verdict::Differs(differences) = &verdict {
                    // And since when.
                    self.drifts.noticed(wanted, differences, since);
                }
                lines.extend(outside(service, &verdict));
            }
        }
        lines
    }
}

/// What is to be changed outside.
pub(super) fn outside(service: &Service, verdict: &Verdict) -> Vec<String> {
    match verdict {
        Verdict::Differs(differences) => diff::lines(differences),
        Verdict::Unknown if service.ingress.is_empty() => vec!["+ address and load balancer".to_owned()],
        Verdict::Unknown | Verdict::Same(_) => Vec::new(),
    }
}
