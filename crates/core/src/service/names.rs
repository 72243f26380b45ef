//! Names that this controller puts on Services, or reads from them.

pub use groundcrew_api::names::annotation::{CLAIMED_BY, LOAD_BALANCER_IPS, PAUSED, SHARING_KEY};
pub use groundcrew_api::names::condition::{
    SERVICE_DRIFT_FLAPPING as DRIFT_FLAPPING, SERVICE_PREFIX as CONDITION_PREFIX, SERVICE_READY as READY,
    SERVICE_REALISED as REALISED, SERVICE_ROUTABLE_EXTERNALLY as ROUTABLE_EXTERNALLY,
};
pub use groundcrew_api::names::finalizer::LOAD_BALANCER_CLEANUP as FINALIZER;
