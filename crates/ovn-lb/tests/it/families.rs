//! Services that ask for both families where there may be no address of one of them.

use std::net::Ipv6Addr;

use groundcrew_core::service::names;
use groundcrew_testkit::eventually;
use groundcrew_testkit::ovn::Northbound;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::harness::{Project, SOON, addresses, get};
use crate::serving::vips;

impl Project {
    /// One of this test's own, as it is written where it is published.
    fn address_v6(&self) -> String {
        let v6: Ipv6Addr = format!("2001:db8:{}::1", self.address(1).replace('.', ":")).parse().unwrap();
        v6.to_string()
    }

    async fn set_policy(&self, service: &str, policy: &str) {
        let edit = json!({ "spec": { "ipFamilyPolicy": policy } });
        self.services().patch(service, &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    }

    async fn until_published(&self, service: &str, expected: &[&str]) {
        let what = format!("{service} has {expected:?}");
        self.until(service, &what, |service| (addresses(service) == expected).then_some(())).await;
    }
}

async fn until_backends(northbound: &Northbound, vip: &str, backends: &str) {
    eventually(&format!("{vip} leads to {backends}"), SOON, async || {
        let vips = vips(northbound).await;
        anyhow::ensure!(vips.get(vip).is_some_and(|found| found == backends), "{vips:?}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_served_service_that_gains_a_family_without_an_address_stays_right_and_gets_one_later() {
    let project = Project::new("gain").await;
    let northbound = project.northbound().await;
    let (v4, v6) = (project.address(1), project.address_v6());
    project.pool(1).await;
    let controller = project.controller(&northbound).await;
    project.endpoints("web", 8080, &["10.1.0.41"]).await;
    project.create("web", json!({ "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"] })).await;
    assert_eq!(project.until_served("web").await, v4);

    project.set_policy("web", "RequireDualStack").await;
    let message = project.until_reason("web", "PoolEmpty").await;
    assert!(message.contains("has no IPv6 address"), "{message}");
    // Endpoints are followed, and a row that kube-ovn's collection deletes is put back.
    project.endpoints("web", 8080, &["10.1.0.41", "10.1.0.42"]).await;
    let (vip, backends) = (format!("{v4}:80"), "10.1.0.41:8080,10.1.0.42:8080");
    until_backends(&northbound, &vip, backends).await;
    northbound.nbctl(["--all", "destroy", "Load_Balancer"]).await.unwrap();
    until_backends(&northbound, &vip, backends).await;
    project.until_published("web", &[&v4]).await;
    eventually("the row is counted as drift, and the missing address is none", SOON, async || {
        let (_, metrics) = get(controller.admin, "/metrics").await?;
        let repaired: Vec<_> = metrics.lines().filter(|line| line.starts_with("groundcrew_drift_repaired")).collect();
        anyhow::ensure!(repaired.iter().any(|line| line.contains("kind=\"row_missing\"")), "{repaired:?}");
        assert!(!repaired.iter().any(|line| line.contains("kind=\"address\"")), "{repaired:?}");
        Ok(())
    })
    .await
    .unwrap();
    controller.stop().await;

    // Whoever comes next knows no more than what is written down.
    let controller = project.controller(&northbound).await;
    project.endpoints("web", 8080, &["10.1.0.43"]).await;
    until_backends(&northbound, &vip, "10.1.0.43:8080").await;
    project.until_reason("web", "PoolEmpty").await;
    project.pool_of(&format!("{v4}-{v4},{v6}-{v6}")).await;
    project.until_published("web", &[&v4, &v6]).await;
    project.until_reason("web", "Served").await;
    controller.stop().await;
}

#[tokio::test]
async fn a_new_service_that_prefers_both_families_is_served_with_the_one_that_there_is() {
    let project = Project::new("prefer").await;
    let northbound = project.northbound().await;
    let (v4, v6) = (project.address(1), project.address_v6());
    project.pool(1).await;
    let controller = project.controller(&northbound).await;
    let both = |policy: &str| json!({ "ipFamilyPolicy": policy, "ipFamilies": ["IPv6", "IPv4"] });
    project.endpoints("prefers", 8080, &["10.1.0.41"]).await;
    project.create("prefers", both("PreferDualStack")).await;
    project.until_published("prefers", &[&v4]).await;
    let message = project.until_reason("prefers", "PoolEmpty").await;
    assert!(message.contains("has no IPv6 address"), "{message}");
    project.create("requires", both("RequireDualStack")).await;
    let message = project.until_reason("requires", "PoolEmpty").await;
    assert!(message.contains("IPv6"), "{message}");
    project.until_published("requires", &[]).await;
    project.pool_of(&format!("{v4}-{v4},{v6}-{v6}")).await;
    project.until_published("prefers", &[&v6, &v4]).await;
    controller.stop().await;
}

#[tokio::test]
async fn who_shares_an_address_and_gains_a_family_stays_right_and_shares_the_other_one_later() {
    let project = Project::new("both").await;
    let northbound = project.northbound().await;
    let (v4, v6) = (project.address(1), project.address_v6());
    project.pool(1).await;
    let controller = project.controller(&northbound).await;
    let key = json!({ names::SHARING_KEY: "one" });
    let spec = |port: u16| {
        let ports = json!([{ "name": "http", "port": port, "targetPort": "web" }]);
        json!({ "ports": ports, "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"] })
    };
    for (name, port) in [("first", 80), ("second", 443)] {
        project.endpoints(name, 8080, &["10.1.0.41"]).await;
        project.create_annotated(name, key.clone(), spec(port)).await;
        assert_eq!(project.until_served(name).await, v4);
    }
    for (name, reason) in [("first", "PoolEmpty"), ("second", "WaitsForShared")] {
        project.set_policy(name, "RequireDualStack").await;
        project.until_reason(name, reason).await;
        project.endpoints(name, 8080, &["10.1.0.42"]).await;
    }
    until_backends(&northbound, &format!("{v4}:80"), "10.1.0.42:8080").await;
    until_backends(&northbound, &format!("{v4}:443"), "10.1.0.42:8080").await;
    project.pool_of(&format!("{v4}-{v4},{v6}-{v6}")).await;
    for name in ["first", "second"] {
        project.until_published(name, &[&v4, &v6]).await;
    }
    controller.stop().await;
}
