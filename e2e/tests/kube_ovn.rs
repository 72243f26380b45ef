//! Beside the real kube-ovn-controller, which the reader of `make e2e-kube-ovn` brings along: addresses from its
//! `OvnEip`s, on the router and the switch that it made, through the collection at its start.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use groundcrew_api::names::{class, label};
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::ovn::Central;
use groundcrew_testkit::process::Process;
use groundcrew_testkit::{ReservedPort, Scratch, Signal, eventually};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// The project, its Vpc and its router.
const PROJECT: &str = "acme-dev";
const SWITCH: &str = "acme-dev-default";
const EXTERNAL: &str = "ext-public";
/// kube-ovn waits three seconds before it collects, and longer for the Lease of one that was killed.
const SOON: Duration = Duration::from_mins(1);

struct World<'a> {
    // In the order in which they are to end.
    groundcrew: Option<Controller>,
    kube_ovn: Process,
    central: Central,
    client: Client,
    control_plane: ControlPlane,
    logs: &'a Scratch,
}

fn given(variable: &str, what: &str) -> Result<String> {
    env::var(variable).with_context(|| format!("{variable} is not set: it names {what}"))
}

/// The program, which `make e2e-kube-ovn` builds.
fn groundcrew() -> Result<PathBuf> {
    let test = env::current_exe()?;
    let program = test.ancestors().nth(2).context("tests are two directories deep")?.join("groundcrew");
    ensure!(program.is_file(), "{} is missing: run `make e2e-kube-ovn`", program.display());
    Ok(program)
}

/// One pod of kube-ovn-controller's. The name of the pod is its identity in the Lease.
fn kube_ovn(pod: &str, control_plane: &ControlPlane, central: &Central, logs: &Scratch) -> Result<Process> {
    let program = given("KUBE_OVN_CONTROLLER", "the program kube-ovn-controller")?;
    // It does not start without it, whatever its flags say about logs.
    fs::create_dir_all("/var/log/kube-ovn").context("make /var/log/kube-ovn")?;
    let port = ReservedPort::new()?;
    let mut command = Command::new(program);
    command
        .env("POD_NAME", pod)
        .env("POD_NAMESPACE", "kube-system")
        // What it is called up to 1.14.
        .env("KUBE_NAMESPACE", "kube-system")
        .env("POD_IPS", "127.0.0.1")
        .env("ENABLE_BIND_LOCAL_IP", "true")
        // One of its parts does not read the flag.
        .env("KUBECONFIG", control_plane.kubeconfig_path())
        .arg("--kubeconfig")
        .arg(control_plane.kubeconfig_path())
        .args(["--ovn-nb-addr", &central.northbound().remotes(), "--ovn-sb-addr", &central.southbound()])
        .args(["--pprof-port", &port.address().port().to_string(), "--logtostderr", "--enable-metrics=false"]);
    Process::spawn(pod, &command, logs.path())
}

impl<'a> World<'a> {
    /// A cluster with kube-ovn, and a project in it.
    async fn start(logs: &'a Scratch) -> Result<Self> {
        let definitions =
            given("KUBE_OVN_CRDS", "the file with kube-ovn's definitions, kube-ovn-crd.yaml of its chart")?;
        let definitions = fs::read_to_string(&definitions).with_context(|| format!("read {definitions}"))?;
        // Some versions have nothing between two of the lines.
        let documents = definitions.split("\n---").filter(|text| text.lines().any(|line| line.starts_with("kind:")));
        // And some say a thing twice; kubectl and helm take the last word.
        let last = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins };
        let documents = documents.map(|text| serde_saphyr::from_str_with_options(text, last.clone()));
        let definitions = documents.collect::<Result<Vec<_>, _>>().context("kube-ovn's definitions")?;
        let (control_plane, central) = tokio::try_join!(ControlPlane::start(), Central::start())?;
        // kube-ovn wants tables that an older OVN of a distribution does not have; its northd passes over them.
        if let Ok(schemas) = env::var("OVN_SCHEMAS") {
            central.convert(schemas.as_ref()).await?;
        }
        control_plane.define(&definitions).await?;
        control_plane.define(&groundcrew_api::crds()).await?;
        let client = control_plane.client().await?;
        let namespace = json!({ "metadata": { "name": PROJECT } });
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&PostParams::default(), &serde_json::from_value(namespace)?).await?;
        let kube_ovn = kube_ovn("kube-ovn-controller-a", &control_plane, &central, logs)?;
        let world = Self { groundcrew: None, kube_ovn, central, client, control_plane, logs };
        world.until_logical_router("ovn-cluster").await?;
        world.make_project().await?;
        Ok(world)
    }

    async fn until_logical_router(&self, name: &str) -> Result<()> {
        let there = async || {
            if let Some(status) = self.kube_ovn.exit_status()? {
                return Ok(Err(format!("kube-ovn-controller ended ({status}):\n{}", self.kube_ovn.last_words())));
            }
            let routers = self.nbctl(&["--bare", "--columns=name", "list", "Logical_Router"]).await?;
            ensure!(routers.lines().any(|line| line == name), "{routers}");
            Ok(Ok(()))
        };
        eventually(&format!("kube-ovn makes the router {name}"), SOON, there).await?.map_err(anyhow::Error::msg)
    }

    async fn make_project(&self) -> Result<()> {
        self.put("Vpc", "vpcs", PROJECT, json!({}), json!({ "namespaces": [PROJECT] })).await?;
        self.until_logical_router(PROJECT).await?;
        let subnet = json!({
            "vpc": PROJECT, "cidrBlock": "10.1.0.0/16", "gateway": "10.1.0.1", "protocol": "IPv4", "namespaces": [PROJECT],
        });
        self.put("Subnet", "subnets", SWITCH, json!({}), subnet).await?;
        let external = json!({ "cidrBlock": "198.51.100.0/24", "gateway": "198.51.100.1", "protocol": "IPv4" });
        let labels = json!({ label::EXTERNAL_NETWORK_TYPE: "public" });
        self.put("Subnet", "subnets", EXTERNAL, labels, external).await?;
        let connected = json!({ "spec": { "enableExternal": true, "extraExternalSubnets": [EXTERNAL] } });
        let vpcs = self.kube_ovns("Vpc", "vpcs");
        vpcs.patch(PROJECT, &PatchParams::default(), &Patch::Merge(connected)).await?;
        eventually("kube-ovn makes the project's switch", SOON, async || {
            let ports = self.nbctl(&["--bare", "--columns=name", "list", "Logical_Router_Port"]).await?;
            ensure!(ports.contains(&format!("{PROJECT}-{SWITCH}")), "{ports}");
            Ok(())
        })
        .await
    }

    /// Makes one of kube-ovn's objects.
    async fn put(&self, kind: &str, plural: &str, name: &str, labels: Value, spec: Value) -> Result<()> {
        let object = json!({
            "apiVersion": "kubeovn.io/v1", "kind": kind, "metadata": { "name": name, "labels": labels }, "spec": spec,
        });
        let object = serde_json::from_value(object)?;
        self.kube_ovns(kind, plural).create(&PostParams::default(), &object).await?;
        Ok(())
    }

    fn kube_ovns(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("kubeovn.io", "v1", kind);
        Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), PROJECT)
    }

    async fn start_groundcrew(&mut self) -> Result<()> {
        let mut command = Command::new(groundcrew()?);
        command
            .args(["ovn-lb", "--lease-namespace", PROJECT, "--network-type", "public"])
            .arg("--kubeconfig")
            .arg(self.control_plane.kubeconfig_path())
            .args(["--ovn-nb", &self.central.northbound().remotes()]);
        let groundcrew = Controller::start("groundcrew", command, self.logs.path(), SOON).await?;
        groundcrew.until_leads(&self.client, PROJECT, "groundcrew-ovn-lb", SOON).await?;
        self.groundcrew = Some(groundcrew);
        Ok(())
    }

    fn groundcrew(&self) -> Result<&Controller> {
        self.groundcrew.as_ref().context("groundcrew is not started")
    }

    async fn create_service(&self, name: &str, pod: &str) -> Result<()> {
        let slice = json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } },
            "addressType": "IPv4", "endpoints": [{ "addresses": [pod], "conditions": { "ready": true } }],
            "ports": [{ "name": "http", "protocol": "TCP", "port": 8080 }],
        });
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), PROJECT);
        slices.create(&PostParams::default(), &serde_json::from_value(slice)?).await?;
        let service = json!({
            "metadata": { "name": name },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": class::OVN, "allocateLoadBalancerNodePorts": false,
                "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }],
            },
        });
        self.services().create(&PostParams::default(), &serde_json::from_value(service)?).await?;
        Ok(())
    }

    async fn until_served(&self, name: &str) -> Result<String> {
        eventually(&format!("{name} is served"), SOON, async || {
            let service = self.services().get(name).await?;
            let ingress = service.status.and_then(|s| s.load_balancer).and_then(|lb| lb.ingress).unwrap_or_default();
            ingress.into_iter().find_map(|i| i.ip).context("no address")
        })
        .await
    }

    async fn nbctl(&self, args: &[&str]) -> Result<String> {
        self.central.northbound().nbctl(args.iter().copied()).await
    }

    /// Our rows, by uuid, and where they are.
    async fn picture(&self) -> Result<String> {
        let mark = format!("external_ids:groundcrew-namespace={PROJECT}");
        let rows = self.nbctl(&["--columns=_uuid,name,vips,external_ids", "find", "Load_Balancer", &mark]).await?;
        let (router, switch) =
            (self.nbctl(&["lr-lb-list", PROJECT]).await?, self.nbctl(&["ls-lb-list", SWITCH]).await?);
        Ok(format!("{rows}\n{router}\n{switch}"))
    }

    async fn until_collected(&self, times: f64) -> Result<()> {
        let series = "groundcrew_drift_repaired_total{cause=\"kube_ovn_collection\",kind=\"row_missing\"}";
        self.groundcrew()?.until_metric(series, SOON, |repaired| (repaired - times).abs() < 0.1).await
    }
}

#[tokio::test]
async fn services_live_on_kube_ovns_addresses_through_its_collections_and_leave_nothing() {
    let logs = Scratch::new("kube-ovn").unwrap();
    Box::pin(story(&logs)).await.unwrap();
}

async fn story(logs: &Scratch) -> Result<()> {
    let mut world = Box::pin(World::start(logs)).await?;
    world.start_groundcrew().await?;
    world.create_service("web", "10.1.0.41").await?;
    world.create_service("api", "10.1.0.42").await?;
    let web = world.until_served("web").await?;
    let api = world.until_served("api").await?;
    ensure!(web != api && web.starts_with("198.51.100."), "{web} {api}");
    let eips = world.kube_ovns("OvnEip", "ovn-eips");
    let held: Vec<_> = eips.list(&ListParams::default()).await?.items;
    for address in [&web, &api] {
        let eip = held.iter().find(|eip| eip.data["status"]["v4Ip"] == json!(address)).context("no OvnEip")?;
        ensure!(eip.data["spec"]["type"] == "nat" && eip.data["status"]["ready"] == true, "{}", eip.data);
    }
    let before = world.picture().await?;
    ensure!(before.contains(&format!("{web}:80")) && before.contains("10.1.0.41:8080"), "{before}");

    // A clean restart under another name, then a crash and a start under the same.
    for (round, (signal, pod)) in
        [(Signal::SIGTERM, "kube-ovn-controller-b"), (Signal::SIGKILL, "kube-ovn-controller-b")].into_iter().enumerate()
    {
        world.kube_ovn.end(signal).await?;
        world.kube_ovn = kube_ovn(pod, &world.control_plane, &world.central, logs)?;
        world.until_collected(2.0 * f64::from(u8::try_from(round + 1)?)).await?;
        ensure!(world.picture().await? == before, "{}\nbefore: {before}", world.picture().await?);
    }
    let events: Api<Event> = Api::namespaced(world.client.clone(), PROJECT);
    let told = events.list(&ListParams::default()).await?.items;
    let note = told.iter().find(|event| event.reason.as_deref() == Some("DriftRepaired")).and_then(|e| e.note.clone());
    ensure!(note.as_ref().is_some_and(|note| note.contains("kube-ovn")), "{note:?}");
    ensure!(world.until_served("web").await? == web && world.until_served("api").await? == api, "an address changed");

    for name in ["web", "api"] {
        world.services().delete(name, &DeleteParams::default()).await?;
    }
    eventually("nothing of ours is left", SOON, async || {
        let services = world.services().list(&ListParams::default()).await?.items.len();
        let mut left: Vec<_> =
            eips.list(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();
        left.retain(|name| !name.starts_with(&format!("{PROJECT}-")));
        let rows = world.nbctl(&["--bare", "--columns=name", "find", "Load_Balancer", "external_ids!={}"]).await?;
        let ours = rows.lines().filter(|name| name.starts_with(PROJECT)).count();
        ensure!(services == 0 && left.is_empty() && ours == 0, "{services} Services, {left:?}, {rows}");
        Ok(())
    })
    .await
}
