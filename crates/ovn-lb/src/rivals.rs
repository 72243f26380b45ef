//! Another controller of this cluster.
//!
//! Two that lead at once would give one address to two Services, as neither sees what the other is about to write down. So
//! OVN lets one of them write, and this says why the other does not.

use std::time::Duration;

use groundcrew_core::leader::{Role, Term};
use groundcrew_core::runtime::{Readiness, Runtime};
use ovsdb_client::Row;
use prometheus::IntGauge;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::commit::Committer;
use crate::northbound::Global;
use crate::view::View;

const ALONE: &str = "the other controller of this cluster to be stopped";

struct Rivals {
    view: View,
    committer: Committer,
    ready: Readiness,
    metric: IntGauge,
    role: watch::Receiver<Role>,
    /// The term that has begun.
    term: watch::Receiver<Option<Term>>,
    deadline: Duration,
}

/// Starts to look for them. A dry run writes nothing, and is in nobody's way.
pub(crate) fn watch(
    runtime: &Runtime,
    view: &View,
    committer: &Committer,
    metric: IntGauge,
    term: &watch::Receiver<Option<Term>>,
) {
    if runtime.dry_run {
        return;
    }
    let rivals = Rivals {
        view: view.clone(),
        committer: committer.clone(),
        ready: runtime.ready.clone(),
        metric,
        role: runtime.role.clone(),
        term: term.clone(),
        deadline: runtime.write_deadline,
    };
    runtime.tasks.spawn("OVN rivals", rivals.watch(runtime.tasks.stop().clone()));
}

impl Rivals {
    /// Looks whenever the epoch may have changed, until `stop`. Ends, and the process with it, where another class is served:
    /// whoever has the Lease must be able to serve.
    async fn watch(mut self, stop: CancellationToken) {
        let mut changes = self.view.replica.changes_in(&[Global::TABLE]);
        let mut said = None;
        loop {
            if let Ok(nb) = self.view.now() {
                // Who has begun here is led away like by any other.
                if let Some(other) = self.committer.other_class(&nb).filter(|_| !self.committer.has_begun()) {
                    error!("{other}");
                    return;
                }
                // Whoever has led before us, and does no more, was right to be followed.
                let leads = self.term.borrow().as_ref().is_some_and(|term| term.allows(self.deadline));
                let rival = self.committer.rival(&nb).filter(|_| leads).map(|error| error.to_string());
                if rival != said {
                    self.say(rival.as_deref());
                    said = rival;
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                _ = changes.next() => {}
                Ok(()) = self.role.changed() => {}
            }
        }
    }

    fn say(&self, why: Option<&str>) {
        self.metric.set(why.is_some().into());
        if let Some(why) = why {
            error!("{why}");
            self.ready.wait_for(ALONE, why);
        } else {
            info!("no other controller of this cluster is in the way any more");
            self.ready.done(ALONE);
        }
    }
}
