//! `ovn-lb` and `lb-watcher` on a real OVN.

use anyhow::{anyhow, ensure};
use groundcrew_api::address_pool::{AddressPool, AddressPoolSpec};
use groundcrew_api::names::{class, label};
use groundcrew_testkit::kube_ovn::{self, KubeOvn};
use groundcrew_testkit::ovn::{Central, Northbound};
use groundcrew_testkit::{Signal, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::{Installed, SOON, namespace};

/// The project's router and switch have its name.
const PROJECT: &str = "shop";

struct Project {
    client: Client,
    central: Central,
}

impl Project {
    /// The chart with this controller, and an OVN with a router and a switch.
    async fn new(case: &str, more: &[&str]) -> (Installed, Self) {
        let central = Central::start().await.unwrap();
        let switch = format!("{PROJECT}-default");
        central.northbound().nbctl(["lr-add", PROJECT, "--", "ls-add", &switch]).await.unwrap();
        let mut sets = vec!["--set".to_owned(), format!("ovn.northbound={{{}}}", central.northbound().tcp(0))];
        sets.extend(more.iter().flat_map(|set| ["--set".to_owned(), (*set).to_owned()]));
        let installed = Installed::new(case, &sets).await;
        namespace(&installed.client, PROJECT).await;
        let client = installed.client.clone();
        (installed, Self { client, central })
    }

    fn northbound(&self) -> &Northbound {
        self.central.northbound()
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), PROJECT)
    }

    async fn create(&self, name: &str, class: Option<&str>) {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": class, "allocateLoadBalancerNodePorts": false,
                "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }],
            },
        });
        self.services().create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } },
            "addressType": "IPv4", "ports": [{ "name": "http", "protocol": "TCP", "port": 8080 }],
            "endpoints": [{ "addresses": ["10.1.0.41"], "conditions": { "ready": true } }],
        });
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), PROJECT);
        slices.create(&PostParams::default(), &serde_json::from_value(slice).unwrap()).await.unwrap();
    }

    async fn until_served(&self, name: &str) -> String {
        eventually(&format!("{name} has an address"), SOON, async || {
            let status = self.services().get(name).await?.status;
            let ingress = status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref()?.first());
            ingress.and_then(|ingress| ingress.ip.clone()).ok_or_else(|| anyhow!("{status:?}"))
        })
        .await
        .unwrap()
    }

    async fn delete(&self, name: &str) {
        self.services().delete(name, &DeleteParams::default()).await.unwrap();
        eventually(&format!("{name} is gone"), SOON, async || match self.services().get_opt(name).await? {
            None => Ok(()),
            Some(service) => Err(anyhow!("{:?} {:?}", service.metadata.finalizers, service.status)),
        })
        .await
        .unwrap();
    }

    /// Names of the load balancers that serve this address.
    async fn rows(&self, address: &str) -> Vec<String> {
        let rows =
            self.northbound().nbctl(["--format=csv", "--no-headings", "--columns=name,vips", "list", "Load_Balancer"]);
        let rows = rows.await.unwrap();
        let of_it = rows.lines().filter(|row| row.contains(&format!("{address}:80")));
        of_it.filter_map(|row| row.split(',').next().map(str::to_owned)).collect()
    }

    async fn until_rows(&self, address: &str, wanted: usize) -> Vec<String> {
        eventually(&format!("{wanted} rows for {address}"), SOON, async || {
            let rows = self.rows(address).await;
            ensure!(rows.len() == wanted, "{rows:?}");
            Ok(rows)
        })
        .await
        .unwrap()
    }

    /// Somebody deletes the row, and it is back.
    async fn drift(&self, address: &str) {
        let rows = self.until_rows(address, 1).await;
        self.northbound().nbctl(["lb-del", &rows[0]]).await.unwrap();
        assert_eq!(self.until_rows(address, 1).await, rows);
    }

    /// kube-ovn-controller as its Lease shows it.
    async fn kube_ovn_leads(&self, holder: &str) {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "kube-ovn-controller" }, "spec": { "holderIdentity": holder },
        });
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-system");
        let params = PatchParams::apply("test").force();
        leases.patch("kube-ovn-controller", &params, &Patch::Apply(lease)).await.unwrap();
    }
}

/// kube-dc's Projects: whatever they say.
async fn define_projects(installed: &Installed) {
    let definition = json!({
        "metadata": { "name": "projects.kube-dc.com" },
        "spec": {
            "group": "kube-dc.com", "scope": "Namespaced",
            "names": { "kind": "Project", "plural": "projects", "singular": "project" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            } } }],
        },
    });
    installed.plane.define(&[serde_json::from_value(definition).unwrap()]).await.unwrap();
}

#[tokio::test]
async fn ovn_lb_serves_repairs_collects_and_releases_with_the_rights_of_the_chart() {
    // Somebody's force is collected within seconds instead of minutes.
    let quick = "controllers.ovn-lb.extraArgs={--scan-interval=1s,--orphan-age=1s,--address-rest=0s}";
    let (installed, project) = Project::new("ovn-lb", &[quick]).await;
    let pools: Api<AddressPool> = Api::all(project.client.clone());
    let spec = AddressPoolSpec { addresses: vec!["192.0.2.0/28".into()], ..AddressPoolSpec::default() };
    pools.create(&PostParams::default(), &AddressPool::new("public", spec)).await.unwrap();

    // Addresses of our own pools, as there is no kube-ovn yet.
    let controller = installed.start("ovn-lb").await;
    project.create("web", Some(class::OVN)).await;
    let address = project.until_served("web").await;
    project.drift(&address).await;
    project.delete("web").await;
    project.until_rows(&address, 0).await;
    project.create("torn", Some(class::OVN)).await;
    let address = project.until_served("torn").await;
    project.until_rows(&address, 1).await;
    controller.process.end(Signal::SIGTERM).await.unwrap();
    project.until_rows(&address, 1).await;
    let torn = json!({ "metadata": { "finalizers": null } });
    project.services().patch("torn", &PatchParams::default(), &Patch::Merge(torn)).await.unwrap();
    project.services().delete("torn", &DeleteParams::default()).await.unwrap();

    // A cluster with kube-ovn and kube-dc, whose network is not the project's way out.
    installed.plane.define(&kube_ovn::crds().unwrap()).await.unwrap();
    define_projects(&installed).await;
    let kube_ovn = KubeOvn::start(project.client.clone(), "ext");
    let labels = json!({ label::EXTERNAL_NETWORK_TYPE: "public" });
    let subnet = json!({ "cidrBlock": "198.51.100.0/29", "gateway": "198.51.100.1", "protocol": "IPv4" });
    kube_ovn.put("Subnet", "ext", labels, subnet).await.unwrap();
    let vpc = json!({ "namespaces": [PROJECT], "enableExternal": true, "extraExternalSubnets": ["ext"] });
    kube_ovn.put("Vpc", PROJECT, json!({}), vpc).await.unwrap();
    project.kube_ovn_leads("kube-ovn-controller-a").await;
    let controller = installed.start("ovn-lb").await;
    project.until_rows(&address, 0).await;
    let service = json!({ "network.kube-dc.com/external-network-type": "public" });
    project.create("cloud", Some(class::OVN)).await;
    let annotated = json!({ "metadata": { "annotations": service } });
    project.services().patch("cloud", &PatchParams::default(), &Patch::Merge(annotated)).await.unwrap();
    let address = project.until_served("cloud").await;
    assert!(address.starts_with("198.51.100."), "{address}");
    eventually("the return route is written", SOON, async || {
        let routes: Value = kube_ovn.vpcs().get(PROJECT).await?.data["spec"]["policyRoutes"].clone();
        ensure!(routes.to_string().contains("10.1.0.41"), "{routes}");
        Ok(())
    })
    .await
    .unwrap();
    project.kube_ovn_leads("kube-ovn-controller-b").await;
    project.drift(&address).await;
    project.delete("cloud").await;
    eventually("kube-ovn has its address back", SOON, async || {
        let left = kube_ovn.ovn_eips().list(&kube::api::ListParams::default()).await?.items;
        let left: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
        ensure!(left == [format!("{PROJECT}-ext")], "the router's alone, not {left:?}");
        Ok(())
    })
    .await
    .unwrap();
    controller.process.end(Signal::SIGTERM).await.unwrap();

    installed.assert_used_but(
        "ovn-lb",
        &[
            ("eips get", "an EIp is read again where somebody else was quicker"),
            ("ovn-eips get", "the same for an OvnEip"),
            ("ovn-eips patch", "one that kube-ovn forgot in deletion is touched, and one of kube-dc's is taken over"),
        ],
    );
}

#[tokio::test]
async fn lb_watcher_wakes_the_manager_with_the_rights_of_the_chart() {
    let (installed, project) =
        Project::new("lb-watcher", &["controllers.lb-watcher.extraArgs={--settle-time=500ms}"]).await;
    project.create("web", None).await;
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } } });
    project.services().patch_status("web", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let row = format!("{PROJECT}-web-tcp");
    project.northbound().nbctl(["lb-add", &row, "192.0.2.7:80", "10.1.0.41:8080"]).await.unwrap();
    project.kube_ovn_leads("kube-ovn-controller-a").await;
    let watcher = installed.start("lb-watcher").await;
    watcher.until_metric("groundcrew_watcher_services", SOON, |n| n > 0.5).await.unwrap();
    project.northbound().nbctl(["lb-del", &row]).await.unwrap();
    eventually("the manager is woken", SOON, async || {
        let service = project.services().get("web").await?;
        ensure!(service.annotations().contains_key("kube-dc.com/lb-resync-timestamp"), "{:?}", service.annotations());
        Ok(())
    })
    .await
    .unwrap();
    eventually("people are told", SOON, async || {
        let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(project.client.clone(), PROJECT);
        ensure!(!events.list(&kube::api::ListParams::default()).await?.items.is_empty(), "no Event");
        Ok(())
    })
    .await
    .unwrap();
    watcher.process.end(Signal::SIGTERM).await.unwrap();
    installed.assert_used_but("lb-watcher", &[]);
}
