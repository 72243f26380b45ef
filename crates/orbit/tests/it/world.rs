//! A project with a router and Nodes on its subnet, on either cloud: what a test does to one it does to the other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::{
    AddressPair, Instance, InstanceGroup, InstanceState, Instances, Listing, Port, Ports, ProviderError, Reboot, Route,
    RouteLimit, Router, Routes, Subnet,
};
use groundcrew_openstack_cloud::OpenStack;
use groundcrew_orbit::routegc::apply::Applied;
use groundcrew_orbit::routegc::collector::{Collector, Pass};
use groundcrew_orbit::routegc::nodes::Node;
use groundcrew_orbit::routegc::observe::ObserveError;
use groundcrew_orbit::routegc::rules::Rules;
use groundcrew_testkit::openstack::fake::{self, Model};
use groundcrew_testkit::openstack::{self as lab, Method, REGION, Service};
use openstack_client::{Auth, Client, Config, Domain, Project, Secret, User};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

/// How the two clouds are talked to behind the collector's back.
pub(crate) enum Backend {
    Model(Model),
    Real(lab::Project),
}

pub(crate) struct World {
    pub(crate) backend: Backend,
    pub(crate) client: Client,
    pub(crate) router: String,
    network: String,
    subnet: String,
    has_nova: bool,
    /// On real services without Nova: what Nova would say.
    servers: BTreeMap<String, IpAddr>,
    pub(crate) nodes: Vec<Node>,
    /// Has the cloud say that it cannot change single routes.
    pub(crate) whole_lists_only: bool,
    _turn: Option<MutexGuard<'static, ()>>,
}

/// No lease limits these writes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Races load a real Neutron on a small machine so much that others would run into their deadlines.
static TURN: Mutex<()> = Mutex::const_new(());

impl World {
    pub(crate) async fn model() -> Self {
        Self::model_as(password("demo", "kluster", fake::PASSWORD)).await
    }

    /// With little patience, for faults that are meant to last.
    pub(crate) async fn model_as(auth: Auth) -> Self {
        Self::model_asked_for(Duration::from_secs(2), auth).await
    }

    /// For faults that are over before anybody loses patience.
    pub(crate) async fn patient_model() -> Self {
        Self::model_asked_for(Duration::from_mins(1), password("demo", "kluster", fake::PASSWORD)).await
    }

    async fn model_asked_for(time: Duration, auth: Auth) -> Self {
        let model = Model::start().await.unwrap();
        let config = config(&model.fake.url(), auth).attempt_timeout(Duration::from_secs(10)).retry_for(time);
        Self::new(Backend::Model(model), config, None).await
    }

    pub(crate) async fn real(name: &str) -> Self {
        Self::on(lab::shared().await.unwrap(), name).await
    }

    /// A project of a real cloud, with Nova or without.
    pub(crate) async fn on(cloud: &lab::Cloud, name: &str) -> Self {
        let turn = TURN.lock().await;
        let project = cloud.project(name).await.unwrap();
        let config = config(&cloud.auth_url(), password(&project.name, &project.name, lab::PASSWORD));
        let has_nova = project.has(Service::Compute);
        Self { has_nova, ..Self::new(Backend::Real(project), config, Some(turn)).await }
    }

    async fn new(backend: Backend, config: Config, turn: Option<MutexGuard<'static, ()>>) -> Self {
        let mut world = Self {
            _turn: turn,
            has_nova: matches!(backend, Backend::Model(_)),
            backend,
            client: Client::new(config).unwrap(),
            router: String::new(),
            network: String::new(),
            subnet: String::new(),
            servers: BTreeMap::new(),
            nodes: Vec::new(),
            whole_lists_only: false,
        };
        world.network = world.make("network", json!({"name": "nodes"})).await;
        let subnet =
            json!({"network_id": world.network, "cidr": "10.180.0.0/16", "ip_version": 4, "gateway_ip": "10.180.0.1"});
        world.subnet = world.make("subnet", subnet).await;
        world.router = world.make("router", json!({"name": "router"})).await;
        let interface = format!("v2.0/routers/{}/add_router_interface", world.router);
        world.ask(Method::PUT, &interface, &json!({"subnet_id": world.subnet})).await;
        world
    }

    pub(crate) fn fake(&self) -> &Model {
        match &self.backend {
            Backend::Model(model) => model,
            Backend::Real(_) => panic!("these services are real"),
        }
    }

    /// The answer to a request that must succeed.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: &Value) -> Value {
        self.try_ask(method, path, body).await.unwrap()
    }

    async fn try_ask(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        match &self.backend {
            Backend::Model(model) => model.ask(&method, path, body),
            Backend::Real(project) => {
                let body = (!body.is_null()).then_some(body);
                project.ask(Service::Network, method, path, body).await?.ok()
            }
        }
    }

    pub(crate) async fn make(&self, kind: &str, fields: Value) -> String {
        let made = self.ask(Method::POST, &format!("v2.0/{kind}s"), &json!({kind: fields})).await;
        made[kind]["id"].as_str().unwrap().to_owned()
    }

    /// A server at `10.180.1.<i>`, with its port. Gives the port.
    pub(crate) async fn boot(&mut self, i: u8) -> String {
        let (name, address) = (format!("n{i}"), address(i));
        let mut port = json!({
            "network_id": self.network, "fixed_ips": [{"subnet_id": self.subnet, "ip_address": address}],
        });
        if let Backend::Real(project) = &self.backend
            && self.has_nova
        {
            let port = self.make("port", port).await;
            project.boot(&name, json!({"port": port})).await.unwrap();
            return port;
        }
        port["device_id"] = json!(name);
        port["device_owner"] = json!("compute:nova");
        let port = self.make("port", port).await;
        if let Backend::Model(model) = &self.backend {
            model.boot(&name, &address);
        }
        self.servers.insert(name, address.parse().unwrap());
        port
    }

    /// The same as a Node with pods in `100.100.<i>.0/24` and its route.
    pub(crate) async fn join(&mut self, i: u8) -> String {
        let port = self.boot(i).await;
        self.nodes.push(node(i));
        self.add(&[own(i)]).await;
        port
    }

    pub(crate) async fn add(&self, routes: &[Route]) {
        self.change("add_extraroutes", routes).await;
    }

    pub(crate) async fn change(&self, verb: &str, routes: &[Route]) {
        self.try_change(verb, routes).await.unwrap();
    }

    pub(crate) async fn try_change(&self, verb: &str, routes: &[Route]) -> anyhow::Result<()> {
        let route = |route: &Route| json!({"destination": route.destination, "nexthop": route.next_hop});
        let body = json!({"router": {"routes": routes.iter().map(route).collect::<Vec<_>>()}});
        self.try_ask(Method::PUT, &format!("v2.0/routers/{}/{verb}", self.router), &body).await.map(drop)
    }

    pub(crate) async fn routes(&self) -> BTreeSet<Route> {
        let router = self.ask(Method::GET, &format!("v2.0/routers/{}", self.router), &Value::Null).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let route =
            |route: &Value| Route { destination: text(&route["destination"]), next_hop: text(&route["nexthop"]) };
        router["router"]["routes"].as_array().unwrap().iter().map(route).collect()
    }

    /// The cloud for writes that take so long at most.
    pub(crate) fn cloud(&self, deadline: Duration) -> Cloud {
        let openstack = OpenStack::new(self.client.clone(), deadline);
        let servers = (!self.has_nova).then(|| self.servers.clone());
        Cloud { openstack, servers, whole_lists_only: self.whole_lists_only }
    }

    /// The router is found by the Nodes.
    pub(crate) fn collect(&self, rules: Rules) -> Passes {
        Passes { collector: Collector::new(Arc::new(self.cloud(PATIENCE)), Vec::new(), rules), now: Moment::now() }
    }

    /// The router is named.
    pub(crate) fn collect_at(&self, router: &str, rules: Rules) -> Passes {
        let collector = Collector::new(Arc::new(self.cloud(PATIENCE)), vec![router.to_owned()], rules);
        Passes { collector, now: Moment::now() }
    }
}

pub(crate) struct Passes {
    collector: Collector<Cloud>,
    now: Moment,
}

impl Passes {
    /// A pass long after the last.
    pub(crate) async fn pass(&mut self, nodes: &[Node]) -> Result<Pass, ObserveError> {
        self.now = self.now + rules().min_age;
        self.collector.pass(nodes, self.now, Some(&Term::alone("test"))).await
    }

    /// As many as make everything ripe, and one more.
    pub(crate) async fn settle(&mut self, nodes: &[Node]) -> Applied {
        let mut all = Applied::default();
        for _ in 0..=rules().sightings {
            let applied = self.pass(nodes).await.unwrap().applied.unwrap();
            all.removed.extend(applied.removed);
            all.failures.extend(applied.failures);
            all.put_back += applied.put_back;
            all.stripped += applied.stripped;
        }
        all
    }
}

/// OpenStack, or OpenStack without Nova.
pub(crate) struct Cloud {
    openstack: OpenStack,
    servers: Option<BTreeMap<String, IpAddr>>,
    whole_lists_only: bool,
}

pub(crate) fn rules() -> Rules {
    Rules {
        pod_ranges: vec!["100.100.0.0/16".parse().unwrap()],
        sightings: 2,
        min_age: Duration::from_mins(10),
        max_removals: 10,
        max_percent: 50,
        route_limit: 31,
        whole_lists: false,
    }
}

pub(crate) fn address(i: u8) -> String {
    format!("10.180.1.{i}")
}

pub(crate) fn node(i: u8) -> Node {
    Node {
        name: format!("n{i}"),
        uid: format!("uid-{i}"),
        server: None,
        pod_ranges: vec![format!("100.100.{i}.0/24").parse().unwrap()],
        addresses: vec![address(i).parse().unwrap()],
    }
}

pub(crate) fn route(destination: &str, next_hop: &str) -> Route {
    Route { destination: destination.into(), next_hop: next_hop.into() }
}

pub(crate) fn own(i: u8) -> Route {
    route(&format!("100.100.{i}.0/24"), &address(i))
}

fn password(user: &str, project: &str, password: &str) -> Auth {
    let domain = || Domain::Id("default".into());
    Auth::Password {
        user: User::Name(user.into(), domain()),
        password: Secret::new(password),
        project: Project::Name(project.into(), domain()),
    }
}

fn config(url: &str, auth: Auth) -> Config {
    Config::new(url, auth).unwrap().region(REGION)
}

impl Routes for Cloud {
    async fn subnets(&self) -> Result<Listing<Subnet>, ProviderError> {
        self.openstack.subnets().await
    }
    async fn router(&self, id: &str) -> Result<Router, ProviderError> {
        self.openstack.router(id).await
    }
    async fn route_limit(&self, router: &Router) -> Result<RouteLimit, ProviderError> {
        self.openstack.route_limit(router).await
    }
    async fn single_routes(&self) -> Result<bool, ProviderError> {
        Ok(!self.whole_lists_only && self.openstack.single_routes().await?)
    }
    async fn add_routes(&self, id: &str, routes: &[Route], term: &Term) -> Result<(), ProviderError> {
        self.openstack.add_routes(id, routes, term).await
    }
    async fn remove_routes(&self, id: &str, routes: &[Route], term: &Term) -> Result<(), ProviderError> {
        self.openstack.remove_routes(id, routes, term).await
    }
    async fn replace_routes(&self, seen: &Router, routes: &[Route], term: &Term) -> Result<(), ProviderError> {
        self.openstack.replace_routes(seen, routes, term).await
    }
}

impl Ports for Cloud {
    async fn ports(&self, networks: &[String]) -> Result<Listing<Port>, ProviderError> {
        self.openstack.ports(networks).await
    }
    async fn port(&self, id: &str) -> Result<Port, ProviderError> {
        self.openstack.port(id).await
    }
    async fn set_port_groups(&self, seen: &Port, groups: &[String], term: &Term) -> Result<Port, ProviderError> {
        self.openstack.set_port_groups(seen, groups, term).await
    }
    async fn set_port_pairs(&self, seen: &Port, pairs: &[AddressPair], term: &Term) -> Result<Port, ProviderError> {
        self.openstack.set_port_pairs(seen, pairs, term).await
    }
}

impl Instances for Cloud {
    async fn instances(&self) -> Result<Listing<Instance>, ProviderError> {
        let Some(servers) = &self.servers else { return self.openstack.instances().await };
        let server = |(name, address): (&String, &IpAddr)| Instance {
            id: name.clone(),
            name: name.clone(),
            state: InstanceState::Running,
            task: None,
            created: None,
            addresses: vec![*address],
            locked: false,
            fault: None,
            tags: BTreeSet::new(),
            metadata: BTreeMap::new(),
        };
        Ok(Listing::complete(servers.iter().map(server).collect()))
    }
    async fn instance(&self, id: &str) -> Result<Instance, ProviderError> {
        self.openstack.instance(id).await
    }
    async fn instance_groups(&self) -> Result<Listing<InstanceGroup>, ProviderError> {
        self.openstack.instance_groups().await
    }
    async fn reboot(&self, id: &str, how: Reboot, term: &Term) -> Result<(), ProviderError> {
        self.openstack.reboot(id, how, term).await
    }
    async fn delete_instance(&self, id: &str, term: &Term) -> Result<(), ProviderError> {
        self.openstack.delete_instance(id, term).await
    }
    async fn mark_instance(
        &self,
        id: &str,
        tags: &BTreeSet<String>,
        metadata: &BTreeMap<String, String>,
        term: &Term,
    ) -> Result<(), ProviderError> {
        self.openstack.mark_instance(id, tags, metadata, term).await
    }
}
