//! Promises of deorbit that need neither a cluster nor a cloud.

mod choice;
mod judge;
mod preflight;
mod stage;

use groundcrew_api::deorbit::Deorbit;
use serde_json::json;

use super::left;

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
