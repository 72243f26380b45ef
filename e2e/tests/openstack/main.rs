//! The client and the controllers on a whole OpenStack: `make e2e-openstack`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests, their helpers too")]

#[path = "../../../crates/openstack-cloud/tests/it/bodies/mod.rs"]
mod bodies;
mod credentials;
mod flight;
mod member;
mod provider;
mod routegc;
#[path = "../../../crates/orbit/tests/it/routes.rs"]
mod routes;
mod tier;
#[allow(dead_code, reason = "of what both binaries share, each needs a part")]
#[path = "../../../crates/orbit/tests/it/world.rs"]
mod world;
