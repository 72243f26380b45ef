//! One writer at a time: a Lease in Kubernetes, and a bound on how late an old leader can still write.
//!
//! A lease alone does not stop a leader that was suspended between its check and its write. Three things together do:
//! a write begins only while the lease outlasts its deadline ([`Term::write`]); Kubernetes writes carry a
//! resourceVersion; and a provider whose cloud has preconditions moves an epoch when a term begins
//! ([`LoadBalancers::begin`](crate::provider::LoadBalancers::begin)). A cloud without preconditions is bounded by the
//! deadline alone.

mod clock;
mod election;
mod term;

pub use clock::Moment;
pub use election::{Election, Role, campaign};
pub use term::{Term, WriteError};
