//! The fixtures themselves, against the real programs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test, also in its helpers, a panic is the report")]

mod cloudsigma;
mod kube;
mod lab;
mod northbound;
mod openstack;
mod process;
mod proxy;
