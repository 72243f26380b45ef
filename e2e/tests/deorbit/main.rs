//! The end of a cluster on a whole OpenStack: `make e2e-deorbit`. The bodies also run on a model, in `crates/orbit`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests, their helpers too")]
#![allow(dead_code, reason = "of what both binaries share, each needs a part")]

#[path = "../../../crates/orbit/tests/deorbit/abort.rs"]
mod abort;
#[path = "../../../crates/orbit/tests/deorbit/bodies.rs"]
mod bodies;
#[path = "../../../crates/orbit/tests/deorbit/caution.rs"]
mod caution;
#[path = "../../../crates/orbit/tests/deorbit/churn.rs"]
mod churn;
#[path = "../../../crates/orbit/tests/deorbit/clean.rs"]
mod clean;
#[path = "../../../crates/orbit/tests/deorbit/faults.rs"]
mod faults;
#[path = "../../../crates/orbit/tests/deorbit/lab.rs"]
mod lab;
#[path = "../../../crates/orbit/tests/deorbit/marks.rs"]
mod marks;
#[path = "../../../crates/orbit/tests/deorbit/place.rs"]
mod place;
#[path = "../../../crates/orbit/tests/deorbit/standins.rs"]
mod standins;

use lab::Lab;

bodies::on_both!([] Lab::real);
