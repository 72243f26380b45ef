//! The binary as its users run it: as processes, against a real kube-apiserver and a real OVN northbound database or a
//! simulated OpenStack.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

mod browser;
mod clock;
mod cloudsigma;
mod crash;
mod deorbit;
mod detach;
mod doctor;
mod drift;
mod dry_run;
mod explain;
mod fencing;
mod flight;
mod lab;
mod line;
mod page;
mod process;
mod secrets;
