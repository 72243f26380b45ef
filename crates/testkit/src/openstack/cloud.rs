use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::try_join;

use super::database::Database;
use super::http::{Method, ask};
use super::project::{PASSWORD, Project, token};
use super::wsgi::Wsgi;
use super::{Service, environment, settings, template};
use crate::ovn::{Central, Northbound};
use crate::{ReservedPort, Scratch, Signal};

/// The one region.
pub const REGION: &str = "lab";
/// Who may do everything, and the project that they do it in.
pub(super) const ADMIN: &str = "admin";

/// An OpenStack of its own. It takes some seconds to start, and a minute the first time on a machine.
///
/// Nothing forwards packets: ports stay down. A router takes 31 routes.
#[derive(Debug)]
pub struct Cloud {
    // In the order in which they are to end; the directory last.
    neutron: Wsgi,
    keystone: Wsgi,
    ovn: Central,
    _database: Database,
    admin: String,
    _dir: Scratch,
}

impl Cloud {
    /// Starts one and waits until its services answer.
    pub async fn start() -> Result<Self> {
        let environment = environment().await?;
        let scratch = Scratch::new("openstack")?;
        let dir = scratch.path();
        template::instantiate(&environment, dir).await?;
        let (database, ovn) = try_join!(template::serve(dir), Central::start())?;

        let (keystone, neutron) = (ReservedPort::new()?, ReservedPort::new()?);
        settings::keystone(dir)?;
        settings::neutron(dir, &environment, keystone.address(), (&ovn.northbound().unix(0), &ovn.southbound()))?;
        let mut keystone = Wsgi::new(Service::Identity, keystone, &environment, dir)?;
        let mut neutron = Wsgi::new(Service::Network, neutron, &environment, dir)?;
        try_join!(keystone.start(), neutron.start())?;

        let admin = token(keystone.address(), ADMIN, ADMIN).await?;
        let cloud = Self { neutron, keystone, ovn, _database: database, admin, _dir: scratch };
        for service in [Service::Identity, Service::Network] {
            cloud.register(service).await?;
        }
        cloud.first_network().await.context("make a first network")?;
        Ok(cloud)
    }

    /// Where Keystone is.
    #[must_use]
    pub fn auth_url(&self) -> String {
        format!("http://{}/v3", self.keystone.address())
    }

    /// A project of the test's own, whose name begins with `prefix`, and a user of the same name who is a member of it.
    pub async fn project(&self, prefix: &str) -> Result<Project> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{prefix}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let project = json!({"project": {"name": name, "domain_id": "default"}});
        let project = text(&self.admin(Method::POST, "/v3/projects", &project).await?["project"]["id"])?;
        let user = json!({"user": {"name": name, "domain_id": "default", "password": PASSWORD}});
        let user = text(&self.admin(Method::POST, "/v3/users", &user).await?["user"]["id"])?;
        let role = self.admin(Method::GET, "/v3/roles?name=member", &Value::Null).await?;
        let role = text(&role["roles"][0]["id"])?;
        let grant = format!("/v3/projects/{project}/users/{user}/roles/{role}");
        self.admin(Method::PUT, &grant, &Value::Null).await?;
        let services = [Service::Identity, Service::Network].map(|service| (service, self.address(service)));
        Project::new(project, name, services).await
    }

    /// The northbound database that Neutron writes to. What is changed in it is behind Neutron's back.
    #[must_use]
    pub fn northbound(&self) -> &Northbound {
        self.ovn.northbound()
    }

    /// Where a service listens: the address to put a [`Proxy`](crate::proxy::Proxy) before.
    #[must_use]
    pub fn address(&self, service: Service) -> SocketAddr {
        match service {
            Service::Identity => self.keystone.address(),
            Service::Network => self.neutron.address(),
        }
    }

    /// Sends a signal to a service. SIGSTOP and SIGCONT make it hang and go on.
    pub fn signal(&self, service: Service, signal: Signal) -> Result<()> {
        match service {
            Service::Identity => self.keystone.signal(signal),
            Service::Network => self.neutron.signal(signal),
        }
    }

    /// Ends a service and waits until it is gone.
    pub async fn stop(&mut self, service: Service) -> Result<()> {
        self.wsgi(service).stop().await
    }

    /// Starts a service that was stopped, at its old address, and waits until it answers.
    pub async fn restart(&mut self, service: Service) -> Result<()> {
        self.wsgi(service).start().await
    }

    fn wsgi(&mut self, service: Service) -> &mut Wsgi {
        match service {
            Service::Identity => &mut self.keystone,
            Service::Network => &mut self.neutron,
        }
    }

    /// Neutron reads its policy when it first has to decide something, and refuses whatever comes meanwhile.
    async fn first_network(&self) -> Result<()> {
        let neutron = async |method, path: &str, body: Option<&Value>| {
            ask(self.neutron.address(), method, path, Some(&self.admin), body).await?.ok()
        };
        let made = neutron(Method::POST, "/v2.0/networks", Some(&json!({"network": {"name": "first"}}))).await?;
        let made = format!("/v2.0/networks/{}", text(&made["network"]["id"])?);
        neutron(Method::DELETE, &made, None).await.map(drop)
    }

    /// Puts a service into the catalog.
    async fn register(&self, service: Service) -> Result<()> {
        let named = json!({"service": {"type": service.kind(), "name": service.name()}});
        let id = text(&self.admin(Method::POST, "/v3/services", &named).await?["service"]["id"])?;
        let url = format!("http://{}", self.address(service));
        let endpoint = json!({"endpoint": {"service_id": id, "interface": "public", "region_id": REGION, "url": url}});
        self.admin(Method::POST, "/v3/endpoints", &endpoint).await.map(drop)
    }

    async fn admin(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        let body = (!body.is_null()).then_some(body);
        ask(self.keystone.address(), method, path, Some(&self.admin), body).await?.ok().with_context(|| path.to_owned())
    }
}

pub(super) fn text(value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).with_context(|| format!("{value} where a text is expected"))
}
