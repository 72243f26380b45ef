//! Eight writers that race with the collector on a router of a real Neutron.
#![allow(clippy::cast_precision_loss, reason = "counts")]

use std::time::Instant;

use anyhow::Result;
use groundcrew_orbit::routegc::rules::Rules;

use super::race::{Outcome, prepare, round};
use super::world::{World, rules};
use crate::report::Report;

pub(super) async fn run(rounds: usize, report: &mut Report) -> Result<()> {
    let mut world = World::real("race").await;
    prepare(&mut world).await;
    let started = Instant::now();
    let single = race(&world, &rules(), rounds).await;
    let count = |of: fn(&Outcome) -> usize| single.iter().map(of).sum::<usize>();
    told(report, "live routes lost in a race of 8 writers", rounds, count(|outcome| outcome.lost));
    told(report, "orphans left after 3 passes", rounds, count(|outcome| outcome.orphans));
    report.told("a round of three passes", rounds, "s", started.elapsed().as_secs_f64() / rounds.max(1) as f64);

    // As on a Neutron without extraroute-atomic, by an operator who allows whole lists.
    world.whole_lists_only = true;
    let whole = race(&world, &Rules { whole_lists: true, ..rules() }, rounds).await;
    let count = |of: fn(&Outcome) -> usize| whole.iter().map(of).sum::<usize>();
    report.told("live routes lost, whole lists", rounds, "", count(|outcome| outcome.lost) as f64);
    told(report, "the same, not back within a pass", rounds, count(|outcome| outcome.lost_for_good));
    told(report, "orphans left after 3 passes, whole lists", rounds, count(|outcome| outcome.orphans));
    Ok(())
}

async fn race(world: &World, rules: &Rules, rounds: usize) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for _ in 0..rounds {
        outcomes.push(round(world, rules.clone()).await);
    }
    outcomes
}

fn told(report: &mut Report, metric: &str, rounds: usize, count: usize) {
    report.at_most(metric, rounds, "", count as f64, 0.0);
}
