//! Promises of deorbit that need neither a cluster nor a cloud.

mod choice;
mod judge;
mod preflight;
mod stage;

use groundcrew_api::deorbit::Deorbit;
use serde_json::json;

use super::{asked, left};

#[test]
fn what_is_left_is_told_until_the_deorbit_is_gone_and_no_plan_counts() {
    let deorbit = |name: &str, dry_run: bool, left: u32| -> Deorbit {
        let status = json!({ "phase": "Leftovers", "left": left });
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "dryRun": dry_run }, "status": status }))
            .unwrap()
    };
    let new: Deorbit = serde_json::from_value(json!({ "metadata": { "name": "new" }, "spec": {} })).unwrap();
    assert_eq!(left(&[deorbit("end", false, 3), deorbit("look", true, 9), new.clone()]), 3);
    assert_eq!(left(&[deorbit("look", true, 9), new]), 0);
    assert_eq!(left(&[]), 0);
}

#[test]
fn a_wish_or_an_abort_is_a_reason_to_look_and_our_own_status_is_none() {
    let seen = |version: &str, generation: i64, deleted: Option<&str>| {
        let meta = json!({ "name": "end", "uid": "u", "resourceVersion": version, "generation": generation,
            "deletionTimestamp": deleted });
        let status = json!({ "phase": "Running", "left": generation });
        asked(serde_json::from_value(json!({ "metadata": meta, "spec": {}, "status": status })).unwrap()).1
    };
    let before = seen("1", 1, None);
    assert!(seen("2", 1, None) == before);
    assert!(seen("2", 2, None) != before);
    assert!(seen("2", 1, Some("2026-01-01T00:00:00Z")) != before);
}
