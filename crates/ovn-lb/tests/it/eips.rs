//! `EIp`s that tenants make, and Services that are bound to them.

use groundcrew_api::eip::{EIp, EIpSpec, EIpStatus, OwnershipType};
use groundcrew_testkit::eventually;
use groundcrew_testkit::ovn::Northbound;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use tokio::sync::{Mutex, MutexGuard};

use crate::harness::{Controller, Project, SOON};

/// Only one controller of a cluster may serve tenants' EIps, and the tests share a cluster.
static SERVES_EIPS: Mutex<()> = Mutex::const_new(());

async fn serving(project: &Project, northbound: &Northbound) -> (Controller, MutexGuard<'static, ()>) {
    let alone = SERVES_EIPS.lock().await;
    let controller = project.start(&northbound.remotes(), &["--serve-eips"]).await;
    controller.until_ready().await;
    (controller, alone)
}

impl Project {
    async fn make_eip(&self, name: &str, network_type: Option<&str>) -> EIp {
        let spec = EIpSpec { external_network_type: network_type.map(Into::into), ..EIpSpec::default() };
        self.eips().create(&PostParams::default(), &EIp::new(name, spec)).await.unwrap()
    }

    /// Waits until the EIp is as `probe` wants it.
    async fn until_eip<T>(&self, name: &str, what: &str, probe: impl Fn(&EIpStatus) -> Option<T>) -> T {
        eventually(what, SOON, async || {
            let status = self.eips().get(name).await?.status.unwrap_or_default();
            probe(&status).ok_or_else(|| anyhow::anyhow!("{status:?}"))
        })
        .await
        .unwrap()
    }

    async fn until_eip_ready(&self, name: &str) -> String {
        self.until_eip(name, "the EIp is ready", |status| status.ip_address.clone().filter(|_| status.ready)).await
    }

    async fn until_eip_reason(&self, name: &str, reason: &str) -> String {
        self.until_eip(name, &format!("the EIp says {reason}"), |status| {
            let ready = status.conditions.iter().find(|c| c.type_ == "Ready")?;
            (ready.reason == reason).then(|| ready.message.clone())
        })
        .await
    }

    async fn until_eip_gone(&self, name: &str) {
        eventually("the EIp is gone", SOON, async || match self.eips().get_opt(name).await? {
            None => Ok(()),
            Some(eip) => Err(anyhow::anyhow!("{:?}", eip.metadata)),
        })
        .await
        .unwrap();
    }

    async fn until_event(&self, reason: &str) -> String {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        eventually(&format!("an Event {reason}"), SOON, async || {
            let events = api.list(&ListParams::default()).await?;
            let told = events.items.into_iter().find(|event| event.reason.as_deref() == Some(reason));
            told.and_then(|event| event.note).ok_or_else(|| anyhow::anyhow!("none"))
        })
        .await
        .unwrap()
    }
}

#[tokio::test]
async fn a_tenants_eip_gets_an_address_and_gives_it_back_when_it_is_deleted() {
    let project = Project::new("tenant").await;
    let northbound = project.northbound().await;
    project.make_eip("early", Some("dmz")).await;
    let (controller, _alone) = serving(&project, &northbound).await;
    let message = project.until_eip_reason("early", "NoPool").await;
    assert!(message.contains("no AddressPool of network type dmz"), "{message}");
    project.pool(1).await;
    assert_eq!(project.until_eip_ready("early").await, project.address(1), "it is served as soon as a pool is there");
    let eip = project.eips().get("early").await.unwrap();
    assert_eq!(eip.finalizers(), ["groundcrew.dev/eip"]);
    let status = eip.status.unwrap();
    assert_eq!((&*status.ovn_eip_ref, status.ownership_type), (&*project.namespace, OwnershipType::Released));
    project.until_event("Assigned").await;

    project.make_eip("late", None).await;
    project.until_eip_reason("late", "PoolEmpty").await;
    controller.stop().await;
    project.eips().delete("early", &DeleteParams::default()).await.unwrap();
    assert!(project.eips().get("early").await.is_ok(), "the finalizer holds it");
    let controller = project.start(&northbound.remotes(), &["--serve-eips", "--address-rest", "1s"]).await;
    project.until_eip_gone("early").await;
    project.pool(2).await;
    assert_eq!(project.until_eip_ready("late").await, project.address(2), "what was given back rests");
    controller.stop().await;
}
