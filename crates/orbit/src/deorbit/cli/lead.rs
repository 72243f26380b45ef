//! Where whoever leads has its Lease. A kubeconfig may name another namespace, and two who lead would both work.

use std::time::Duration;

use groundcrew_core::runtime::{self, RuntimeArgs};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;

const NAME: &str = "groundcrew-deorbit";
const DEADLINE: Duration = Duration::from_secs(10);

/// The namespace of a Lease that somebody holds. `None` as well if nobody lets us see: then it is where we would have ours.
pub(super) async fn namespace(args: &RuntimeArgs) -> Option<String> {
    let client = runtime::client(args.kubeconfig.as_deref(), args.context.as_deref()).await.ok()?;
    let leases: Api<Lease> = Api::all(client);
    let named = ListParams::default().fields(&format!("metadata.name={NAME}"));
    let listed = tokio::time::timeout(DEADLINE, leases.list(&named)).await.ok()?.ok()?;
    held(&listed.items, Timestamp::now())
}

/// The one that was renewed last, if that is not long ago.
fn held(leases: &[Lease], now: Timestamp) -> Option<String> {
    let held = leases.iter().filter_map(|lease| {
        let spec = lease.spec.as_ref()?;
        spec.holder_identity.as_ref().filter(|holder| !holder.is_empty())?;
        let renewed = spec.renew_time.as_ref()?.0;
        let lasts = Duration::from_secs(u64::try_from(spec.lease_duration_seconds?).ok()?);
        let silent = Duration::try_from(now.duration_since(renewed)).unwrap_or_default();
        (silent < lasts * 2).then_some((renewed, lease.metadata.namespace.clone()?))
    });
    held.max().map(|(_, namespace)| namespace)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn only_a_lease_that_somebody_holds_and_renews_counts() {
        let lease = |namespace: &str, holder: &str, renewed: &str| -> Lease {
            from_value(json!({"metadata": {"name": NAME, "namespace": namespace},
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}}))
            .unwrap()
        };
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let dead = lease("dead", "it", "2026-01-01T00:00:29.000000Z");
        let resigned = lease("resigned", "", "2026-01-01T00:00:59.000000Z");
        assert_eq!(held(&[dead.clone(), resigned.clone()], now), None);
        let leases = [dead, lease("late", "it", "2026-01-01T00:00:40.000000Z"), resigned];
        assert_eq!(held(&leases, now).as_deref(), Some("late"));
        let leases = [lease("edge", "it", "2026-01-01T00:00:58.000000Z"), leases[1].clone()];
        assert_eq!(held(&leases, now).as_deref(), Some("edge"));
    }
}
