//! The bodies on the model.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use groundcrew_core::provider::{Listing, SecurityGroups};
use groundcrew_openstack_cloud::OpenStack;
use groundcrew_testkit::openstack::Method;
use groundcrew_testkit::openstack::fake::{self, Model};
use openstack_client::{Auth, Client, Config, Domain, Project, Secret, User};
use serde_json::{Value, json};

use crate::bodies::{Place, all_bodies};

struct OnModel {
    model: Model,
    openstack: OpenStack,
    client: Client,
    addresses: AtomicU8,
}

impl OnModel {
    async fn new(_: &str) -> Self {
        let model = Model::start().await.unwrap();
        let domain = || Domain::Id("default".into());
        let auth = Auth::Password {
            user: User::Name("demo".into(), domain()),
            password: Secret::new(fake::PASSWORD),
            project: Project::Name("kluster".into(), domain()),
        };
        let client = Client::new(Config::new(&model.fake.url(), auth).unwrap()).unwrap();
        let openstack = OpenStack::new(client.clone(), Duration::from_secs(30));
        Self { model, openstack, client, addresses: AtomicU8::new(10) }
    }

    fn make(&self, path: &str, kind: &str, fields: &Value) -> String {
        let made = self.model.ask(&Method::POST, path, &json!({kind: fields})).unwrap();
        made[kind]["id"].as_str().unwrap().to_owned()
    }
}

impl Place for OnModel {
    fn openstack(&self) -> &OpenStack {
        &self.openstack
    }

    fn client(&self) -> &Client {
        &self.client
    }

    async fn boot(&self, name: &str) -> String {
        let address = self.addresses.fetch_add(1, Ordering::Relaxed);
        self.model.boot(name, &format!("10.180.0.{address}"));
        name.to_owned()
    }

    async fn boot_elsewhere(&self) -> String {
        // All that it has is of one project.
        "elsewhere".into()
    }

    async fn fail(&self, server: &str) {
        self.model.change("servers", server, &json!({"status": "ERROR"}));
    }

    async fn lock(&self, server: &str) {
        self.model.change("servers", server, &json!({"locked": true}));
    }

    async fn lose(&self, server: &str) {
        self.model.lose(server);
    }

    async fn find(&self, server: &str) {
        self.model.find(server);
    }

    async fn volume(&self, name: &str, metadata: Value) -> String {
        self.make("volume/v3/p1/volumes", "volume", &json!({"name": name, "metadata": metadata}))
    }

    async fn snapshot(&self, volume: &str) -> String {
        self.make("volume/v3/p1/snapshots", "snapshot", &json!({"volume_id": volume}))
    }

    async fn balancer(&self, name: &str, tags: &[&str]) -> String {
        self.make("lb/v2/lbaas/loadbalancers", "loadbalancer", &json!({"name": name, "tags": tags}))
    }

    async fn stuck_balancer(&self, name: &str) -> String {
        let asked = json!({"name": name, "provider": "noop_driver"});
        self.make("lb/v2/lbaas/loadbalancers", "loadbalancer", &asked)
    }
}

all_bodies!(OnModel::new);

#[tokio::test]
async fn a_security_group_that_another_project_shares_is_not_meant_by_its_name() {
    let place = OnModel::new("shared").await;
    let theirs = place.make("v2.0/security-groups", "security_group", &json!({"name": "nodes", "project_id": "p2"}));
    assert_eq!(place.openstack.security_groups_named("nodes").await.unwrap(), Listing::complete(vec![]));
    let ours = place.make("v2.0/security-groups", "security_group", &json!({"name": "nodes"}));
    let found = place.openstack.security_groups_named("nodes").await.unwrap().items;
    assert_eq!(found.iter().map(|group| &group.id).collect::<Vec<_>>(), [&ours]);
    // Whoever knows its id means it.
    assert_eq!(place.openstack.security_group(&theirs).await.unwrap().id, theirs);
}
