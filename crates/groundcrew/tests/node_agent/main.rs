//! `groundcrew node-agent` on nodes with a wire between them, with a real kube-apiserver: who answers for an address is
//! asked from outside, frame by frame.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

mod failing;
mod holding;
mod lab;
mod mover;
mod nat;
mod udp;
