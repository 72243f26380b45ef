//! What a cloud must be able to do, as small traits by capability. A provider implements those that it can.

mod error;
mod leftovers;
mod listing;
mod load_balancers;

pub use error::{ErrorKind, ProviderError, Response, Retry};
pub use leftovers::{Leftover, Leftovers};
pub use listing::Listing;
pub use load_balancers::{
    AddressAsk, Backend, Caveat, Difference, Families, Frontend, Held, Ingress, IpMode, Living, LoadBalancers, Look,
    Owned, Owner, Protocol, Reachable, Realised, SessionAffinity, TrafficPolicy, Verdict, Wanted,
};
