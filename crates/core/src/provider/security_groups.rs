//! A cloud that filters what reaches a server.

use ipnet::IpNet;

use super::{Listing, ProviderError};
use crate::leader::Term;

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// To the server.
    Ingress,
    /// From the server.
    Egress,
}

/// Which family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What a group lets through. A field that is `None` lets everything of its kind through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its id.
    pub id: String,
    /// Which way.
    pub direction: Direction,
    /// Which family.
    pub family: Family,
    /// `tcp`, `udp`, `icmp`, `ipv6-icmp`, ..., or a number, in lower case.
    pub protocol: Option<String>,
    /// The first and the last port, or the type and the code of ICMP, -1 for any code.
    pub ports: Option<(i64, i64)>,
    /// From or to whom.
    pub remote: Remote,
    /// What its maker wrote on it.
    pub description: String,
}

/// Whom a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remote {
    /// Everybody.
    Anyone,
    /// A range of addresses.
    Range(IpNet),
    /// The members of a group, or something that we cannot read. It covers no range that we know.
    Others(String),
}

/// A rule to be made: a whole protocol from or to a range.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NewRule {
    /// Which way.
    pub direction: Direction,
    /// Which protocol, as in [`Rule::protocol`]; all if `None`.
    pub protocol: Option<String>,
    /// The first and the last port; all if `None`.
    pub ports: Option<(u16, u16)>,
    /// From or to which range, which also gives the family.
    pub range: IpNet,
    /// For whoever finds it. It does not make a rule another one.
    pub description: String,
}

/// A security group with its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityGroup {
    /// Its id.
    pub id: String,
    /// Its name, not unique.
    pub name: String,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// The verbs of a cloud that has security groups. Which of them a port has is written with [`Ports`](super::Ports).
pub trait SecurityGroups: Send + Sync + 'static {
    /// The groups of this name; more than one may have it.
    fn security_groups_named(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Listing<SecurityGroup>, ProviderError>> + Send;

    /// One group.
    fn security_group(&self, id: &str) -> impl Future<Output = Result<SecurityGroup, ProviderError>> + Send;

    /// Makes a rule and returns its id. `None` if there is the same one already.
    fn add_rule(
        &self,
        group: &str,
        rule: &NewRule,
        term: &Term,
    ) -> impl Future<Output = Result<Option<String>, ProviderError>> + Send;

    /// Deletes a rule. Gone already is fine.
    fn delete_rule(&self, id: &str, term: &Term) -> impl Future<Output = Result<(), ProviderError>> + Send;
}
