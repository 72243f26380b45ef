//! What every controller of groundcrew shares: provider traits, the one Service controller, reconcile helpers, and the
//! runtime that a controller starts on.
//!
//! ```text
//! Service, EndpointSlice --watch--> caches --key--> queue --> desired --> provider --> the world outside
//!                                                     ^                                    |
//!                                                     +---- keys to look at again <--------+
//! ```
//!
//! A trigger says "look again", never "do this": events, the slow full scan and a restart take the same path.
#![warn(missing_docs)]

pub mod cli;
pub mod diff;
pub mod drift;
pub mod events;
pub mod fault;
pub mod key;
pub mod leader;
pub mod metrics;
pub mod page;
pub mod provider;
pub mod queue;
pub mod runtime;
pub mod service;
#[cfg(feature = "testing")]
pub mod testing;
pub mod watch;
