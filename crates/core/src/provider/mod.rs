//! What a cloud must be able to do, as small traits by capability. A provider implements those that it can.

mod access;
mod error;
mod instances;
mod leftovers;
mod listing;
mod load_balancers;
mod ports;
mod routes;
mod security_groups;

pub use access::Access;
pub use error::{ErrorKind, ProviderError, Response, Retry};
pub use instances::{Instance, InstanceGroup, InstanceState, Instances, Reboot};
pub use leftovers::{Leftover, LeftoverClass, LeftoverKind, Leftovers, Named, Presence, User};
pub use listing::Listing;
pub use load_balancers::{
    AddressAsk, Backend, Beside, Caveat, Difference, Families, Frontend, Held, Ingress, IpMode, Living, LoadBalancers,
    Look, Owned, Owner, Protocol, Reachable, Realised, Routable, SessionAffinity, TrafficPolicy, Verdict, Wanted,
};
pub use ports::{AddressPair, Device, Port, PortAddress, Ports};
pub use routes::{Route, RouteLimit, Router, Routes, Subnet};
pub use security_groups::{Direction, Family, NewRule, Remote, Rule, SecurityGroup, SecurityGroups};
