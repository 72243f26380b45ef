//! A stand-in for kube-dc's manager. Like the real one it works in several transactions, finds rows by name, and does
//! nothing about what happens in OVN until the annotation on the Service changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use groundcrew_api::names::annotation::LB_RESYNC_TIMESTAMP;
use groundcrew_testkit::eventually;
use groundcrew_testkit::ovn::Northbound;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use crate::harness::SOON;

pub(crate) struct Manager {
    asked: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
    idle: Arc<AtomicBool>,
    _task: AbortOnDropHandle<()>,
}

impl Manager {
    pub(crate) async fn start(client: &Client, namespace: &str, northbound: &Northbound) -> Self {
        let (asked, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let idle = Arc::new(AtomicBool::new(false));
        let (client, namespace, remotes) = (client.clone(), namespace.to_owned(), northbound.remotes());
        let (counting, finishing, idling) = (asked.clone(), done.clone(), idle.clone());
        let (listed, ready) = oneshot::channel();
        let task = tokio::spawn(async move {
            let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
            let events = watcher(services, watcher::Config::default()).default_backoff();
            tokio::pin!(events);
            let mut known = BTreeMap::new();
            let mut listed = Some(listed);
            while let Some(event) = events.next().await {
                let (service, is_listed) = match event {
                    Ok(Event::InitApply(service)) => (service, true),
                    Ok(Event::Apply(service)) => (service, false),
                    Ok(Event::InitDone) => {
                        listed.take().map(|listed| listed.send(()));
                        continue;
                    }
                    // A watch that broke lists again.
                    Ok(Event::Init | Event::Delete(_)) | Err(_) => continue,
                };
                let name = service.metadata.name.clone().unwrap();
                let stamp = service.metadata.annotations.unwrap_or_default().get(LB_RESYNC_TIMESTAMP).cloned();
                let before = known.insert(name.clone(), stamp.clone());
                // What was there before it came is no news to it.
                if (is_listed && before.is_none()) || before.flatten() == stamp {
                    continue;
                }
                counting.fetch_add(1, Ordering::Relaxed);
                if !idling.load(Ordering::Relaxed) {
                    // What fails it leaves, like the real one, until it has another reason to look.
                    let _ = build(&remotes, &client, &namespace, &name).await;
                }
                finishing.fetch_add(1, Ordering::Relaxed);
            }
        });
        ready.await.unwrap();
        Self { asked, done, idle, _task: AbortOnDropHandle::new(task) }
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

    /// Tells whether it has done all that it was asked for.
    pub(crate) fn is_done(&self) -> impl Fn() -> bool + use<> {
        let (asked, done) = (self.asked.clone(), self.done.clone());
        move || done.load(Ordering::Relaxed) == asked.load(Ordering::Relaxed)
    }

    /// Waits until it has done all that it was asked for: a row may be whole before the last of its steps.
    pub(crate) async fn until_done(&self) {
        let done = async || match (self.done.load(Ordering::Relaxed), self.asked()) {
            (done, asked) if done == asked => Ok(()),
            (done, asked) => Err(format!("{done} of {asked}")),
        };
        eventually("the manager is done", SOON, done).await.unwrap();
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
    command.env_remove("OVN_NB_DAEMON").arg(format!("--db={remotes}")).arg("--timeout=20").args(args);
    let output = command.kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}
