//! Keys in `external_ids` of a load balancer that say whose it is and where it belongs.

/// The cluster that made the row.
pub const CLUSTER: &str = "groundcrew-cluster";
/// The Service's namespace.
pub const NAMESPACE: &str = "groundcrew-namespace";
/// The Service's name.
pub const SERVICE: &str = "groundcrew-service";
/// The Service's uid: a namesake that was made later is another owner.
pub const UID: &str = "groundcrew-uid";
/// What we last wrote, in short: who reads the database can tell a change of ours from one behind our back.
pub const HASH: &str = "groundcrew-hash";
/// The router that the row was attached to, so that it can be taken from it when another one is configured.
pub const ROUTER: &str = "groundcrew-router";
/// The switch, likewise.
pub const SWITCH: &str = "groundcrew-switch";
/// The group, if it was attached by way of one.
pub const GROUP: &str = "groundcrew-group";
