use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Service;
use super::cloud::text;
use super::http::{Answer, Method, ask};

/// Everybody's.
pub const PASSWORD: &str = "lab-password";

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
    pub(super) async fn new(id: String, name: String, services: [(Service, SocketAddr); 2]) -> Result<Self> {
        let services = BTreeMap::from(services);
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
