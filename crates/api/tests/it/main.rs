//! The types as others meet them: as definitions, as rules, as objects on a server.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test, also in its helpers, a panic is the report")]

mod address_pool;
mod definitions;
mod eip;
mod floating_ip;
mod kube_ovn;
mod rules;
mod server;
