//! A project as its member sees it.

use std::time::Duration;

use groundcrew_openstack_cloud::OpenStack;
use groundcrew_testkit::openstack::{Cloud, Lan, Method, PASSWORD, Project, REGION, Service, shared_full};
use openstack_client::{Auth, Client, Config, Domain, Secret, User};
use serde_json::{Value, json};

pub(crate) struct Member {
    pub(crate) cloud: &'static Cloud,
    pub(crate) project: Project,
    pub(crate) lan: Lan,
    pub(crate) client: Client,
    pub(crate) openstack: OpenStack,
}

impl Member {
    pub(crate) async fn new(name: &str) -> Self {
        let cloud = shared_full().await.unwrap();
        let project = cloud.project(name).await.unwrap();
        let lan = project.lan("10.180.0.0/16").await.unwrap();
        let auth = Auth::Password {
            user: User::Name(project.name.clone(), Domain::Id("default".into())),
            password: Secret::new(PASSWORD),
            project: openstack_client::Project::Id(project.id.clone()),
        };
        let client = client(cloud, auth);
        let openstack = OpenStack::new(client.clone(), Duration::from_secs(30));
        Self { cloud, project, lan, client, openstack }
    }

    /// A server at the project's network.
    pub(crate) async fn boot(&self, name: &str) -> String {
        self.project.boot(name, json!({"uuid": self.lan.network})).await.unwrap()
    }

    /// Has Nova do something with a server, as the member or as somebody who may do everything.
    pub(crate) async fn act(&self, as_admin: bool, server: &str, action: Value) {
        let path = format!("v2.1/servers/{server}/action");
        let answer = if as_admin {
            self.cloud.ask(Service::Compute, Method::POST, &path, Some(&action)).await
        } else {
            self.project.ask(Service::Compute, Method::POST, &path, Some(&action)).await
        };
        answer.unwrap().ok().unwrap();
    }

    /// Has Nova give a server up.
    pub(crate) async fn fail(&self, server: &str) {
        self.act(true, server, json!({"os-resetState": {"state": "error"}})).await;
    }

    pub(crate) async fn lock(&self, server: &str) {
        self.act(false, server, json!({"lock": null})).await;
    }

    /// What was done to a server since it was made, in order. That it failed was no deed of anybody's.
    pub(crate) async fn actions(&self, server: &str) -> anyhow::Result<Vec<String>> {
        let path = format!("v2.1/servers/{server}/os-instance-actions");
        let all = self.cloud.ask(Service::Compute, Method::GET, &path, None).await?.ok()?;
        let all = all["instanceActions"].as_array().cloned().unwrap_or_default();
        let names = all.iter().rev().filter_map(|action| action["action"].as_str());
        Ok(names.filter(|name| !["create", "resetState"].contains(name)).map(str::to_owned).collect())
    }

    /// Makes something at a path of a service that has collections, and gives its id.
    pub(crate) async fn make(&self, service: Service, path: &str, kind: &str, fields: Value) -> String {
        let made = self.project.ask(service, Method::POST, path, Some(&json!({kind: fields}))).await.unwrap();
        made.ok().unwrap()[kind]["id"].as_str().unwrap().to_owned()
    }
}

/// Somebody of this cloud.
pub(crate) fn client(cloud: &Cloud, auth: Auth) -> Client {
    Client::new(Config::new(&cloud.auth_url(), auth).unwrap().region(REGION)).unwrap()
}
