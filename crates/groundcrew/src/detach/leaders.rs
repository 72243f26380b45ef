//! Whether a controller is at work that would put the finalizers back.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::time::{Instant, sleep};

/// The Leases of those that put finalizers on.
const LEASES: [&str; 3] = ["groundcrew-ovn-lb", "groundcrew-cloudsigma-ccm", "groundcrew-deorbit"];
const LOOK: Duration = Duration::from_millis(500);
/// Where a Lease does not say for how long it holds.
const USUAL: Duration = Duration::from_secs(15);

/// Who is at work. A Lease with a holder says nothing by itself: a process that was killed leaves it so. It is looked at
/// until it is renewed or has run out, because clocks of other machines are not trusted.
pub(crate) async fn alive(client: &Client, namespace: Option<&str>) -> anyhow::Result<Option<String>> {
    let api: Api<Lease> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    for name in LEASES {
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        for lease in api.list(&named).await.context("list Leases, to see whether a controller runs")? {
            let namespace = lease.namespace().unwrap_or_default();
            if renewed(client, &namespace, &lease).await? {
                return Ok(Some(format!("the holder of the Lease {namespace}/{name}")));
            }
        }
    }
    Ok(None)
}

async fn renewed(client: &Client, namespace: &str, first: &Lease) -> anyhow::Result<bool> {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let held = |lease: &Lease| {
        let spec = lease.spec.as_ref()?;
        let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
        Some((holder, spec.renew_time.clone()))
    };
    let Some(then) = held(first) else { return Ok(false) };
    let seconds = first.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
    let until = Instant::now() + seconds.map_or(USUAL, Duration::from_secs);
    while Instant::now() < until {
        sleep(LOOK).await;
        match api.get_opt(&first.name_any()).await?.as_ref().and_then(held) {
            Some(now) if now != then => return Ok(true),
            Some(_) => {}
            None => return Ok(false),
        }
    }
    Ok(false)
}
