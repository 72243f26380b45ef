use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::try_join;

use super::broker::Broker;
use super::database::Database;
use super::http::{Answer, Method, ask};
use super::project::{PASSWORD, Project, token};
use super::settings::{CELL, LOST_CELL, Site};
use super::worker::{Worker, Working};
use super::wsgi::Wsgi;
use super::{Service, Tier, environment, furnish, template};
use crate::ovn::{Central, Northbound};
use crate::{ReservedPort, Scratch, Signal};

/// The one region.
pub const REGION: &str = "lab";
/// Who may do everything, and the project that they do it in.
pub(super) const ADMIN: &str = "admin";

/// An OpenStack of its own. It takes some seconds to start, with all services a minute or two, and as long again the
/// first time on a machine.
///
/// Nothing forwards packets: ports stay down. A router takes 31 routes.
#[derive(Debug)]
pub struct Cloud {
    // In the order in which they are to end; the directory last.
    pub(super) workers: BTreeMap<Worker, Working>,
    services: BTreeMap<Service, Wsgi>,
    pub(super) ovn: Central,
    _broker: Option<Broker>,
    database: Database,
    tier: Tier,
    admin: String,
    environment: PathBuf,
    _dir: Scratch,
}

impl Cloud {
    /// Starts one with Keystone and Neutron, and waits until they answer.
    pub async fn start() -> Result<Self> {
        Box::pin(Self::start_tier(Tier::Net)).await
    }

    /// Starts one with all services, and waits until servers, volumes and load balancers can be made.
    pub async fn start_full() -> Result<Self> {
        let mut cloud = Box::pin(Self::start_tier(Tier::Full)).await?;
        Box::pin(furnish::furnish(&mut cloud)).await?;
        Ok(cloud)
    }

    async fn start_tier(tier: Tier) -> Result<Self> {
        let environment = environment().await?;
        let scratch = Scratch::new("openstack")?;
        let dir = scratch.path();
        template::instantiate(tier, &environment, dir).await?;
        let broker = async { if tier == Tier::Full { Broker::start(dir).await.map(Some) } else { Ok(None) } };
        let (database, ovn, broker) = try_join!(template::serve(tier, dir), Central::start(), broker)?;

        let ports = tier.services().iter().map(|service| Ok((*service, ReservedPort::new()?)));
        let ports = ports.collect::<Result<BTreeMap<_, _>>>()?;
        let site = Site {
            dir,
            environment: &environment,
            addresses: ports.iter().map(|(service, port)| (*service, port.address())).collect(),
            northbound: ovn.northbound().unix(0),
            southbound: ovn.southbound(),
            bus: broker.as_ref().map_or_else(|| "fake://".into(), Broker::url),
        };
        site.write_all(tier)?;
        let services =
            ports.into_iter().map(|(service, port)| Ok((service, Wsgi::new(service, port, &environment, dir)?)));
        let mut services = services.collect::<Result<BTreeMap<_, _>>>()?;
        try_join_all(services.values_mut().map(Wsgi::start)).await?;
        let mut workers = BTreeMap::new();
        if tier == Tier::Full {
            for worker in Worker::ALL {
                workers.insert(worker, Working::new(worker, &environment, dir).await?);
            }
        }

        let admin = token(services[&Service::Identity].address(), ADMIN, ADMIN).await?;
        let cloud = Self { workers, services, ovn, _broker: broker, database, tier, admin, environment, _dir: scratch };
        for service in tier.services() {
            cloud.register(*service).await?;
        }
        cloud.first_network().await.context("make a first network")?;
        Ok(cloud)
    }

    /// Where Keystone is.
    #[must_use]
    pub fn auth_url(&self) -> String {
        format!("http://{}/v3", self.address(Service::Identity))
    }

    /// A project of the test's own, whose name begins with `prefix`, and a user of the same name who is a member of it.
    pub async fn project(&self, prefix: &str) -> Result<Project> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Keystone takes 64 characters.
        let prefix: String = prefix.chars().take(50).collect();
        let name = format!("{prefix}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let project = json!({"project": {"name": name, "domain_id": "default"}});
        let project = text(&self.make(Service::Identity, "v3/projects", &project).await?["project"]["id"])?;
        let user = json!({"user": {"name": name, "domain_id": "default", "password": PASSWORD}});
        let user = text(&self.make(Service::Identity, "v3/users", &user).await?["user"]["id"])?;
        let roles: &[&str] = match self.tier {
            Tier::Net => &["member"],
            Tier::Full => &["member", furnish::BALANCER_ROLE],
        };
        for role in roles {
            self.grant(&project, &user, role).await?;
        }
        let services = self.services.iter().map(|(service, wsgi)| (*service, wsgi.address()));
        Project::new(project, name, services.collect()).await
    }

    /// The northbound database that Neutron writes to. What is changed in it is behind Neutron's back.
    #[must_use]
    pub fn northbound(&self) -> &Northbound {
        self.ovn.northbound()
    }

    /// Where a service listens: the address to put a [`Proxy`](crate::proxy::Proxy) before.
    ///
    /// # Panics
    /// If this cloud is one without that service.
    #[must_use]
    pub fn address(&self, service: Service) -> SocketAddr {
        self.services[&service].address()
    }

    /// Sends a signal to a service. SIGSTOP and SIGCONT make it hang and go on.
    pub fn signal(&self, service: Service, signal: Signal) -> Result<()> {
        self.services.get(&service).context(MISSING)?.signal(signal)
    }

    /// Ends a service and waits until it is gone.
    pub async fn stop(&mut self, service: Service) -> Result<()> {
        self.services.get_mut(&service).context(MISSING)?.stop().await
    }

    /// Starts a service that was stopped, at its old address, and waits until it answers.
    pub async fn restart(&mut self, service: Service) -> Result<()> {
        self.services.get_mut(&service).context(MISSING)?.start().await
    }

    /// Has Nova lose a server: it is in a cell whose database does not answer.
    pub async fn lose(&self, server: &str) -> Result<()> {
        self.move_to_cell(server, LOST_CELL, "instance.id").await
    }

    /// Ends that.
    pub async fn find(&self, server: &str) -> Result<()> {
        self.move_to_cell(server, CELL, "0").await
    }

    /// Its row stays where it is: there it counts as deleted while `deleted` is not 0.
    async fn move_to_cell(&self, server: &str, cell: &str, deleted: &str) -> Result<()> {
        let statement = format!(
            "UPDATE nova_api.instance_mappings AS mapping \
             JOIN nova_api.cell_mappings AS cell ON cell.name = '{cell}' \
             JOIN nova.instances AS instance ON instance.uuid = mapping.instance_uuid \
             SET mapping.cell_id = cell.id, instance.deleted = {deleted} WHERE mapping.instance_uuid = '{server}'"
        );
        self.database.execute(&self.environment, &statement).await.with_context(|| format!("{server} to {cell}"))
    }

    /// Changes a row behind a service's back, as `alter("cinder.volumes", id, "status = 'error_deleting'")`.
    pub async fn alter(&self, table: &str, id: &str, change: &str) -> Result<()> {
        let statement = format!("UPDATE {table} SET {change} WHERE id = '{id}'");
        self.database.execute(&self.environment, &statement).await.with_context(|| format!("{table} {id}"))
    }

    /// Asks a service as somebody who may do everything.
    pub async fn ask(&self, service: Service, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        let server = self.services.get(&service).context(MISSING)?.address();
        ask(server, method, &format!("/{path}"), Some(&self.admin), body).await
    }

    /// Neutron reads its policy when it first has to decide something, and refuses whatever comes meanwhile.
    async fn first_network(&self) -> Result<()> {
        let made = self.make(Service::Network, "v2.0/networks", &json!({"network": {"name": "first"}})).await?;
        let made = format!("v2.0/networks/{}", text(&made["network"]["id"])?);
        self.ask(Service::Network, Method::DELETE, &made, None).await?.ok().map(drop)
    }

    /// Puts a service into the catalog.
    async fn register(&self, service: Service) -> Result<()> {
        let named = json!({"service": {"type": service.kind(), "name": service.name()}});
        let id = text(&self.make(Service::Identity, "v3/services", &named).await?["service"]["id"])?;
        let url = format!("http://{}{}", self.address(service), service.path());
        let endpoint = json!({"endpoint": {"service_id": id, "interface": "public", "region_id": REGION, "url": url}});
        self.make(Service::Identity, "v3/endpoints", &endpoint).await.map(drop)
    }

    /// Lets a user have a role in a project.
    pub(super) async fn grant(&self, project: &str, user: &str, role: &str) -> Result<()> {
        let role = self.id_of("roles", role).await?;
        let grant = format!("v3/projects/{project}/users/{user}/roles/{role}");
        self.ask(Service::Identity, Method::PUT, &grant, None).await?.ok().map(drop)
    }

    /// The id of something of Keystone's.
    pub(super) async fn id_of(&self, collection: &str, name: &str) -> Result<String> {
        let found = self.ask(Service::Identity, Method::GET, &format!("v3/{collection}?name={name}"), None).await?;
        text(&found.ok()?[collection][0]["id"]).with_context(|| format!("no {name} in {collection}"))
    }

    pub(super) async fn make(&self, service: Service, path: &str, body: &Value) -> Result<Value> {
        self.ask(service, Method::POST, path, Some(body)).await?.ok().with_context(|| format!("POST {path}"))
    }

    pub(super) fn token(&self) -> &str {
        &self.admin
    }
}

const MISSING: &str = "this cloud was started without that";

pub(super) fn text(value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).with_context(|| format!("{value} where a text is expected"))
}
