//! A cloud that can hold an address for a Service and make it answer.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use futures::stream::BoxStream;
use ipnet::IpNet;
use uuid::Uuid;

use super::{Listing, ProviderError};
use crate::drift::{Attribute, Nobody};
use crate::key::ServiceKey;
use crate::leader::Term;

/// Whom a thing outside belongs to: written on it as its mark, compared whole. A Service that was deleted and made
/// again under the same name has another uid, and is another owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// Namespace and name.
    pub key: ServiceKey,
    /// The Service's uid.
    pub uid: Uuid,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

/// A transport protocol of a Service port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// `TCP`
    Tcp,
    /// `UDP`
    Udp,
    /// `SCTP`
    Sctp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

/// What a Service says about the address that it would like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressAsk {
    /// For whom.
    pub owner: Owner,
    /// One address is wanted for each of these families, in this order.
    pub families: Families,
    /// Of two families one may do where the other has no address to give (`PreferDualStack`).
    pub one_is_enough: bool,
    /// Addresses that the user asked for by number, at most one a family. Empty: any.
    pub requested: Vec<IpAddr>,
    /// The Service whose address this one shares. Its ports were found free of conflict.
    pub share_with: Option<Owner>,
    /// The families of which that one has an address, or asks for one. Of another family there is nothing to share.
    pub share_families: Option<Families>,
    /// Addresses that the Service has published; living addresses do not change.
    pub current: Vec<IpAddr>,
    /// The Service's annotations under the prefixes that the provider named.
    pub annotations: Arc<BTreeMap<Box<str>, Box<str>>>,
}

/// The address families that a Service asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Families {
    /// IPv4 alone.
    V4,
    /// IPv6 alone.
    V6,
    /// Both, IPv4 first.
    V4V6,
    /// Both, IPv6 first.
    V6V4,
}

impl Families {
    /// Whether an address of this family is wanted.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        match self {
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
            Self::V4V6 | Self::V6V4 => true,
        }
    }

    /// Whether there is a family in both.
    #[must_use]
    pub fn meet(self, other: Self) -> bool {
        !matches!((self, other), (Self::V4, Self::V6) | (Self::V6, Self::V4))
    }
}

/// Addresses that are held for a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// In the order in which they are published.
    pub addresses: Vec<IpAddr>,
}

/// One backend of a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    /// The endpoint's address.
    pub address: IpAddr,
    /// The endpoint's port.
    pub port: u16,
    /// The node that it runs on, where the slice says so.
    pub node: Option<Arc<str>>,
}

/// One port of a Service and what answers on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frontend {
    /// The transport.
    pub protocol: Protocol,
    /// The port that clients connect to.
    pub port: u16,
    /// The node port, where the Service has one.
    pub node_port: Option<u16>,
    /// Sorted, without duplicates, of all families. Empty: connections should be refused, not dropped.
    pub backends: Vec<Backend>,
}

/// `externalTrafficPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrafficPolicy {
    /// Any backend may answer.
    Cluster,
    /// Only backends on the node that got the packet.
    Local,
}

/// `sessionAffinity: ClientIP` with its time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionAffinity {
    /// For how long a client stays with its backend.
    pub seconds: u32,
}

/// Everything that must be true outside for one Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What the Service says about its address; `ask.owner` is the owner.
    pub ask: AddressAsk,
    /// The addresses on which it answers. Empty while none is held yet.
    pub addresses: Vec<IpAddr>,
    /// Sorted by protocol and port.
    pub frontends: Vec<Frontend>,
    /// Where traffic may be balanced to.
    pub traffic_policy: TrafficPolicy,
    /// Whether a client stays with its backend.
    pub affinity: Option<SessionAffinity>,
    /// Who may connect; empty is everybody.
    pub source_ranges: Vec<IpNet>,
}

impl Wanted {
    /// Whom it is for.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.ask.owner
    }

    /// Differs when something else is wanted outside.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let Self { ask, addresses, frontends, traffic_policy, affinity, source_ranges } = self;
        let mut hasher = DefaultHasher::new();
        (ask.owner.uid, ask.families, &ask.requested, &ask.annotations).hash(&mut hasher);
        (addresses, frontends, traffic_policy, affinity, source_ranges).hash(&mut hasher);
        hasher.finish()
    }

    /// Whether any port has a backend of a family that it answers on.
    #[must_use]
    pub fn has_backends(&self) -> bool {
        let answers = |backend: &Backend| self.addresses.iter().any(|a| a.is_ipv4() == backend.address.is_ipv4());
        self.frontends.iter().flat_map(|f| &f.backends).any(answers)
    }
}

/// `ipMode` of a published address: whether the node may short-cut traffic to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpMode {
    /// Packets reach the node with the address as their destination.
    Vip,
    /// Packets were already sent on by a proxy; kube-proxy must not short-cut.
    Proxy,
}

/// One published address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ingress {
    /// The address.
    pub address: IpAddr,
    /// How traffic to it arrives.
    pub mode: IpMode,
}

/// Whether what was written is also in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Realised {
    /// Yes.
    Yes,
    /// Not yet, and it is too early to call that odd. Nothing is published: the provider promises a [`Look`] at the
    /// Service when there is an answer, or when the time for one is over.
    Awaited,
    /// It is written, but nobody has confirmed that it works; the text says who was silent.
    Unknown(String),
    /// Nobody can tell, as after a restart: what the Service says about it stays.
    AsTold,
}

/// Something about a Service that is served, but not as its user may expect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caveat {
    /// A `PascalCase` word: reason of the condition and of the Event.
    pub reason: &'static str,
    /// A sentence for the Service's user.
    pub message: String,
    /// Whether nobody answers on the address because of it.
    pub stops: bool,
}

/// Whether somebody outside reaches the addresses of a Service: that they work here does not say that anybody routes them
/// here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Routable {
    /// Nobody is asked.
    #[default]
    Unasked,
    /// There is no answer yet: what the Service says about it stays.
    AsTold,
    /// Yes.
    Yes,
    /// No; the text is for the Service's user.
    No(String),
}

/// A Service that can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reachable {
    /// What to publish.
    pub ingress: Vec<Ingress>,
    /// Whether the data path has taken it.
    pub realised: Realised,
    /// Whether somebody outside reaches it.
    pub routable: Routable,
    /// What its user should know; the first is the most important.
    pub caveats: Vec<Caveat>,
}

/// One thing that is not as it should be. `Display` is a line of `--dry-run` and of a drift report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// A bounded word for metrics: `row_missing`, `vips`, `router_detached`.
    pub kind: &'static str,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.kind, self.found, self.expected)
    }
}

/// The outside world compared with what is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As wanted; there is nothing to do. What to publish is told again, so that no call is needed for it.
    Same(Reachable),
    /// Not as wanted.
    Differs(Vec<Difference>),
    /// The view is incomplete: neither alarm nor all-clear.
    Unknown,
}

/// Something outside that carries this cluster's mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// The owner that the mark names.
    pub owner: Owner,
    /// What it is, for people: `load balancer web-tcp-1a2b`, `address 192.0.2.7`.
    pub what: String,
    /// Nobody uses it, so that nobody can miss it: however many there are, they go a few at a time and hold up nothing else.
    pub unused: bool,
}

/// A Service that has published addresses: they must survive a restart, a new leader and an edit of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Living {
    /// The Service.
    pub owner: Owner,
    /// What it has published.
    pub addresses: Vec<IpAddr>,
}

/// Who uses an address together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beside {
    /// Its users, as far as it is known which Services they are.
    pub services: Vec<Owner>,
    /// The names under which others may come to it.
    pub names: Vec<Arc<str>>,
}

/// Where to look again. It never says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// At this Service.
    At(ServiceKey),
    /// At these, which one change concerns.
    These(Vec<ServiceKey>),
    /// At these, which are most likely as they should be: after those that may be broken.
    InPassing(Vec<ServiceKey>),
    /// At all of them: a reconnect, a restored database, a changed pool.
    Everywhere,
}

/// The verbs of a cloud that has load balancers. All of them are idempotent, may be called again after any crash, and
/// own only what carries our mark.
///
/// Each verb that writes is given the [`Term`] of the election under which it writes. A provider runs each of its
/// outside writes through [`Term::write`], so that a leader that has lost its lease writes nothing more.
pub trait LoadBalancers: Send + Sync + 'static {
    /// A new term begins. Called before its first write, with every address that is living, so that none of them is
    /// given to somebody else. A provider whose cloud has preconditions makes older terms' writes fail from here on.
    fn begin(&self, term: &Term, living: &[Living]) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Holds an address for this Service: the same one every time. A wish that can never be served is refused first, so
    /// that it takes no address from others.
    fn hold(&self, want: &Wanted, term: &Term) -> impl Future<Output = Result<Held, ProviderError>> + Send;

    /// Makes the Service answer on its addresses. Many calls at once may share one outside transaction.
    fn ensure(&self, want: &Wanted, term: &Term) -> impl Future<Output = Result<Reachable, ProviderError>> + Send;

    /// The same for many Services at once, each of which has its addresses and has published them: what was changed
    /// behind our back, or backends that came and went. Answers in the order of `wants`, as soon as it is written; it
    /// does not wait until it is in effect. What fails here is looked at again by itself.
    fn ensure_all(
        &self,
        wants: &[Wanted],
        term: &Term,
    ) -> impl Future<Output = Vec<Result<Reachable, ProviderError>>> + Send {
        async move {
            let mut answers = Vec::with_capacity(wants.len());
            for want in wants {
                answers.push(self.ensure(want, term).await);
            }
            answers
        }
    }

    /// Whether [`ensure_all`](Self::ensure_all) is better than one call for each, because they share an outside write.
    fn shares_writes(&self) -> bool {
        false
    }

    /// Takes everything away that is held for this owner. Gone already is fine.
    fn release(&self, owner: &Owner, term: &Term) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Takes everything away that is held for this owner, and what an older controller, see [`takes_over`](Self::takes_over),
    /// had made for it on these addresses.
    fn release_inherited(
        &self,
        owner: &Owner,
        _addresses: &[IpAddr],
        term: &Term,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send {
        self.release(owner, term)
    }

    /// Compares the outside world with what is wanted, from what the provider has been told so far: no I/O.
    fn verify(&self, want: &Wanted) -> Verdict;

    /// Whether what is there for this Service, which has published addresses and differs, is just what was last written for
    /// it: then only its wish has moved on, and nobody has changed anything behind our back. Asked where nothing is known
    /// of what it had, as after a restart, or where it wants something else by now; no I/O. What cannot be told, as by
    /// default, is taken for a new wish.
    fn is_as_left(&self, _want: &Wanted) -> bool {
        true
    }

    /// Whether a Service may differ in this way because its wish follows something outside that has changed, such as the
    /// networks that its backends may be in, and not because somebody changed what was written for it. Then it is asked
    /// whether that [is as it was left](Self::is_as_left), although the Service wants what it wanted before; no I/O.
    fn may_move_on(&self, _differences: &[Difference]) -> bool {
        false
    }

    /// Whether this owner was given this address, as far as is known without I/O. Asked for one that a Service has published
    /// whose claim somebody has taken off: it is living all the same.
    fn holds(&self, _owner: &Owner, _address: IpAddr) -> bool {
        false
    }

    /// Who uses an address that this owner uses, or the one of this name, whatever it says now: it said so once, and keeps
    /// the address. Nobody, where an owner has its addresses for itself. No I/O.
    fn beside(&self, _owner: &Owner, _named: Option<&str>) -> Beside {
        Beside::default()
    }

    /// Everything outside that carries this cluster's mark.
    fn owned(&self) -> impl Future<Output = Result<Listing<Owned>, ProviderError>> + Send;

    /// Wakes when something outside may have changed.
    fn changes(&self) -> BoxStream<'static, Look>;

    /// Who is asked when something outside is not as it had been left.
    fn attribution(&self) -> Arc<dyn Attribute> {
        Arc::new(Nobody)
    }

    /// Resolves when the provider's view is complete for the first time; the controller is not ready before.
    fn synced(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// How many Services may be worked on at once. Where calls share a transaction, many; where each is a request to a
    /// slow API, few.
    fn concurrency(&self) -> usize {
        16
    }

    /// The address that a Service names in its annotations to be served on, under a name that is the same for all of a
    /// namespace who mean the same one. They share it, whatever their sharing keys: their ports must differ.
    fn named_address(&self, _annotations: &BTreeMap<Box<str>, Box<str>>) -> Option<String> {
        None
    }

    /// Whether a Service that has published addresses is on the one of this name. A living address does not change, so
    /// that annotations which came later say nothing about it.
    fn is_on(&self, _owner: &Owner, _name: &str) -> bool {
        true
    }

    /// Finalizers of an older controller whose Services are taken over with their addresses. They are swapped for ours
    /// when such a Service is claimed, and taken away when it goes.
    fn takes_over(&self) -> &'static [&'static str] {
        &[]
    }

    /// Prefixes of the annotations that the provider reads; others are not kept in memory.
    fn annotation_prefixes(&self) -> &'static [&'static str] {
        &[]
    }
}
