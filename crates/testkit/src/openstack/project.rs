use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

use super::Service;
use super::cloud::text;
use super::http::{Answer, Method, ask};
use crate::eventually;

/// Everybody's.
pub const PASSWORD: &str = "lab-password";

/// What servers are made of.
pub(super) const FLAVOR: &str = "lab";
pub(super) const IMAGE: &str = "00000000-0000-4000-8000-000000000001";

/// Nova takes two or three seconds on an idle machine.
const BOOTED: Duration = Duration::from_mins(2);

/// A project with a user of the same name in the domain `default`, whose password is [`PASSWORD`].
#[derive(Debug)]
pub struct Project {
    /// Its id.
    pub id: String,
    /// Its name, and that of the user.
    pub name: String,
    services: BTreeMap<Service, SocketAddr>,
    token: String,
}

/// A network with one subnet, and a router that is at home in it.
#[derive(Debug, Clone)]
pub struct Lan {
    /// The network's id.
    pub network: String,
    /// The subnet's id.
    pub subnet: String,
    /// The router's id.
    pub router: String,
}

impl Project {
    pub(super) async fn new(id: String, name: String, services: BTreeMap<Service, SocketAddr>) -> Result<Self> {
        let token = token(services[&Service::Identity], &name, &name).await?;
        Ok(Self { id, name, services, token })
    }

    /// Makes a network with this subnet and a router.
    pub async fn lan(&self, cidr: &str) -> Result<Lan> {
        let network = self.create("network", json!({"name": self.name})).await?;
        let version = if cidr.contains(':') { 6 } else { 4 };
        let subnet = self.create("subnet", json!({"network_id": network, "cidr": cidr, "ip_version": version})).await?;
        let router = self.create("router", json!({"name": self.name})).await?;
        let interface = format!("v2.0/routers/{router}/add_router_interface");
        self.ask(Service::Network, Method::PUT, &interface, Some(&json!({"subnet_id": subnet}))).await?.ok()?;
        Ok(Lan { network, subnet, router })
    }

    /// Makes a thing of Neutron's, `kind` being its name in the singular, and gives its id.
    pub async fn create(&self, kind: &str, fields: Value) -> Result<String> {
        let path = format!("v2.0/{}s", kind.replace('_', "-"));
        let made = self.ask(Service::Network, Method::POST, &path, Some(&json!({kind: fields}))).await?.ok()?;
        text(&made[kind]["id"])
    }

    /// Boots a server of Nova's, `network` being as `{"port": "<id>"}`, and waits until it runs. Gives its id.
    pub async fn boot(&self, name: &str, network: Value) -> Result<String> {
        let server = json!({"name": name, "imageRef": IMAGE, "flavorRef": FLAVOR, "networks": [network]});
        let made = self.ask(Service::Compute, Method::POST, "v2.1/servers", Some(&json!({"server": server}))).await?;
        let id = text(&made.ok()?["server"]["id"])?;
        let path = format!("v2.1/servers/{id}");
        let what = format!("server {name} runs");
        let booted = eventually(&what, BOOTED, async || {
            let server = self.get(Service::Compute, &path).await?["server"].take();
            match server["status"].as_str() {
                Some("ACTIVE") => Ok(Ok(())),
                Some("ERROR") => Ok(Err(anyhow!("server {name} has failed: {}", server["fault"]))),
                other => bail!("it is {other:?}"),
            }
        });
        booted.await??;
        Ok(id)
    }

    /// Whether its cloud has this service.
    #[must_use]
    pub fn has(&self, service: Service) -> bool {
        self.services.contains_key(&service)
    }

    /// What is at `path`.
    pub async fn get(&self, service: Service, path: &str) -> Result<Value> {
        self.ask(service, Method::GET, path, None).await?.ok()
    }

    /// Asks a service as the member of this project.
    pub async fn ask(&self, service: Service, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        let server = self.services.get(&service).with_context(|| format!("no {} in this cloud", service.kind()))?;
        ask(*server, method, &format!("/{path}"), Some(&self.token), body).await
    }
}

/// Keystone's answer to a user in a project.
pub(super) async fn token(keystone: SocketAddr, user: &str, project: &str) -> Result<String> {
    let domain = json!({"id": "default"});
    let asked = json!({"auth": {
        "identity": {
            "methods": ["password"],
            "password": {"user": {"name": user, "domain": domain, "password": PASSWORD}},
        },
        "scope": {"project": {"name": project, "domain": domain}},
    }});
    let answer = ask(keystone, Method::POST, "/v3/auth/tokens", None, Some(&asked)).await?;
    let token = answer.token.clone();
    answer.ok().with_context(|| format!("log in as {user}"))?;
    token.with_context(|| format!("no token for {user}"))
}
