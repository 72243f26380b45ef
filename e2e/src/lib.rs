//! Worlds in which whole-system tests and benchmarks play.

pub mod cloudsigma;
pub mod kubelet;
