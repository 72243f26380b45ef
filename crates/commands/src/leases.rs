//! Who leads, by the Leases.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::cluster::{Seen, list};

/// Controllers that elect a leader.
pub(crate) const ELECTING: [&str; 6] = ["ovn-lb", "lb-watcher", "cloudsigma-ccm", "routegc", "flight", "deorbit"];

/// The Leases of our controllers, in one namespace or in all. They are asked for by name: a cluster has one for every
/// node, too.
pub(crate) async fn controllers(client: &Client, namespace: Option<&str>) -> Seen<Vec<Lease>> {
    let leases: Api<Lease> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut all = Vec::new();
    for name in ELECTING {
        let named = ListParams::default().fields(&format!("metadata.name=groundcrew-{name}"));
        all.extend(list("Leases", &leases, &named).await?);
    }
    Ok(all)
}

/// Who leads, by one Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Leadership {
    Held {
        by: String,
        age: SignedDuration,
    },
    /// Not renewed for longer than it lasts.
    Late {
        by: String,
        age: SignedDuration,
    },
    /// Given back.
    Free,
}

impl Leadership {
    pub(crate) fn of(lease: &Lease, now: Timestamp) -> Self {
        let Some(spec) = &lease.spec else { return Self::Free };
        let by = spec.holder_identity.clone().unwrap_or_default();
        let Some(renewed) = spec.renew_time.as_ref().filter(|_| !by.is_empty()) else { return Self::Free };
        // The server's clock is read to the second, and the leader's may be a little ahead of it.
        let age = now.duration_since(renewed.0).max(SignedDuration::ZERO);
        let lasts = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(15).into());
        if age <= lasts + SignedDuration::from_secs(1) { Self::Held { by, age } } else { Self::Late { by, age } }
    }
}
