//! A stand-in for kube-ovn-controller: it does to `OvnEip`s on a real API server what the real one was seen to do.
//!
//! - `spec`, labels and a finalizer are filled in, then the status says the address, then that it is ready;
//! - an object that it cannot serve stays without a status, and without a word; it is tried again;
//! - the address is free at the deletion timestamp, whatever finalizers the object has;
//! - what was deleted while it was away stays in deletion until somebody changes it;
//! - an address that is asked for is granted even where the Subnet excludes it, and the object gets no finalizer then;
//! - a Vpc is connected to the networks that it lists, by an `OvnEip` for each router port, and to none of them without
//!   `enableExternal`;
//! - an IPv6 address cannot be asked for: whatever `spec.v6Ip` says, it is one that is free. (Releases up to 1.16.2 cannot
//!   serve a Subnet with IPv6 at all: they write the address into a label as it is, which the API server refuses.)

mod crds;
mod ipam;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use ipam::Ipam;

pub use crds::crds;

const FINALIZER: &str = "kubeovn.io/kube-ovn-controller";
const MANAGER: &str = "kube-ovn-controller";
/// The real one tries again after a second, two, four, eight. Tests have no time for that.
const RETRY: Duration = Duration::from_millis(300);

/// A running stand-in. It serves the Subnets whose names begin with its scope, so that tests keep apart.
pub struct KubeOvn {
    client: Client,
    scope: String,
    is_ready_held: Arc<AtomicBool>,
    running: Option<JoinHandle<()>>,
}

impl KubeOvn {
    /// Starts it. The definitions ([`crds`]) must be there.
    #[must_use]
    pub fn start(client: Client, scope: &str) -> Self {
        let mut this = Self { client, scope: scope.to_owned(), is_ready_held: Arc::default(), running: None };
        this.restart();
        this
    }

    /// From now on it tells addresses, and not that they are ready; or does again.
    pub fn hold_ready(&self, hold: bool) {
        self.is_ready_held.store(hold, Ordering::Relaxed);
    }

    /// Ends it in the middle of whatever it does, as SIGKILL would.
    pub async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
            let _ = running.await;
        }
    }

    /// Starts it again, with nothing but what the objects say.
    pub fn restart(&mut self) {
        let controller = Controller {
            api: Api::all_with(self.client.clone(), &resource("OvnEip", "ovn-eips")),
            subnets: Api::all_with(self.client.clone(), &resource("Subnet", "subnets")),
            vpcs: Api::all_with(self.client.clone(), &resource("Vpc", "vpcs")),
            scope: self.scope.clone(),
            is_ready_held: self.is_ready_held.clone(),
            ipam: Ipam::default(),
            connected: BTreeMap::new(),
            again: BTreeMap::new(),
        };
        self.running = Some(tokio::spawn(controller.run()));
    }

    /// `OvnEip`s, whatever they say.
    #[must_use]
    pub fn ovn_eips(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource("OvnEip", "ovn-eips"))
    }

    /// `Vpc`s, whatever they say.
    #[must_use]
    pub fn vpcs(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource("Vpc", "vpcs"))
    }

    /// `Subnet`s, whatever they say.
    #[must_use]
    pub fn subnets(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource("Subnet", "subnets"))
    }

    /// Makes an object of kube-ovn's, or makes it say this.
    pub async fn put(&self, kind: &str, name: &str, labels: Value, spec: Value) -> Result<DynamicObject> {
        let plural = match kind {
            "OvnEip" => "ovn-eips",
            "Subnet" => "subnets",
            _ => "vpcs",
        };
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(kind, plural));
        let object = json!({
            "apiVersion": "kubeovn.io/v1", "kind": kind, "metadata": { "name": name, "labels": labels }, "spec": spec,
        });
        let params = PatchParams::apply("operator").force();
        api.patch(name, &params, &Patch::Apply(&object)).await.with_context(|| format!("put {kind} {name}"))
    }

    /// What kube-ovn says about a Vpc.
    pub async fn put_vpc_status(&self, name: &str, status: Value) -> Result<()> {
        let patch = json!({ "status": status });
        self.vpcs().patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }
}

impl Drop for KubeOvn {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.abort();
        }
    }
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("kubeovn.io", "v1", kind), plural)
}

struct Controller {
    api: Api<DynamicObject>,
    subnets: Api<DynamicObject>,
    vpcs: Api<DynamicObject>,
    scope: String,
    is_ready_held: Arc<AtomicBool>,
    ipam: Ipam,
    /// The external Subnets that it connected each Vpc to.
    connected: BTreeMap<String, BTreeSet<String>>,
    /// What could not be served, and when it is tried again.
    again: BTreeMap<String, Instant>,
}

impl Controller {
    async fn run(mut self) {
        let mut events = pin!(watcher(self.api.clone(), watcher::Config::default()));
        let mut vpcs = pin!(watcher(self.vpcs.clone(), watcher::Config::default()));
        // Everything is read before anything is served: existing objects keep their addresses.
        let mut initial = Vec::new();
        loop {
            let due = self.again.values().min().copied();
            let pause = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(Event::InitApply(object))) => initial.push(object),
                    Some(Ok(Event::InitDone)) => self.begin(std::mem::take(&mut initial)).await,
                    Some(Ok(Event::Apply(object))) => self.look(&object).await,
                    Some(Ok(Event::Delete(object))) => self.ipam.free(&object.name_any()),
                    Some(Ok(Event::Init) | Err(_)) => {}
                    None => return,
                },
                event = vpcs.next() => match event {
                    Some(Ok(Event::InitApply(vpc) | Event::Apply(vpc))) => {
                        let subnets = self.asked_for(&vpc);
                        self.connect(vpc.name_any(), subnets).await;
                    }
                    Some(Ok(Event::Delete(vpc))) => self.connect(vpc.name_any(), BTreeSet::new()).await,
                    Some(Ok(Event::Init | Event::InitDone) | Err(_)) => {}
                    None => return,
                },
                () = pause => self.try_again().await,
            }
        }
    }

    async fn begin(&mut self, objects: Vec<DynamicObject>) {
        for object in &objects {
            for family in ["v4Ip", "v6Ip"] {
                if let Some(address) = text(&object.data["status"], family).and_then(|text| text.parse().ok()) {
                    self.ipam.occupy(&object.name_any(), address);
                }
            }
        }
        for object in &objects {
            // One that is in deletion is passed over until it changes.
            if object.metadata.deletion_timestamp.is_none() {
                self.look(object).await;
            }
        }
    }

    /// What a Vpc lists counts only where it is to be connected at all.
    fn asked_for(&self, vpc: &DynamicObject) -> BTreeSet<String> {
        let spec = &vpc.data["spec"];
        let listed = spec["extraExternalSubnets"].as_array().filter(|_| spec["enableExternal"] == json!(true));
        let listed = listed.into_iter().flatten().filter_map(Value::as_str);
        listed.filter(|subnet| subnet.starts_with(&self.scope)).map(str::to_owned).collect()
    }

    /// Of a router port there is only its address here.
    async fn connect(&mut self, vpc: String, subnets: BTreeSet<String>) {
        let before = self.connected.get(&vpc).cloned().unwrap_or_default();
        for subnet in subnets.difference(&before) {
            let port = json!({
                "apiVersion": "kubeovn.io/v1", "kind": "OvnEip", "metadata": { "name": format!("{vpc}-{subnet}") },
                "spec": { "externalSubnet": subnet, "type": "lrp" },
            });
            if let Ok(port) = serde_json::from_value(port) {
                let _ = self.api.create(&PostParams::default(), &port).await;
            }
        }
        for subnet in before.difference(&subnets) {
            let _ = self.api.delete(&format!("{vpc}-{subnet}"), &DeleteParams::default()).await;
        }
        self.connected.insert(vpc, subnets);
    }

    async fn try_again(&mut self) {
        let now = Instant::now();
        let due: Vec<_> = self.again.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for name in due {
            self.again.remove(&name);
            if let Ok(Some(object)) = self.api.get_opt(&name).await {
                self.look(&object).await;
            }
        }
    }

    async fn look(&mut self, seen: &DynamicObject) {
        let name = seen.name_any();
        // What the watch tells may be older than what was written since.
        let Ok(Some(object)) = self.api.get_opt(&name).await else { return };
        if !text(&object.data["spec"], "externalSubnet").is_some_and(|subnet| subnet.starts_with(&self.scope)) {
            return;
        }
        if object.metadata.deletion_timestamp.is_some() {
            self.again.remove(&name);
            self.ipam.free(&name);
            let kept: Vec<_> = object.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
            if kept.len() < object.finalizers().len() {
                let patch = json!({ "metadata": { "finalizers": kept } });
                let _ = self.api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            }
            return;
        }
        if self.serve(&object).await.is_none() {
            self.again.insert(name, Instant::now() + RETRY);
        }
    }

    /// `None` for one that must be tried again. It is not told why.
    async fn serve(&mut self, object: &DynamicObject) -> Option<()> {
        let (name, spec, status) = (object.name_any(), &object.data["spec"], &object.data["status"]);
        if status["ready"] == json!(true) {
            return Some(());
        }
        let kind = text(spec, "type").unwrap_or("nat");
        let subnet = self.subnets.get_opt(text(spec, "externalSubnet")?).await.ok()??;
        // Nothing looks at `v6Ip`.
        let asked = text(spec, "v4Ip");
        let addresses = match text(status, "v4Ip").or(text(status, "v6Ip")) {
            Some(_) => self.ipam.of(&name),
            None => self.ipam.assign(&name, &subnet.data["spec"], asked)?,
        };
        let address =
            |v4: bool| addresses.iter().find(|a| a.is_ipv4() == v4).map(ToString::to_string).unwrap_or_default();
        let (v4, v6, mac) = (address(true), address(false), "00:00:00:4A:9C:01");
        let mut finalizers = object.finalizers().to_vec();
        if asked.is_none() && !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
        }
        let filled = json!({
            "metadata": {
                "finalizers": finalizers,
                "labels": {
                    "ovn.kubernetes.io/subnet": subnet.name_any(),
                    "ovn.kubernetes.io/ovn_eip_type": kind,
                    "ovn.kubernetes.io/eip_v4_ip": v4,
                    "ovn.kubernetes.io/eip_v6_ip": v6.replace(':', "."),
                },
            },
            "spec": { "v4Ip": v4, "v6Ip": v6, "macAddress": mac, "type": kind },
        });
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        self.api.patch(&name, &params, &Patch::Merge(&filled)).await.ok()?;
        let told = json!({ "status": { "v4Ip": v4, "v6Ip": v6, "macAddress": mac, "type": kind, "ready": false } });
        self.api.patch_status(&name, &params, &Patch::Merge(&told)).await.ok()?;
        // Without the daemon on the nodes an lsp never gets ready.
        if self.is_ready_held.load(Ordering::Relaxed) || kind == "lsp" {
            return None;
        }
        let ready = json!({ "status": { "ready": true } });
        self.api.patch_status(&name, &params, &Patch::Merge(&ready)).await.ok()?;
        Some(())
    }
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value[field].as_str().filter(|text| !text.is_empty())
}
