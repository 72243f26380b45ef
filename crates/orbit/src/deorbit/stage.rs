//! Which stages run, are done or are given up. Pure: what is left and what time it is come from outside, and everything
//! that must survive a restart is in the status.

use std::collections::BTreeMap;
use std::time::Duration;

use groundcrew_api::deorbit::{Budgets, StageName, StageState, StageStatus};
use groundcrew_core::runtime::duration;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// In the order in which they are shown.
pub const ALL: [StageName; 12] = [
    StageName::Preflight,
    StageName::Freeze,
    StageName::Quiesce,
    StageName::Snapshots,
    StageName::Gateways,
    StageName::LoadBalancers,
    StageName::Pods,
    StageName::Claims,
    StageName::Volumes,
    StageName::Verify,
    StageName::Cloud,
    StageName::Routes,
];

/// What must have passed before a stage begins. Load balancers and claims know nothing of each other, so that the whole
/// takes as long as the slower of them and not as both together.
#[must_use]
pub fn needs(stage: StageName) -> &'static [StageName] {
    use StageName as S;
    match stage {
        S::Preflight => &[],
        S::Freeze => &[S::Preflight],
        S::Quiesce => &[S::Freeze],
        // A Gateway makes Services: they would come back.
        S::Snapshots | S::Gateways | S::Pods => &[S::Quiesce],
        S::LoadBalancers => &[S::Gateways],
        // Cinder does not delete a volume that has snapshots.
        S::Claims => &[S::Snapshots, S::Quiesce],
        S::Volumes => &[S::Claims, S::Pods],
        S::Verify => &[S::LoadBalancers, S::Volumes],
        S::Cloud => &[S::Verify],
        S::Routes => &[S::Cloud],
    }
}

/// Whether something goes in this stage that nobody can bring back.
#[must_use]
pub fn deletes(stage: StageName) -> bool {
    !matches!(stage, StageName::Preflight | StageName::Freeze | StageName::Quiesce)
}

/// How much there is to do in a stage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Work {
    /// How many things are left.
    pub left: usize,
    /// Why there is no point in waiting for them.
    pub hopeless: Option<String>,
    /// Why they do not go.
    pub message: String,
}

/// Budgets that were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    total: Duration,
    stage: Duration,
    stages: BTreeMap<StageName, Duration>,
}

/// The cloud finishes by itself what the cluster's controllers ordered; after that nobody is left to wait for.
const VERIFY: Duration = Duration::from_mins(3);

impl Default for Limits {
    fn default() -> Self {
        let stages = BTreeMap::from([(StageName::Verify, VERIFY)]);
        Self { total: Duration::from_hours(2), stage: Duration::from_mins(15), stages }
    }
}

impl Limits {
    /// Reads them. What cannot be read is named.
    pub fn read(budgets: &Budgets) -> Result<Self, String> {
        let read = |name: &str, text: &str| duration(text).map_err(|error| format!("budgets.{name} {text:?}: {error}"));
        let mut stages = Self::default().stages;
        for (stage, text) in &budgets.stages {
            stages.insert(*stage, read(&format!("stages.{stage:?}"), text)?);
        }
        Ok(Self { total: read("total", &budgets.total)?, stage: read("stage", &budgets.stage)?, stages })
    }

    /// All of the time.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.total
    }

    fn of(&self, stage: StageName) -> Duration {
        self.stages.get(&stage).copied().unwrap_or(self.stage)
    }
}

/// When something began, as far as that can be true. Otherwise a clock that was wrong then, or of another machine, would let it
/// go on for as long as it was wrong.
pub fn begun(at: &mut Time, now: Timestamp) -> Time {
    at.0 = at.0.min(now);
    at.clone()
}

/// Whether so much time has passed.
#[must_use]
pub fn is_over(since: &Time, budget: Duration, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(since.0)).is_ok_and(|passed| passed >= budget)
}

/// The stages as they are now. Those that have begun stay open to the end, so that what comes back goes again; their clock
/// is never set back, so that it cannot go on for ever.
pub fn advance(
    stages: &mut Vec<StageStatus>,
    work: &BTreeMap<StageName, Work>,
    limits: &Limits,
    began: &Time,
    now: Timestamp,
) {
    let all_over = is_over(began, limits.total, now);
    for stage in ALL {
        let Work { left, hopeless, message } = work.get(&stage).cloned().unwrap_or_default();
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        if !stages.iter().any(|known| known.name == stage) {
            if !needs(stage).iter().all(|needed| lets_others_begin(stages, *needed)) {
                continue;
            }
            let started_at = Time(now);
            let state = StageState::Running;
            stages.push(StageStatus {
                name: stage,
                state,
                started_at,
                ended_at: None,
                total: left,
                left,
                message: String::new(),
            });
        }
        let Some(known) = stages.iter_mut().find(|known| known.name == stage) else { continue };
        let began = begun(&mut known.started_at, now);
        let before = known.state;
        known.left = left;
        known.total = known.total.max(left);
        known.state = if left == 0 {
            StageState::Done
        } else if hopeless.is_some() || all_over || is_over(&began, limits.of(stage), now) {
            StageState::GivenUp
        } else {
            StageState::Running
        };
        known.message = if left == 0 { String::new() } else { hopeless.unwrap_or(message) };
        match known.state {
            StageState::Running => known.ended_at = None,
            state if state != before || known.ended_at.is_none() => known.ended_at = Some(Time(now)),
            _ => {}
        }
    }
}

/// Nothing has been deleted before these are done, so that stopping there costs nothing; without them, new things would come
/// while others go.
#[must_use]
pub fn must_succeed(stage: StageName) -> bool {
    !deletes(stage)
}

fn lets_others_begin(stages: &[StageStatus], stage: StageName) -> bool {
    stages.iter().any(|known| {
        known.name == stage
            && match known.state {
                StageState::Running => false,
                StageState::Done => true,
                StageState::GivenUp => !must_succeed(stage),
            }
    })
}

/// Whether a stage is done or given up.
#[must_use]
pub fn has_passed(stages: &[StageStatus], stage: StageName) -> bool {
    stages.iter().any(|known| known.name == stage && known.state != StageState::Running)
}

/// Whether a stage has begun.
#[must_use]
pub fn is_open(stages: &[StageStatus], stage: StageName) -> bool {
    stages.iter().any(|known| known.name == stage)
}

/// Whether nothing more will happen by itself.
#[must_use]
pub fn have_ended(stages: &[StageStatus]) -> bool {
    ALL.iter().all(|stage| has_passed(stages, *stage))
}
