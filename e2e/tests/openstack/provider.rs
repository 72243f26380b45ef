//! The bodies of the provider's tests, which run on a model elsewhere.

use std::time::Duration;

use anyhow::ensure;
use groundcrew_openstack_cloud::OpenStack;
use groundcrew_testkit::eventually;
use groundcrew_testkit::openstack::Service;
use openstack_client::Client;
use serde_json::{Value, json};

use crate::bodies::{Place, all_bodies};
use crate::member::Member;

const SOON: Duration = Duration::from_mins(2);
const BALANCERS: &str = "v2/lbaas/loadbalancers";

impl Member {
    /// Makes something and waits until it is usable.
    async fn make_usable(
        &self,
        (service, path): (Service, &str),
        kind: &str,
        fields: Value,
        (key, value): (&str, &str),
    ) -> String {
        let id = self.make(service, path, kind, fields).await;
        let place = format!("{path}/{id}");
        let usable = eventually(&place, SOON, async || {
            let found = self.project.get(service, &place).await?;
            ensure!(found[kind][key] == value, "{found}");
            Ok(())
        });
        usable.await.unwrap();
        id
    }

    fn storage(&self, collection: &str) -> String {
        format!("v3/{}/{collection}", self.project.id)
    }
}

impl Place for Member {
    fn openstack(&self) -> &OpenStack {
        &self.openstack
    }

    fn client(&self) -> &Client {
        &self.client
    }

    async fn boot(&self, name: &str) -> String {
        Self::boot(self, name).await
    }

    async fn boot_elsewhere(&self) -> String {
        Self::new("elsewhere").await.boot("n1").await
    }

    async fn fail(&self, server: &str) {
        Self::fail(self, server).await;
    }

    async fn lock(&self, server: &str) {
        Self::lock(self, server).await;
    }

    async fn lose(&self, server: &str) {
        self.cloud.lose(server).await.unwrap();
    }

    async fn find(&self, server: &str) {
        self.cloud.find(server).await.unwrap();
    }

    async fn volume(&self, name: &str, metadata: Value) -> String {
        let fields = json!({"name": name, "size": 1, "metadata": metadata});
        let place = (Service::BlockStorage, self.storage("volumes"));
        self.make_usable((place.0, &place.1), "volume", fields, ("status", "available")).await
    }

    async fn snapshot(&self, volume: &str) -> String {
        let fields = json!({"volume_id": volume});
        let place = (Service::BlockStorage, self.storage("snapshots"));
        self.make_usable((place.0, &place.1), "snapshot", fields, ("status", "available")).await
    }

    async fn balancer(&self, name: &str, tags: &[&str]) -> String {
        let fields = json!({"name": name, "tags": tags, "vip_subnet_id": self.lan.subnet});
        let working = ("provisioning_status", "ACTIVE");
        self.make_usable((Service::LoadBalancer, BALANCERS), "loadbalancer", fields, working).await
    }

    async fn stuck_balancer(&self, name: &str) -> String {
        let fields = json!({"name": name, "provider": "noop_driver", "vip_subnet_id": self.lan.subnet});
        self.make(Service::LoadBalancer, BALANCERS, "loadbalancer", fields).await
    }
}

all_bodies!(Member::new);
