//! What keeps an address from a Service, in words for its user.

use std::net::IpAddr;
use std::time::Duration;

use groundcrew_core::provider::{ErrorKind, ProviderError};

use crate::client;
use crate::pool::{Pool, Unfit};

#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Error {
    #[error("CloudSigma: {0}")]
    Cloud(#[from] client::Error),
    #[error(transparent)]
    Kube(ProviderError),
    #[error("the CloudSigma account has not been read yet")]
    NotRead,
    #[error("the CloudSigma account could only be read in part; nothing is decided on that")]
    ReadInPart,
    #[error("{0}")]
    Wish(String),
    #[error("{with}, whose address is to be shared, has none yet")]
    NothingToShare { with: String },
    #[error("{address} {why}")]
    Unfit { address: IpAddr, why: Unfit },
    #[error("no free {} address in the {pool} pool: {why}", if *v6 { "IPv6" } else { "IPv4" })]
    PoolEmpty { pool: Pool, v6: bool, why: String },
    #[error("{address} was, or may have been, taken by another cluster at the same moment; trying again")]
    Outrun { address: IpAddr },
    #[error(
        "CloudSigma took {} ms to mark {address}, longer than --claim-settle ({} ms), so that another cluster may have it; \
         raise it in every cluster of the account",
        took.as_millis(), settle.as_millis()
    )]
    MarkedLate { address: IpAddr, took: Duration, settle: Duration },
    #[error(
        "FloatingIP {name} was not made by this cluster's controller; remove it, or leave the address to its owner"
    )]
    NotOurs { name: String },
    #[error("waiting for node {node} to let go of {address}")]
    NotLetGo { address: IpAddr, node: String },
    #[error("node {node} has not confirmed {address}; is the node agent running there? {said}")]
    NotConfirmed { address: IpAddr, node: String, said: String },
    #[error("{address} could not be moved in time; trying again")]
    NotMoved { address: IpAddr },
    #[error("the server of node {node} could not be stopped before its addresses move: {why}")]
    NotFenced { node: String, why: String },
    #[error("no node can hold {address}: {why}")]
    NoNode { address: IpAddr, why: String },
    #[error(
        "the public NIC of server {server} is not in manual mode, so that it cannot use {address}; set it, or add a NIC \
         in manual mode, or allow it with --switch-nics"
    )]
    NicNotManual { address: IpAddr, server: String },
    #[error(
        "CloudSigma accepted to {what} {address} at server {server} and did not do it: a running server ignores changed \
         NICs; use --mode=manual, or stop the server"
    )]
    AttachIgnored { address: IpAddr, server: String, what: &'static str },
    #[error("drives of server {server} changed while {address} was attached: {drives}; check the volumes of that node")]
    DrivesChanged { address: IpAddr, server: String, drives: String },
    #[error("{address} is attached to server {server}, which is none of this cluster's nodes")]
    AttachedElsewhere { address: IpAddr, server: String },
}

impl From<Error> for ProviderError {
    fn from(error: Error) -> Self {
        let (kind, reason) = match &error {
            Error::Cloud(error) => return error.clone().into(),
            Error::Kube(error) => return error.clone(),
            Error::NotRead | Error::ReadInPart => (ErrorKind::Unavailable, None),
            Error::Wish(_) => (ErrorKind::Invalid, Some("UnknownPool")),
            Error::Unfit { .. } | Error::AttachedElsewhere { .. } => (ErrorKind::Quota, Some("AddressRefused")),
            Error::PoolEmpty { .. } => (ErrorKind::Quota, Some("PoolEmpty")),
            Error::Outrun { .. } | Error::MarkedLate { .. } => (ErrorKind::Conflict, Some("AddressTaken")),
            Error::NotOurs { .. } => (ErrorKind::Quota, Some("FloatingIPNotOurs")),
            Error::NotLetGo { .. } | Error::NothingToShare { .. } => (ErrorKind::Conflict, None),
            Error::NotConfirmed { .. } => (ErrorKind::NotFound, Some("NotConfirmed")),
            Error::NotMoved { .. } => (ErrorKind::Unavailable, Some("NotMoved")),
            Error::NotFenced { .. } => (ErrorKind::Conflict, Some("NotFenced")),
            Error::NoNode { .. } => (ErrorKind::NotFound, Some("NoNode")),
            Error::NicNotManual { .. } => (ErrorKind::Denied, Some("NicNotManual")),
            Error::AttachIgnored { .. } => (ErrorKind::Denied, Some("AttachIgnored")),
            Error::DrivesChanged { .. } => (ErrorKind::Conflict, Some("DrivesChanged")),
        };
        let told = Self::new(kind, error.to_string());
        match reason {
            Some(reason) => told.with_reason(reason),
            None => told,
        }
    }
}
