//! Writers that race with the collector on one router, for tests and for the benchmark.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use groundcrew_core::provider::Route;
use groundcrew_orbit::routegc::apply::ApplyError;
use groundcrew_orbit::routegc::rules::Rules;
use groundcrew_testkit::eventually;

use super::world::{World, own};

const WRITERS: u8 = 8;
const ORPHANS: [u8; 2] = [101, 102];
const PATIENCE: Duration = Duration::from_mins(3);
/// Passes in a round that count, and passes at most.
const PASSES: usize = 3;
const MOST: usize = 30;

/// What a round has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Routes of Nodes that were not there after three passes in the race.
    pub(crate) lost: usize,
    /// Those of them that were not there one pass later.
    pub(crate) lost_for_good: usize,
    /// Orphans that were there after three passes.
    pub(crate) orphans: usize,
}

pub(crate) async fn prepare(world: &mut World) {
    for i in 1..=WRITERS {
        world.join(i).await;
    }
}

/// Three passes, in each of which every writer loses its route and finds it again, as a cloud controller manager may; and one
/// pass in peace. One in which the cloud refused something, or did not answer, does not count.
pub(crate) async fn round(world: &World, rules: Rules) -> Outcome {
    let living: BTreeSet<Route> = (1..=WRITERS).map(own).collect();
    let orphans = ORPHANS.map(own);
    world.add(&orphans).await;
    let mut passes = world.collect(rules);
    let mut counted = 0;
    for _ in 0..MOST {
        let (pass, _) = futures::join!(passes.pass(&world.nodes), join_all((1..=WRITERS).map(|i| flap(world, i))));
        let failures = pass.unwrap().applied.unwrap_or_default().failures;
        counted += usize::from(!failures.iter().any(|failure| matches!(failure.error, ApplyError::Cloud(_))));
        if counted == PASSES {
            break;
        }
    }
    let after = world.routes().await;
    passes.pass(&world.nodes).await.unwrap();
    let later = world.routes().await;
    Outcome {
        lost: living.difference(&after).count(),
        lost_for_good: living.difference(&later).count(),
        orphans: orphans.iter().filter(|orphan| after.contains(orphan)).count(),
    }
}

/// A Neutron that is written to from all sides refuses some; whoever keeps routes tries again.
async fn flap(world: &World, i: u8) {
    for verb in ["remove_extraroutes", "add_extraroutes"] {
        let what = format!("{verb} of writer {i}");
        eventually(&what, PATIENCE, async || world.try_change(verb, &[own(i)]).await).await.unwrap();
    }
}
