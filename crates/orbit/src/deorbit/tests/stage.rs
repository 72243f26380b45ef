use std::collections::BTreeMap;

use groundcrew_api::deorbit::{Budgets, StageName, StageState, StageStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use crate::deorbit::stage::{ALL, Limits, Work, advance, deletes, have_ended, is_open, needs};

fn limits() -> Limits {
    Limits::read(&Budgets { total: "1h".into(), stage: "10m".into(), ..Budgets::default() }).unwrap()
}

fn left(work: &[(StageName, usize)]) -> BTreeMap<StageName, Work> {
    work.iter().map(|(stage, left)| (*stage, Work { left: *left, ..Work::default() })).collect()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn state(stages: &[StageStatus], name: StageName) -> Option<StageState> {
    stages.iter().find(|stage| stage.name == name).map(|stage| stage.state)
}

#[test]
fn limits_that_hold_where_none_can_be_read_are_those_of_a_deorbit_that_names_none() {
    assert_eq!(Limits::default(), Limits::read(&Budgets::default()).unwrap());
}

#[test]
fn load_balancers_and_claims_do_not_wait_for_each_other() {
    let mut stages = vec![];
    let work = left(&[(StageName::LoadBalancers, 5), (StageName::Claims, 5)]);
    advance(&mut stages, &work, &limits(), &Time(at(0)), at(1));
    assert_eq!(state(&stages, StageName::LoadBalancers), Some(StageState::Running));
    assert_eq!(state(&stages, StageName::Claims), Some(StageState::Running));
    assert_eq!(state(&stages, StageName::Volumes), None);
}

#[test]
fn nothing_is_deleted_before_new_things_are_blocked_and_what_makes_them_has_stopped() {
    for waits in [StageName::Freeze, StageName::Quiesce] {
        let mut stages = vec![];
        advance(&mut stages, &left(&[(waits, 1)]), &limits(), &Time(at(0)), at(1));
        assert!(!stages.iter().any(|stage| deletes(stage.name)), "{waits:?}: {stages:?}");
    }
}

#[test]
fn a_stage_whose_time_is_up_is_given_up_and_the_next_begins() {
    let mut stages = vec![];
    let work = left(&[(StageName::LoadBalancers, 1)]);
    advance(&mut stages, &work, &limits(), &Time(at(0)), at(0));
    assert!(!is_open(&stages, StageName::Verify));
    advance(&mut stages, &work, &limits(), &Time(at(0)), at(600));
    assert_eq!(state(&stages, StageName::LoadBalancers), Some(StageState::GivenUp));
    assert!(is_open(&stages, StageName::Verify));
}

#[test]
fn what_comes_back_reopens_its_stage_without_a_new_clock() {
    let mut stages = vec![];
    advance(&mut stages, &left(&[(StageName::Verify, 1)]), &limits(), &Time(at(0)), at(0));
    assert_eq!(state(&stages, StageName::LoadBalancers), Some(StageState::Done));
    let work = left(&[(StageName::Verify, 1), (StageName::LoadBalancers, 1)]);
    advance(&mut stages, &work, &limits(), &Time(at(0)), at(60));
    assert_eq!(state(&stages, StageName::LoadBalancers), Some(StageState::Running));
    advance(&mut stages, &work, &limits(), &Time(at(0)), at(601));
    assert_eq!(state(&stages, StageName::LoadBalancers), Some(StageState::GivenUp));
}

#[test]
fn there_is_no_waiting_for_the_dead() {
    let mut stages = vec![];
    let dead = Work { left: 3, hopeless: Some("it is dead".into()), message: String::new() };
    advance(&mut stages, &BTreeMap::from([(StageName::Volumes, dead)]), &limits(), &Time(at(0)), at(1));
    assert_eq!(state(&stages, StageName::Volumes), Some(StageState::GivenUp));
    assert!(is_open(&stages, StageName::Verify));
}

#[test]
fn a_budget_that_cannot_be_read_is_named() {
    let budgets = Budgets { stages: BTreeMap::from([(StageName::Claims, "soon".into())]), ..Budgets::default() };
    assert!(Limits::read(&budgets).unwrap_err().contains("stages.Claims"));
}

proptest! {
    /// However much is left and comes back, it ends within the total.
    #[test]
    fn it_always_ends_within_the_total(lefts in prop::collection::vec(prop::collection::vec(0usize..3, 12), 1..40)) {
        let mut stages = vec![];
        let step = 3600 / i64::try_from(lefts.len()).unwrap() + 1;
        let mut now = 0;
        for lefts in &lefts {
            let work: Vec<_> = ALL.into_iter().zip(lefts.iter().copied()).filter(|(stage, _)| deletes(*stage)).collect();
            advance(&mut stages, &left(&work), &limits(), &Time(at(0)), at(now));
            for stage in &stages {
                prop_assert!(needs(stage.name).iter().all(|needed| is_open(&stages, *needed)));
            }
            now += step;
        }
        let work: Vec<_> = ALL.into_iter().zip(lefts[0].iter().copied()).filter(|(stage, _)| deletes(*stage)).collect();
        advance(&mut stages, &left(&work), &limits(), &Time(at(0)), at(now.max(3600)));
        prop_assert!(have_ended(&stages), "{stages:?}");
    }

    /// A restart has nothing but the status, so that two passes at one time are as one.
    #[test]
    fn a_pass_that_is_made_twice_changes_nothing(lefts in prop::collection::vec(0usize..3, 12), seconds in 0i64..4000) {
        let work: Vec<_> = ALL.into_iter().zip(lefts).filter(|(stage, _)| deletes(*stage)).collect();
        let mut stages = vec![];
        advance(&mut stages, &left(&work), &limits(), &Time(at(0)), at(seconds));
        let once = stages.clone();
        advance(&mut stages, &left(&work), &limits(), &Time(at(0)), at(seconds));
        prop_assert_eq!(once, stages);
    }
}

#[test]
fn a_clock_that_was_set_back_gives_a_stage_its_time_anew_and_no_more() {
    let (mut stages, work) = (vec![], left(&[(StageName::LoadBalancers, 1)]));
    let mut state_at = |now: i64| {
        advance(&mut stages, &work, &limits(), &Time(at(0)), at(now));
        state(&stages, StageName::LoadBalancers)
    };
    assert_eq!(state_at(100_000), Some(StageState::GivenUp), "of the total");
    assert_eq!(state_at(40), Some(StageState::Running));
    assert_eq!(state_at(639), Some(StageState::Running));
    assert_eq!(state_at(640), Some(StageState::GivenUp));
}

#[test]
fn without_a_freeze_nothing_is_ever_deleted_however_late_it_is() {
    for stuck in [StageName::Freeze, StageName::Quiesce] {
        let mut stages = vec![];
        for now in [0, 1_000, 100_000] {
            advance(&mut stages, &left(&[(stuck, 1)]), &limits(), &Time(at(0)), at(now));
            assert!(!stages.iter().any(|stage| deletes(stage.name)), "{stages:?}");
        }
        assert_eq!(state(&stages, stuck), Some(StageState::GivenUp));
    }
}
