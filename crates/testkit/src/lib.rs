//! Real Kubernetes, OVN and OpenStack parts for tests, and a `CloudSigma` that is not real: it has no server to start.
//!
//! | module | what it starts |
//! |---|---|
//! | [`kube`] | etcd and kube-apiserver with RBAC, and kube-controller-manager, kube-proxy and an admission webhook on request |
//! | [`kube_ovn`] | a stand-in for kube-ovn-controller, with its definitions |
//! | [`ovn`] | a northbound database server, alone or as a raft cluster, plain or over TLS |
//! | [`ovn::lab`] | the whole of OVN with its data path: router, switches, pods, and a client outside |
//! | [`agents`] | node agents that touch no node |
//! | [`cloudsigma`] | a simulated account behind its HTTP API |
//! | [`openstack`] | Keystone and Neutron, on request with Nova, Cinder and Octavia, and what they need |
//! | [`openstack::fake`] | an OpenStack that is not real, for faults that the real one does not have on order |
//! | [`proxy`] | a TCP proxy that delays, partitions and cuts connections |
//! | [`wire`] | machines on one wire, and somebody outside who asks who has an address, or sends requests |
//! | [`controller`] | one of our own controllers, with its admin port |
//! | [`process`] | any command, as a child that cannot outlive the test process |
//!
//! Whatever a fixture starts ends with the test process, however that ends. Its files go with it, except when a test
//! panicked: then the logs stay and their place is printed. So tests `unwrap` instead of returning an error.
//!
//! A missing program is a failure that names its cure, never a skip.

pub mod agents;
pub mod cloudsigma;
pub mod controller;
pub mod kube;
pub mod kube_ovn;
pub mod openstack;
pub mod ovn;
pub mod pki;
pub mod process;
pub mod proxy;
pub mod wire;

mod command;
mod daemon;
mod directory;
mod eventually;
mod netns;
mod pidns;
mod port;
mod scratch;

pub use eventually::eventually;
pub use nix::sys::signal::Signal;
pub use port::ReservedPort;
pub use scratch::{HeldLogs, Scratch};
