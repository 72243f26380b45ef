//! The whole controller on a real kube-apiserver and a real OVN.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

mod data_path;
mod data_path_ranges;
mod drift;
mod drift_faults;
mod eips;
mod families;
mod faults;
mod fence;
mod groups;
mod harness;
mod health;
mod kube_ovn;
mod leftovers;
mod operators;
mod realised;
mod repair;
mod rivals;
mod serving;
mod sharing;
mod take_over;
mod trouble;
mod waits;
