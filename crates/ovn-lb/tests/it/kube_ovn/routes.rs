//! Return routes of a second external network.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};

use super::*;

/// Somebody else's, with a field that we do not know.
fn foreign() -> Value {
    json!({ "priority": 31_500, "match": "ip4.dst == 10.9.0.0/16", "action": "drop", "bfdId": "x" })
}

impl Cloud {
    /// A project that is connected to the network of the test, which is not its way out.
    async fn second(name: &str) -> Self {
        let cloud = Self::new(name).await;
        let spec = json!({
            "namespaces": [cloud.project.namespace], "enableExternal": true,
            "extraExternalSubnets": [cloud.external()], "policyRoutes": [foreign()],
        });
        cloud.kube_ovn.put("Vpc", &cloud.project.namespace, json!({}), spec).await.unwrap();
        cloud
    }

    async fn vpc(&self) -> DynamicObject {
        self.kube_ovn.vpcs().get(&self.project.namespace).await.unwrap()
    }

    /// Waits until somebody else's entry and those for these backends are all that the Vpc has.
    async fn until_routed(&self, backends: &[&str]) {
        let route = |backend: &&str| {
            json!({
                "priority": 30_010, "match": format!("ip4.src == {backend}"), "action": "reroute",
                "nextHopIP": self.project.address(1),
            })
        };
        let expected: Vec<_> = [foreign()].into_iter().chain(backends.iter().map(route)).collect();
        eventually("the Vpc has the return routes", SOON, async || {
            let vpc = self.vpc().await;
            ensure!(vpc.data["spec"]["policyRoutes"] == json!(expected), "{}", vpc.data["spec"]["policyRoutes"]);
            ensure!(vpc.annotations().contains_key(annotation::POLICY_ROUTES) != backends.is_empty(), "the annotation");
            Ok(())
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn each_backend_gets_its_return_route_which_goes_with_the_last_service_that_needs_it() {
    let cloud = Cloud::second("routes").await;
    let (project, _controller) = (&cloud.project, cloud.controller().await);
    project.served("web").await;
    cloud.until_routed(&["10.1.0.41"]).await;
    project.until_reason("web", "Served").await;
    project.endpoints("web", 8080, &["10.1.0.41", "10.1.0.42"]).await;
    cloud.until_routed(&["10.1.0.41", "10.1.0.42"]).await;
    project.served("other").await;
    project.delete("web").await;
    cloud.until_routed(&["10.1.0.41"]).await;
    // The project leaves by this network from now on.
    let way = json!([{ "cidr": "0.0.0.0/0", "nextHopIP": project.address(1), "policy": "policyDst" }]);
    let leave_by = async |routes: Value| {
        let routes = json!({ "spec": { "staticRoutes": routes } });
        cloud.kube_ovn.vpcs().patch(&project.namespace, &PatchParams::default(), &Patch::Merge(routes)).await.unwrap();
    };
    leave_by(way.clone()).await;
    cloud.until_routed(&[]).await;
    leave_by(json!([])).await;
    cloud.until_routed(&["10.1.0.41"]).await;
    leave_by(way.clone()).await;
    cloud.until_routed(&[]).await;
    leave_by(json!([])).await;
    cloud.until_routed(&["10.1.0.41"]).await;
    project.delete("other").await;
    cloud.until_routed(&[]).await;
}

#[tokio::test]
async fn a_return_route_that_somebody_takes_is_put_back_and_one_that_nobody_needs_is_collected_after_a_restart() {
    let cloud = Cloud::second("taken").await;
    let (project, controller) = (&cloud.project, cloud.controller().await);
    project.served("web").await;
    project.served("other").await;
    project.endpoints("other", 8080, &["10.1.0.45"]).await;
    cloud.until_routed(&["10.1.0.41", "10.1.0.45"]).await;
    let vpcs = cloud.kube_ovn.vpcs();
    let taken = json!({ "spec": { "policyRoutes": [foreign()] } });
    vpcs.patch(&project.namespace, &PatchParams::default(), &Patch::Merge(&taken)).await.unwrap();
    cloud.until_routed(&["10.1.0.41", "10.1.0.45"]).await;
    controller.stop().await;

    let version = cloud.vpc().await.resource_version();
    let torn = json!({ "metadata": { "finalizers": null } });
    project.services().patch("other", &PatchParams::default(), &Patch::Merge(torn)).await.unwrap();
    project.services().delete("other", &DeleteParams::default()).await.unwrap();
    assert_eq!(cloud.vpc().await.resource_version(), version);
    let _controller = cloud.controller().await;
    cloud.until_routed(&["10.1.0.41"]).await;
}

#[tokio::test]
async fn where_the_vpc_is_not_ours_to_write_the_missing_route_is_told() {
    let cloud = Cloud::second("told").await;
    let (project, before) = (&cloud.project, cloud.vpc().await.resource_version());
    let controller = cloud.controller_with(&["--return-routes", "tell"]).await;
    project.served("web").await;
    let message = project.until_reason("web", "ReturnRouteMissing").await;
    assert!(message.contains("ip4.src == 10.1.0.41"), "{message}");
    assert_eq!(cloud.vpc().await.resource_version(), before);
    controller.stop().await;

    // The API server refuses the write.
    cloud.forbid_vpc_writes(true).await;
    let _controller = cloud.controller().await;
    eventually("the Service tells why", SOON, async || {
        let message = project.until_reason("web", "ReturnRouteMissing").await;
        ensure!(message.contains("not today"), "{message}");
        Ok(())
    })
    .await
    .unwrap();
    cloud.forbid_vpc_writes(false).await;
    // Anything that happens to the project has it tried again; left alone it is tried again, too, though not at once.
    project.endpoints("web", 8080, &["10.1.0.42"]).await;
    cloud.until_routed(&["10.1.0.42"]).await;
    project.until_reason("web", "Served").await;
}

#[tokio::test]
async fn an_address_of_a_pool_gets_its_return_routes_as_well() {
    let cloud = Cloud::second("pooled").await;
    let project = &cloud.project;
    // Addresses of the second network that kube-ovn does not give out itself.
    project.pool_of(&format!("{}-{}", project.address(2), project.address(6))).await;
    let pools = ["--address-source", "pools"];
    let controller =
        project.start(&cloud.northbound.remotes(), &[&pools[..], &["--return-routes", "tell"]].concat()).await;
    controller.until_ready().await;
    project.served("web").await;
    let message = project.until_reason("web", "ReturnRouteMissing").await;
    assert!(message.contains("ip4.src == 10.1.0.41"), "{message}");
    controller.stop().await;

    let controller = project.start(&cloud.northbound.remotes(), &pools).await;
    controller.until_ready().await;
    cloud.until_routed(&["10.1.0.41"]).await;
    project.until_reason("web", "Served").await;
    assert!(cloud.ovn_eips().await.iter().all(|eip| eip.data["spec"]["type"] == "lrp"), "no other than the router's");
    project.delete("web").await;
    cloud.until_routed(&[]).await;
}

impl Cloud {
    /// Has the API server refuse every change of this project's Vpc, or not any more.
    async fn forbid_vpc_writes(&self, forbid: bool) {
        let name = format!("vpc-{}.example.com", self.project.namespace);
        let client = &self.project.client;
        let (policies, bindings): (Api<ValidatingAdmissionPolicy>, Api<ValidatingAdmissionPolicyBinding>) =
            (Api::all(client.clone()), Api::all(client.clone()));
        if !forbid {
            bindings.delete(&name, &DeleteParams::default()).await.unwrap();
            policies.delete(&name, &DeleteParams::default()).await.unwrap();
            self.until_writable(true).await;
            return;
        }
        let rule = json!({
            "apiGroups": ["kubeovn.io"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["vpcs"],
        });
        let policy = json!({
            "metadata": { "name": name },
            "spec": {
                "failurePolicy": "Fail", "matchConstraints": { "resourceRules": [rule] },
                "validations": [{
                    "expression": format!("object.metadata.name != '{}'", self.project.namespace), "message": "not today",
                }],
            },
        });
        policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
        let binding =
            json!({ "metadata": { "name": name }, "spec": { "policyName": name, "validationActions": ["Deny"] } });
        bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
        self.until_writable(false).await;
    }

    /// The API server takes a moment to hear of its own policies.
    async fn until_writable(&self, writable: bool) {
        let touch = json!({ "metadata": { "labels": { "touched": "true" } } });
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        eventually("the API server follows the policy", SOON, async || {
            let touched = self.kube_ovn.vpcs().patch(&self.project.namespace, &params, &Patch::Merge(&touch)).await;
            ensure!(touched.is_ok() == writable, "{touched:?}");
            Ok(())
        })
        .await
        .unwrap();
    }
}
