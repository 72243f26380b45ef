//! Names that this controller puts on Services, or reads from them.

/// The finalizer that Kubernetes defines for load balancers. Other controllers use the same one.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Written together with the finalizer: the class of the controller that put it there.
pub const CLAIMED_BY: &str = "groundcrew.dev/claimed-by";
/// `"true"`: leave this Service exactly as it is.
pub const PAUSED: &str = "groundcrew.dev/paused";
/// Services of one namespace with the same value share an address.
pub const SHARING_KEY: &str = "groundcrew.dev/sharing-key";
/// Addresses asked for, at most one of each family, separated by commas.
pub const LOAD_BALANCER_IPS: &str = "groundcrew.dev/load-balancer-ips";
/// Every condition of ours begins with it.
pub const CONDITION_PREFIX: &str = "groundcrew.dev/";
/// Whether the Service is served.
pub const READY: &str = "groundcrew.dev/Ready";
/// Present while nobody has confirmed that what was written is in effect.
pub const REALISED: &str = "groundcrew.dev/Realised";
