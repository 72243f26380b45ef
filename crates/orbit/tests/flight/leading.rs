//! What begins while somebody else leads.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{from_value, json};

use crate::Lab;

#[tokio::test]
async fn what_a_follower_has_found_is_told_when_it_leads() {
    let lab = Lab::new().await;
    for (server, ready) in [("a", false), ("b", true), ("c", true)] {
        lab.cloud.boot(server);
        lab.node(server, "10.180.0.7", ready).await;
    }
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), "default");
    let now = Timestamp::now().to_string();
    let held =
        json!({"holderIdentity": "another", "leaseDurationSeconds": 3_600, "renewTime": now, "acquireTime": now});
    let lease = json!({"metadata": {"name": "groundcrew-flight"}, "spec": held});
    leases.create(&PostParams::default(), &from_value(lease).unwrap()).await.unwrap();

    let flags = ["--lease-namespace", "default", "--steady-for", "0s", "--unready-after", "1s"];
    let running = lab.start(&[&flags[..], &["--required-role", "admin"]].concat()).await;
    running.until_metric("groundcrew_flight_condition_bool{condition=\"RolesMissing\"}", |so| so > 0.5).await;
    // The server is sick from the second pass on.
    running.until_metric("groundcrew_flight_passes_total{outcome=\"ok\"}", |passes| passes >= 4.0).await;
    assert_eq!(lab.events("node-a", "ServerSick").await.unwrap(), [""; 0], "a follower tells nobody");

    let free = Patch::Merge(json!({"spec": {"holderIdentity": null}}));
    leases.patch("groundcrew-flight", &PatchParams::default(), &free).await.unwrap();
    lab.told("a", "ServerSick").await;
    lab.told_about("groundcrew-flight", "RolesMissing").await;
    running.stop().await;
    assert_eq!(lab.events("node-a", "ServerSick").await.unwrap().len(), 1, "once");
}
