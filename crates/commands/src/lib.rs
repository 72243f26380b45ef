//! What people ask: why a Service does not answer, whether an installation is sound, what is left in the pools.
//!
//! ```text
//!  Kubernetes, OVN --gather--> facts --look--> findings --> table, JSON or YAML, and an exit code
//! ```
//!
//! Gathering only reads. What the facts mean is decided by pure functions, so that each judgement is a unit test.

mod cluster;
mod doctor;
mod explain;
mod finding;
mod leases;
mod output;
mod ovn;
mod pools;
mod status;

pub use cluster::ClusterArgs;
pub use doctor::{CloudArgs, DoctorArgs, doctor};
pub use explain::{ExplainArgs, explain};
pub use output::{Answer, Output};
pub use pools::{PoolsArgs, pools};
pub use status::{StatusArgs, status};
