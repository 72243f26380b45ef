//! A stand-in for kube-dc's manager. Like the real one it works in several transactions, finds rows by name, and does
//! nothing about what happens in OVN until the annotation on the Service changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use groundcrew_api::names::annotation::LB_RESYNC_TIMESTAMP;
use groundcrew_testkit::eventually;
use groundcrew_testkit::ovn::Northbound;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use crate::harness::SOON;

pub(crate) struct Manager {
    asked: Arc<AtomicUsize>,
    idle: Arc<AtomicBool>,
    _task: AbortOnDropHandle<()>,
}

impl Manager {
    pub(crate) async fn start(client: &Client, namespace: &str, northbound: &Northbound) -> Self {
        let (asked, idle) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (client, namespace, remotes) = (client.clone(), namespace.to_owned(), northbound.remotes());
        let (counting, idling) = (asked.clone(), idle.clone());
        let (listed, ready) = oneshot::channel();
        let task = tokio::spawn(async move {
            let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
            let events = watcher(services, watcher::Config::default());
            tokio::pin!(events);
            let mut known = BTreeMap::new();
            let mut listed = Some(listed);
            while let Some(event) = events.try_next().await.unwrap_or(None) {
                let (service, is_new) = match event {
                    Event::InitApply(service) => (service, true),
                    Event::Apply(service) => (service, false),
                    Event::InitDone => {
                        listed.take().map(|listed| listed.send(()));
                        continue;
                    }
                    Event::Init | Event::Delete(_) => continue,
                };
                let name = service.metadata.name.clone().unwrap();
                let stamp = service.metadata.annotations.unwrap_or_default().get(LB_RESYNC_TIMESTAMP).cloned();
                let before = known.insert(name.clone(), stamp.clone());
                if is_new || before.flatten() == stamp {
                    continue;
                }
                counting.fetch_add(1, Ordering::Relaxed);
                if !idling.load(Ordering::Relaxed) {
                    // What fails it leaves, like the real one, until it has another reason to look.
                    let _ = build(&remotes, &client, &namespace, &name).await;
                }
            }
        });
        ready.await.unwrap();
        Self { asked, idle, _task: AbortOnDropHandle::new(task) }
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    pub(crate) async fn until_asked(&self, times: usize) {
        let asked = async || match self.asked() {
            n if n >= times => Ok(()),
            n => Err(n),
        };
        eventually(&format!("the manager was asked {times} times"), SOON, asked).await.unwrap();
    }

    /// It hears the annotation and does nothing, or works again.
    pub(crate) fn idle(&self, idle: bool) {
        self.idle.store(idle, Ordering::Relaxed);
    }
}

/// What the real one does for one Service, step by step.
pub(crate) async fn build(remotes: &str, client: &Client, namespace: &str, name: &str) -> Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = services.get(name).await?;
    let ingress = service.status.and_then(|status| status.load_balancer?.ingress).unwrap_or_default();
    let address = ingress.into_iter().find_map(|ingress| ingress.ip).context("no address")?;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let endpoints = slices.get(name).await?.endpoints;
    let backends: Vec<_> = endpoints.iter().map(|endpoint| format!("{}:8080", endpoint.addresses[0])).collect();

    let row = format!("{namespace}-{name}-tcp");
    let find = ["--bare", "--columns=_uuid", "find", "Load_Balancer", &format!("name={row}")];
    let found = nbctl(remotes, &find).await?;
    let found: Vec<_> = found.split_whitespace().collect();
    ensure!(found.len() < 2, "more than one load balancer with same name {row}");
    if found.is_empty() {
        nbctl(remotes, &["create", "Load_Balancer", &format!("name={row}"), "protocol=tcp"]).await?;
    } else {
        nbctl(remotes, &["set", "Load_Balancer", &row, "protocol=tcp"]).await?;
    }
    let vip = format!("vips:\"{address}:80\"=\"{}\"", backends.join(","));
    nbctl(remotes, &["clear", "Load_Balancer", &row, "vips", "--", "set", "Load_Balancer", &row, &vip]).await?;
    nbctl(remotes, &["--may-exist", "lr-lb-add", namespace, &row]).await?;
    nbctl(remotes, &["--may-exist", "ls-lb-add", &format!("{namespace}-default"), &row]).await.map(drop)
}

/// On its own connection: the fixture may be stopped and started meanwhile.
pub(crate) async fn nbctl(remotes: &str, args: &[&str]) -> Result<String> {
    let mut command = tokio::process::Command::new("ovn-nbctl");
    command.env_remove("OVN_NB_DAEMON").arg(format!("--db={remotes}")).arg("--timeout=5").args(args);
    let output = command.kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}
