//! The custom resources of groundcrew, the few of kube-ovn's that it reads, and the names both use. Types only: whatever
//! acts on them lives in the controllers.
//!
//! | module | objects | whose |
//! |---|---|---|
//! | [`eip`] | [`EIp`](eip::EIp) | kube-dc's API, kept field for field so that its users' manifests and commands work |
//! | [`address_pool`] | [`AddressPool`](address_pool::AddressPool) | ours |
//! | [`floating_ip`] | [`FloatingIP`](floating_ip::FloatingIP) | ours |
//! | [`node_repair`] | [`NodeRepair`](node_repair::NodeRepair) | ours |
//! | [`deorbit`] | [`Deorbit`](deorbit::Deorbit) | ours |
//! | [`net_probe`] | what a probe writes on its Lease | ours |
//! | [`kube_ovn`] | `OvnEip`, `Vpc`, `Subnet` | kube-ovn's; read, and written only through narrow apply types |
//! | [`project`] | `Project` | kube-dc's; read only |
//! | [`names`] | annotations, labels, finalizers, classes | kube-dc's, Kubernetes' and ours |
//!
//! [`crds`] returns the definitions to install.

#![warn(missing_docs)]
#![allow(clippy::doc_markdown, reason = "`kubectl explain` prints these comments, where backticks are noise")]
#![allow(clippy::duplicated_attributes, reason = "two printer columns may well have the same type")]
#![allow(unreachable_pub, reason = "`KubeSchema` copies our public structs into a function body")]

pub mod address_pool;
mod crds;
pub mod deorbit;
pub mod eip;
pub mod floating_ip;
pub mod kube_ovn;
pub mod names;
pub mod net_probe;
pub mod node_repair;
pub mod project;

pub use crds::crds;
