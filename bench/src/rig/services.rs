//! How many Services have an address, as any user of the API sees it.

use std::collections::HashSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

pub(crate) struct Served {
    count: watch::Receiver<(usize, Instant)>,
    _task: AbortOnDropHandle<Result<()>>,
}

impl Served {
    /// Returns when it has seen everything that is there now.
    pub(crate) async fn watch(client: &Client) -> Result<Self> {
        let (sender, mut count) = watch::channel((usize::MAX, Instant::now()));
        let task = AbortOnDropHandle::new(tokio::spawn(follow(Api::all(client.clone()), sender)));
        count.changed().await.context("the watch of Services ended")?;
        Ok(Self { count, _task: task })
    }

    /// When `n` had one.
    pub(crate) async fn until(&mut self, n: usize, within: Duration) -> Result<Instant> {
        let counted = tokio::time::timeout(within, self.count.wait_for(|(count, _)| *count == n)).await;
        let counted = counted.map(|counted| counted.map(|counted| counted.1));
        match counted {
            Ok(at) => at.context("the watch of Services ended"),
            Err(_) => anyhow::bail!("not within {within:?}: {n} served Services, but {}", self.count.borrow().0),
        }
    }
}

async fn follow(api: Api<Service>, count: watch::Sender<(usize, Instant)>) -> Result<()> {
    let mut served = HashSet::new();
    let mut events = pin!(watcher(api, watcher::Config::default()));
    let mut complete = false;
    while let Some(event) = events.try_next().await? {
        match event {
            Event::Init => {
                complete = false;
                served.clear();
            }
            Event::InitApply(service) | Event::Apply(service) => {
                let id = (service.namespace(), service.name_any());
                let ingress = service.status.and_then(|s| s.load_balancer?.ingress).unwrap_or_default();
                if ingress.is_empty() {
                    served.remove(&id)
                } else {
                    served.insert(id)
                };
            }
            Event::InitDone => complete = true,
            Event::Delete(service) => {
                served.remove(&(service.namespace(), service.name_any()));
            }
        }
        if complete {
            count.send_replace((served.len(), Instant::now()));
        }
    }
    Ok(())
}
