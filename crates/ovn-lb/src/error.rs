//! Everything that can go wrong here, and the one place that says what the controller makes of it.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::{ErrorKind, ProviderError};
use uuid::Uuid;

use crate::northbound::Kind;

/// Why a Service is not served as it should be.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Error {
    #[error("OVN has no {} {name}; the load balancer is attached as soon as there is one", kind.word())]
    PlaceMissing { kind: Kind, name: String },
    #[error(
        "the load balancer group {group} is not on {} {name}; put it there: ovn-nbctl add {} {name} load_balancer_group UUID",
        kind.word(), kind.table()
    )]
    GroupDetached { group: String, kind: Kind, name: String },
    #[error(
        "the load balancer group {group} is on router {router} too, where others would be served what this Service serves; \
         give each project a group of its own"
    )]
    GroupShared { group: String, router: String },
    #[error("OVN has more than one {} named {name}; remove or rename all but one", kind.word())]
    PlaceAmbiguous { kind: Kind, name: String },
    #[error(
        "the OVN load balancer {name} ({uuid}) has some of the Service's addresses and others, so it is not taken over; split it or remove it"
    )]
    TakeOverUnclear { name: String, uuid: Uuid },
    #[error(
        "the OVN load balancer {name} ({uuid}) may be this Service's, and nothing says which addresses it had; remove it if it \
         is, rename it if not"
    )]
    LeftUnclear { name: String, uuid: Uuid },
    #[error(
        "the OVN load balancer {name} ({uuid}) of this Service has another cluster's mark; remove it, or take its \
         groundcrew-* keys out of external_ids to have it put right"
    )]
    RowMarked { name: String, uuid: Uuid },
    #[error(
        "port {port} of the shared address {address} is taken by the OVN load balancer {name} ({uuid}), which is not ours"
    )]
    PortTaken { port: String, address: IpAddr, name: String, uuid: Uuid },
    #[error(
        "spec.loadBalancerSourceRanges cannot be enforced: port {port} of router {router} leads to another router without a \
         switch between; put a switch there, or take the ranges out to be served to everybody"
    )]
    Unguarded { router: String, port: String },

    #[error("the OVN northbound database cannot be seen: {why}")]
    OutOfSight { why: String },
    #[error("OVN changed under the write; looking again")]
    Lost,
    #[error("epoch {epoch} of another leader began; nothing was written")]
    Fenced { epoch: String },
    #[error(
        "{epoch} leads in OVN while the lease here lasts, so nothing is written here: two ovn-lb of cluster {cluster} run, \
         each with a Lease of its own. Stop one of them and restart the other, or give both the same --lease-namespace"
    )]
    Rival { epoch: String, cluster: Arc<str> },
    #[error(
        "an ovn-lb of another --class leads in OVN, {epoch}, and one class of cluster {cluster} can be served, so not {class}: \
         give both the same --class, or stop this one. If the other is gone for good: \
         ovn-nbctl remove NB_Global . external_ids groundcrew-epoch-{cluster}"
    )]
    OtherClass { epoch: String, class: Arc<str>, cluster: Arc<str> },
    #[error("no term has begun; nothing was written")]
    NoTerm,
    #[error("not the leader any more; nothing was written")]
    NotLeader,
    #[error("the OVN northbound database has no NB_Global row; `ovn-nbctl init` or ovn-northd makes it")]
    NoGlobal,
    #[error("OVN refused the write: {reason}")]
    Rejected { reason: String },
    #[error("nothing was written to OVN: {reason}")]
    NotSent { reason: String },
    #[error("no answer from OVN, so the outcome is unknown: {reason}")]
    Unknown { reason: String },

    #[error("no address is free for namespace {namespace}: {why}")]
    PoolEmpty { namespace: String, pools: usize, why: String },
    /// The same, but one is free after a while.
    #[error("no address is free for namespace {namespace}: {why}")]
    PoolRests { namespace: String, why: String, left: Duration },
    #[error(
        "AddressPool {pool} gives out no new address, because what it excludes cannot be read; correct it: {lines}"
    )]
    PoolClosed { pool: String, lines: String },
    #[error("namespace {namespace} has as many addresses of {pool} as it may, {limit}; give one back first")]
    LimitReached { namespace: String, pool: String, limit: u32 },
    #[error("{address} is held by {holder}")]
    AddressTaken { address: IpAddr, holder: String },
    #[error("{address} is in no AddressPool that serves namespace {namespace}")]
    AddressOutside { address: IpAddr, namespace: String },
    #[error("{address} was given back a while ago and rests; it is asked for again when it has rested")]
    AddressRests { address: IpAddr, left: Duration },
    #[error("Service {holder}, whose address is shared, has none yet")]
    NothingToShare { holder: ServiceKey },
    #[error("EIp {namespace}/{name} was not made by this cluster; remove it or give it another name")]
    ForeignEip { namespace: String, name: String },
    #[error(
        "spec.childRef: {child} is not an address of this project; leave childRef out to get one from an AddressPool"
    )]
    ChildRef { child: String },
    #[error(
        "groundcrew.dev/load-balancer-ips: {text} is not one IPv4 or IPv6 address, which is all that an EIp can have"
    )]
    OddRequest { text: String },
    #[error("there is no EIp {eip} in namespace {namespace}, and those of other namespaces cannot be used")]
    EipMissing { eip: String, namespace: String },
    #[error("EIp {eip} cannot be used: {why}")]
    EipNotReady { eip: String, why: String },
    #[error("EIp {eip} is used by a floating address alone; name another one")]
    EipExclusive { eip: String },
    #[error(
        "EIp {eip} is made for another Service and goes with it; make one of your own, or share by groundcrew.dev/sharing-key"
    )]
    EipOfService { eip: String },
    #[error(
        "EIp {eip}, which was made for this Service, is still used by Service {user}; share it by groundcrew.dev/sharing-key"
    )]
    OwnInUse { eip: String, user: String },
    #[error("EIp {eip} has the address {address}, and the Service wants {wanted}")]
    EipFamily { eip: String, address: IpAddr, wanted: &'static str },
    #[error("OvnEip {name} waits for kube-ovn")]
    OvnEipPending { name: String, left: Duration },
    #[error("no address yet: {message}")]
    OvnEipSilent { reason: &'static str, message: String },
    #[error("OvnEip {name} was not made by this cluster; remove it")]
    ForeignOvnEip { name: String },
    #[error(
        "kube-ovn gave {address}, which is held by {holder}; put it into excludeIps of the Subnet, and then delete OvnEip {name}"
    )]
    OvnEipUnusable { name: Arc<str>, address: IpAddr, holder: String },
    #[error("{address} is in no external Subnet that namespace {namespace} may use")]
    AddressOutsideSubnets { address: IpAddr, namespace: String },
    #[error("{address} is kept back by the operator (excludeIps, gateway or edge of Subnet {subnet}); ask for another")]
    AddressExcluded { address: IpAddr, subnet: String },
    #[error("{address} cannot be asked for: kube-ovn chooses IPv6 addresses itself; ask for none to get one")]
    NotByNumber { address: Ipv6Addr },
    #[error("the router of Vpc {vpc} has no port in Subnet {subnet}: {why}")]
    SubnetNotConnected { subnet: String, vpc: String, why: &'static str },
    #[error("OvnEip {name} is not one of namespace {namespace}; name one of the project's own in spec.childRef")]
    ForeignChild { name: String, namespace: String },
    #[error("OvnEip {name} has no address yet")]
    ChildNotReady { name: String },
    #[error(transparent)]
    Kubernetes(#[from] ProviderError),
}

impl From<Error> for ProviderError {
    fn from(error: Error) -> Self {
        let (kind, reason) = match &error {
            Error::Kubernetes(error) => return error.clone(),
            Error::PlaceMissing { kind: Kind::Router, .. } => (ErrorKind::NotFound, Some("RouterMissing")),
            Error::PlaceMissing { kind: Kind::Switch, .. } => (ErrorKind::NotFound, Some("SwitchMissing")),
            Error::PlaceMissing { kind: Kind::Group, .. } => (ErrorKind::NotFound, Some("GroupMissing")),
            Error::PlaceAmbiguous { kind: Kind::Group, .. } => (ErrorKind::Quota, Some("GroupAmbiguous")),
            Error::GroupDetached { .. } => (ErrorKind::Quota, Some("GroupDetached")),
            Error::GroupShared { .. } => (ErrorKind::Quota, Some("GroupShared")),
            Error::PlaceAmbiguous { kind: Kind::Router, .. } => (ErrorKind::Quota, Some("RouterAmbiguous")),
            Error::PlaceAmbiguous { kind: Kind::Switch, .. } => (ErrorKind::Quota, Some("SwitchAmbiguous")),
            // Somebody has to act first, so it is asked for rarely, like a used-up quota.
            Error::PortTaken { .. } => (ErrorKind::Quota, Some("PortConflict")),
            Error::TakeOverUnclear { .. } | Error::LeftUnclear { .. } => (ErrorKind::Quota, Some("TakeOverUnclear")),
            Error::RowMarked { .. } => (ErrorKind::Quota, Some("LoadBalancerMarked")),
            Error::Unguarded { .. } => (ErrorKind::Quota, Some("SourceRangesUnenforceable")),
            Error::EipMissing { .. } => (ErrorKind::Quota, Some("EipMissing")),
            Error::EipNotReady { .. } => (ErrorKind::Quota, Some("EipNotReady")),
            Error::EipExclusive { .. } => (ErrorKind::Quota, Some("EipExclusive")),
            Error::EipOfService { .. } | Error::OwnInUse { .. } | Error::ForeignEip { .. } => {
                (ErrorKind::Quota, Some("EipTaken"))
            }
            Error::EipFamily { .. } => (ErrorKind::Quota, Some("EipFamily")),
            Error::ChildRef { .. } => (ErrorKind::Invalid, Some("ChildRefRefused")),
            Error::OddRequest { .. } => (ErrorKind::Invalid, None),
            // Nobody has to go for this one; somebody has to make a pool, or name another network.
            Error::PoolEmpty { pools: 0, .. } => (ErrorKind::Quota, Some("NoPool")),
            Error::PoolEmpty { .. } | Error::PoolRests { .. } => (ErrorKind::Quota, Some("PoolEmpty")),
            Error::PoolClosed { .. } => (ErrorKind::Quota, Some("PoolClosed")),
            Error::LimitReached { .. } => (ErrorKind::Quota, Some("LimitReached")),
            Error::AddressTaken { .. } | Error::OvnEipUnusable { .. } => (ErrorKind::Quota, Some("AddressTaken")),
            Error::AddressRests { .. } => (ErrorKind::Quota, Some("AddressRests")),
            Error::AddressOutside { .. } => (ErrorKind::Quota, Some("AddressOutsidePools")),
            Error::OvnEipSilent { reason, .. } => (ErrorKind::Quota, Some(*reason)),
            Error::ForeignOvnEip { .. } => (ErrorKind::Quota, Some("OvnEipTaken")),
            Error::AddressOutsideSubnets { .. } => (ErrorKind::Quota, Some("AddressOutsideSubnets")),
            Error::AddressExcluded { .. } => (ErrorKind::Quota, Some("AddressExcluded")),
            Error::NotByNumber { .. } => (ErrorKind::Invalid, Some("AddressRefused")),
            Error::ForeignChild { .. } => (ErrorKind::Quota, Some("ChildRefRefused")),
            Error::ChildNotReady { .. } => (ErrorKind::Quota, Some("ChildNotReady")),
            Error::SubnetNotConnected { .. } => (ErrorKind::Quota, Some("SubnetNotConnected")),
            Error::NothingToShare { .. } | Error::OvnEipPending { .. } | Error::Lost => (ErrorKind::Conflict, None),
            Error::OutOfSight { .. }
            | Error::Fenced { .. }
            | Error::Rival { .. }
            | Error::OtherClass { .. }
            | Error::NoTerm
            | Error::NotLeader
            | Error::NoGlobal
            | Error::Rejected { .. }
            | Error::NotSent { .. }
            | Error::Unknown { .. } => (ErrorKind::Unavailable, None),
        };
        let mut provider = Self::new(kind, error.to_string());
        if let Some(reason) = reason {
            provider = provider.with_reason(reason);
        }
        if let Error::AddressRests { left, .. } | Error::PoolRests { left, .. } | Error::OvnEipPending { left, .. } =
            error
        {
            provider = provider.with_retry_after(left);
        }
        provider
    }
}
