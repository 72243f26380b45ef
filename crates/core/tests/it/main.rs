//! The Service controller on a real kube-apiserver, over a cloud in memory.

mod harness;
mod leadership;
mod serving;
mod trouble;
