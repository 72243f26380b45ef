//! Killed right before any of its writes, a controller is followed by one that finishes what it began.

use std::time::Duration;

use anyhow::{Result, ensure};
use groundcrew_api::eip::EIp;
use groundcrew_api::names::label;
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::kube_ovn::{KubeOvn, crds};
use groundcrew_testkit::{Signal, eventually};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::lab::{Lab, SOON};

/// What there is of the one Service, where, and how often.
struct Traces {
    rows: usize,
    eips: Vec<Option<String>>,
    ovn_eips: usize,
}

struct World {
    lab: Lab,
    kube_ovn: Option<KubeOvn>,
}

impl World {
    async fn traces(&self) -> Result<Traces> {
        let eips: Api<EIp> = Api::namespaced(self.lab.client.clone(), &self.lab.namespace);
        let eips = eips.list(&ListParams::default()).await?.items;
        let ovn_eips = match &self.kube_ovn {
            Some(kube_ovn) => kube_ovn.ovn_eips().list(&ListParams::default()).await?.items.len(),
            None => 0,
        };
        let eips = eips.into_iter().map(|eip| eip.status.and_then(|status| status.ip_address)).collect();
        Ok(Traces { rows: self.lab.rows().await.len(), eips, ovn_eips })
    }

    /// Published, and everything behind it once.
    async fn ensure_served(&self) -> Result<()> {
        let status = self.lab.services().get("web").await?.status;
        let ingress = status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref()?.first());
        let Some(address) = ingress.and_then(|ingress| ingress.ip.clone()) else { anyhow::bail!("{status:?}") };
        let traces = self.traces().await?;
        assert_eq!(traces.rows, 1);
        assert_eq!(traces.eips, [Some(address)]);
        assert_eq!(traces.ovn_eips, usize::from(self.kube_ovn.is_some()));
        Ok(())
    }

    async fn ensure_gone(&self) -> Result<()> {
        let service = self.lab.services().get_opt("web").await?;
        ensure!(service.is_none(), "{service:?}");
        let Traces { rows, eips, ovn_eips } = self.traces().await?;
        assert_eq!((rows, eips), (0, vec![]), "the Service goes last");
        // kube-ovn takes a moment to let go of it.
        ensure!(ovn_eips == 0, "{ovn_eips} OvnEips");
        Ok(())
    }

    fn spawn(&self, name: &str, fault: Option<u32>) -> Controller {
        self.lab.spawn(name, |command| {
            if let Some(write) = fault {
                command.env("GROUNDCREW_FAULT", format!("between check and send@{write}"));
            }
            command.arg("--no-leader-election")
        })
    }

    async fn delete(&self) {
        self.lab.services().delete("web", &DeleteParams::default()).await.unwrap();
    }

    async fn killed_before_any_write(&self, fewest: u32) {
        for write in 1.. {
            let doomed = self.spawn(&format!("doomed-{write}"), Some(write));
            self.lab.create("web").await;
            let mut stopped = stops_before(&doomed, "it is served", async || self.ensure_served().await).await;
            let deleted = !stopped;
            if deleted {
                self.delete().await;
                stopped = stops_before(&doomed, "nothing is left", async || self.ensure_gone().await).await;
            }
            doomed.process.end(Signal::SIGKILL).await.unwrap();
            if !stopped {
                assert!(write > fewest, "only {write} writes were seen");
                return;
            }
            let heir = self.spawn(&format!("heir-{write}"), None);
            if !deleted {
                let what = format!("served although the first died before write {write}");
                eventually(&what, SOON, async || self.ensure_served().await).await.unwrap();
                self.delete().await;
            }
            let what = format!("nothing is left although the first died before write {write}");
            eventually(&what, SOON, async || self.ensure_gone().await).await.unwrap();
            heir.process.end(Signal::SIGTERM).await.unwrap();
        }
    }
}

/// Whether the controller stopped before this came true.
async fn stops_before(controller: &Controller, what: &str, mut probe: impl AsyncFnMut() -> Result<()>) -> bool {
    let either = eventually(what, SOON, async || match probe().await {
        Ok(()) => Ok(false),
        Err(not_yet) => match controller.until_stopped(Duration::from_millis(5)).await {
            Ok(()) => Ok(true),
            Err(_) => Err(not_yet),
        },
    });
    either.await.unwrap()
}

/// Epoch, claim, `EIp`, its status, rows, status; rows, `EIp`, its finalizer, finalizer.
#[tokio::test]
async fn with_addresses_of_pools_killed_right_before_any_write_it_is_followed_by_one_that_goes_on() {
    let world = World { lab: Lab::new("crash").await, kube_ovn: None };
    world.killed_before_any_write(9).await;
}

/// The same, with an `OvnEip` to be made and to go.
#[tokio::test]
async fn with_addresses_of_kube_ovn_killed_right_before_any_write_it_is_followed_by_one_that_goes_on() {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    // What an API server serves decides where addresses come from: this one is not shared.
    let start = async || {
        let plane = ControlPlane::start().await?;
        plane.define(&crds()?).await?;
        Ok::<_, anyhow::Error>(plane)
    };
    let lab = Lab::on(PLANE.get_or_try_init(start).await.unwrap(), "crash").await;
    let kube_ovn = KubeOvn::start(lab.client.clone(), "ext");
    let spec = json!({ "cidrBlock": "192.0.2.0/28", "gateway": "192.0.2.1", "protocol": "IPv4" });
    kube_ovn.put("Subnet", "ext", json!({ label::DEFAULT_EXTERNAL: "true" }), spec).await.unwrap();
    World { lab, kube_ovn: Some(kube_ovn) }.killed_before_any_write(11).await;
}
