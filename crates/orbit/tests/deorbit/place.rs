//! A project of an OpenStack, on either cloud: what a test does to the model it does to the services themselves.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use groundcrew_openstack_cloud::OpenStack;
use groundcrew_testkit::eventually;
use groundcrew_testkit::openstack::fake::{self, Model};
use groundcrew_testkit::openstack::{self as lab, Method, REGION, Service};
use openstack_client::{Auth, Client, Config, Domain, Project, Secret, User};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// What a service may take on a busy machine.
const SOON: Duration = Duration::from_mins(3);

/// By collection and id.
pub(crate) type Everything = BTreeMap<String, BTreeMap<String, Value>>;

pub(crate) const MARK: &str = "cinder.csi.openstack.org/cluster";

/// What a project has, and what of it stays the same if nobody touches it. Ports are not among it: that of a load balancer
/// is Octavia's to remove, and the drivers of this one make and remove none.
const COLLECTIONS: [(Service, &str, &str, &[&str]); 8] = [
    (
        Service::LoadBalancer,
        "v2/lbaas/loadbalancers",
        "loadbalancers",
        &["name", "description", "tags", "provisioning_status"],
    ),
    (Service::Network, "v2.0/floatingips", "floatingips", &["description", "floating_ip_address", "port_id"]),
    (Service::Network, "v2.0/security-groups", "security_groups", &["name", "description"]),
    (Service::Network, "v2.0/routers", "routers", &["name", "routes"]),
    (Service::BlockStorage, "volumes/detail", "volumes", &["name", "status", "metadata", "size"]),
    (Service::BlockStorage, "snapshots/detail", "snapshots", &["name", "status", "metadata", "volume_id"]),
    (Service::BlockStorage, "backups/detail", "backups", &["name", "status"]),
    (Service::Compute, "v2.1/servers/detail", "servers", &["name", "status"]),
];

enum Backend {
    Model(Model),
    Real { cloud: &'static lab::Cloud, project: lab::Project, external: String },
}

/// The project that both clusters are in.
pub(crate) struct Place {
    backend: Backend,
    network: String,
    subnet: String,
    pub(crate) router: String,
}

impl Place {
    pub(crate) async fn model() -> Self {
        Self::on(Backend::Model(Model::start().await.unwrap())).await
    }

    /// A project of its own on all of the services.
    #[allow(dead_code, reason = "one of the two binaries that share this has no services")]
    pub(crate) async fn real(name: &str) -> Self {
        static EXTERNAL: OnceCell<String> = OnceCell::const_new();
        let cloud = lab::shared_full().await.unwrap();
        let external = EXTERNAL.get_or_init(async || outside(cloud).await.unwrap()).await.clone();
        let project = cloud.project(name).await.unwrap();
        let place = Self::on(Backend::Real { cloud, project, external: external.clone() }).await;
        let gateway = json!({"router": {"external_gateway_info": {"network_id": external}}});
        let path = format!("v2.0/routers/{}", place.router);
        place.ask(Service::Network, Method::PUT, &path, &gateway).await.unwrap();
        place
    }

    async fn on(backend: Backend) -> Self {
        let (network, subnet, router) = (String::new(), String::new(), String::new());
        let mut place = Self { backend, network, subnet, router };
        place.network = place.make(Service::Network, "v2.0/networks", "network", json!({"name": "nodes"})).await;
        let subnet =
            json!({"network_id": place.network, "cidr": "10.180.0.0/16", "ip_version": 4, "gateway_ip": "10.180.0.1"});
        place.subnet = place.make(Service::Network, "v2.0/subnets", "subnet", subnet).await;
        place.router = place.make(Service::Network, "v2.0/routers", "router", json!({"name": "router"})).await;
        let interface = format!("v2.0/routers/{}/add_router_interface", place.router);
        place.ask(Service::Network, Method::PUT, &interface, &json!({"subnet_id": place.subnet})).await.unwrap();
        place
    }

    /// For faults that the services do not have on order.
    pub(crate) fn fake(&self) -> &Model {
        match &self.backend {
            Backend::Model(model) => model,
            Backend::Real { .. } => panic!("these services are real"),
        }
    }

    /// The cloud as this cluster sees it.
    pub(crate) fn openstack(&self) -> OpenStack {
        let domain = || Domain::Id("default".into());
        let (url, user, password, project) = match &self.backend {
            Backend::Model(model) => {
                (model.fake.url(), "demo", fake::PASSWORD, Project::Name("kluster".into(), domain()))
            }
            Backend::Real { cloud, project, .. } => {
                (cloud.auth_url(), project.name.as_str(), lab::PASSWORD, Project::Id(project.id.clone()))
            }
        };
        let auth = Auth::Password { user: User::Name(user.into(), domain()), password: Secret::new(password), project };
        let config = Config::new(&url, auth).unwrap().region(REGION);
        // Little patience with faults that are meant to last.
        let config = match &self.backend {
            Backend::Model(_) => config.retry_for(Duration::from_secs(1)),
            Backend::Real { .. } => config,
        };
        OpenStack::new(Client::new(config).unwrap(), Duration::from_secs(30))
    }

    /// The answer of a service. Of Cinder the path begins after the project.
    pub(crate) async fn ask(
        &self,
        service: Service,
        method: Method,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<Value> {
        match (&self.backend, service) {
            (Backend::Model(model), Service::BlockStorage) => model.ask(&method, &format!("volume/v3/p1/{path}"), body),
            (Backend::Model(model), Service::LoadBalancer) => model.ask(&method, &format!("lb/{path}"), body),
            (Backend::Model(model), _) => model.ask(&method, path, body),
            (Backend::Real { project, .. }, service) => {
                let path = match service {
                    Service::BlockStorage => format!("v3/{}/{path}", project.id),
                    _ => path.to_owned(),
                };
                project.ask(service, method, &path, (!body.is_null()).then_some(body)).await?.ok()
            }
        }
    }

    /// Everything in the project.
    pub(crate) async fn everything(&self) -> Everything {
        let mut all = Everything::new();
        for (service, path, collection, fields) in COLLECTIONS {
            let name = collection.replace('_', "-");
            let things = match &self.backend {
                Backend::Model(model) => model.everything().remove(&name).unwrap_or_default().into_values().collect(),
                Backend::Real { .. } => {
                    let listed = self.ask(service, Method::GET, path, &Value::Null).await.unwrap();
                    listed[collection].as_array().cloned().unwrap_or_default()
                }
            };
            let lasting = |thing: &Value| fields.iter().map(|key| ((*key).to_owned(), sorted(&thing[*key]))).collect();
            let things: BTreeMap<_, _> =
                things.iter().map(|thing| (text(&thing["id"]), Value::Object(lasting(thing)))).collect();
            if !things.is_empty() {
                all.insert(name, things);
            }
        }
        all
    }

    /// What of a collection is there.
    pub(crate) async fn ids(&self, collection: &str) -> Vec<String> {
        self.everything().await.remove(collection).unwrap_or_default().into_keys().collect()
    }

    pub(crate) async fn make(&self, service: Service, path: &str, kind: &str, fields: Value) -> String {
        let made = self.ask(service, Method::POST, path, &json!({kind: fields})).await;
        text(&made.with_context(|| format!("make a {kind}")).unwrap()[kind]["id"])
    }

    /// The same, and waits until it can be used.
    async fn make_usable(
        &self,
        (service, path): (Service, &str),
        kind: &str,
        fields: Value,
        (key, value): (&str, &str),
    ) -> String {
        let id = self.make(service, path, kind, fields).await;
        let place = format!("{path}/{id}");
        // Not by `eventually`: a future with a closure in it cannot be spawned, and stand-ins are.
        let deadline = Instant::now() + SOON;
        loop {
            let found = self.ask(service, Method::GET, &place, &Value::Null).await.unwrap();
            if found[kind][key] == value {
                return id;
            }
            assert!(Instant::now() < deadline, "{found}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn load_balancer(&self, mut fields: Value) -> String {
        fields["vip_subnet_id"] = json!(self.subnet);
        let place = (Service::LoadBalancer, "v2/lbaas/loadbalancers");
        self.make_usable(place, "loadbalancer", fields, ("provisioning_status", "ACTIVE")).await
    }

    /// All that a Service gets. Gives the load balancer.
    pub(crate) async fn balancer(&self, cluster: &str, namespace: &str, name: &str, uid: &str) -> String {
        let mark = format!("kube_service_{cluster}_{namespace}_{name}");
        let made_for = format!("Kubernetes external service {namespace}/{name} from cluster {cluster}");
        let id = self.load_balancer(json!({"name": mark, "description": made_for, "tags": [mark]})).await;
        self.address(&made_for, &id).await;
        let group = json!({
            "name": format!("lb-sg-{uid}-{namespace}-{name}"),
            "description": format!("Security Group for {namespace}/{name} Service LoadBalancer in cluster {cluster}"),
        });
        self.make(Service::Network, "v2.0/security-groups", "security_group", group).await;
        id
    }

    /// All that Octavia's Ingress controller makes for an Ingress. Gives the load balancer.
    pub(crate) async fn ingress(&self, cluster: &str, namespace: &str, name: &str) -> String {
        let mark = format!("kube_ingress_{cluster}_{namespace}_{name}");
        let made_for = format!("ingress {name} in namespace {namespace} from cluster {cluster}");
        // It is described anew when the controller is done with it.
        let described = format!("Kubernetes I{}, version: 4711", &made_for[1..]);
        let id = self.load_balancer(json!({"name": mark, "description": described})).await;
        self.address(&format!("Kubernetes {made_for}"), &id).await;
        let of = format!("Security group created for Ingress {namespace}/{name} from cluster {cluster}");
        let group = json!({"name": mark, "description": of});
        self.make(Service::Network, "v2.0/security-groups", "security_group", group).await;
        id
    }

    async fn address(&self, made_for: &str, balancer: &str) {
        let mut fields = match &self.backend {
            Backend::Model(_) => json!({"floating_ip_address": "192.0.2.7", "port_id": format!("vip-{balancer}")}),
            Backend::Real { external, .. } => {
                let port = json!({"network_id": self.network, "name": format!("octavia-lb-{balancer}")});
                let port = self.make(Service::Network, "v2.0/ports", "port", port).await;
                json!({"floating_network_id": external, "port_id": port})
            }
        };
        fields["description"] = json!(format!("Floating IP for {made_for}"));
        self.make(Service::Network, "v2.0/floatingips", "floatingip", fields).await;
    }

    /// What Octavia's drivers do elsewhere: the port of a load balancer goes with it.
    pub(crate) async fn remove_ports(&self) -> anyhow::Result<()> {
        if matches!(self.backend, Backend::Model(_)) {
            return Ok(());
        }
        let ports = self.ask(Service::Network, Method::GET, "v2.0/ports", &Value::Null).await?;
        for port in ports["ports"].as_array().into_iter().flatten() {
            let Some(id) = port["name"].as_str().and_then(|name| name.strip_prefix("octavia-lb-")) else { continue };
            let balancer = format!("v2/lbaas/loadbalancers/{id}");
            if self.is_gone(Service::LoadBalancer, &balancer).await? {
                let port = format!("v2.0/ports/{}", text(&port["id"]));
                self.ask(Service::Network, Method::DELETE, &port, &Value::Null).await?;
            }
        }
        Ok(())
    }

    /// A Node's port that lets through what this group says.
    pub(crate) async fn port_in(&self, group: &str) -> String {
        let port = json!({"network_id": self.network, "security_groups": [group]});
        self.make(Service::Network, "v2.0/ports", "port", port).await
    }

    pub(crate) async fn volume(&self, csi: &str, name: &str) -> String {
        let fields = json!({"name": name, "size": 10, "metadata": {MARK: csi}});
        self.make_usable((Service::BlockStorage, "volumes"), "volume", fields, ("status", "available")).await
    }

    /// One that was made long ago.
    pub(crate) async fn old_volume(&self, csi: &str, name: &str) -> String {
        let id = self.volume(csi, name).await;
        self.age(&id).await;
        id
    }

    /// Makes a volume look as if it was made long ago. In the model all were.
    pub(crate) async fn age(&self, volume: &str) {
        if let Backend::Real { cloud, .. } = &self.backend {
            cloud.alter("cinder.volumes", volume, "created_at = created_at - INTERVAL 1 DAY").await.unwrap();
        }
    }

    /// One that was made just now.
    pub(crate) async fn young_volume(&self, csi: &str, name: &str) -> String {
        let id = self.volume(csi, name).await;
        if let Backend::Model(model) = &self.backend {
            model.change("volumes", &id, &json!({"created_at": jiff::Timestamp::now().to_string()}));
        }
        id
    }

    pub(crate) async fn note(&self, volume: &str, key: &str, value: &str) {
        let path = format!("volumes/{volume}/metadata");
        if let Backend::Model(model) = &self.backend {
            let mut metadata = model.everything()["volumes"][volume]["metadata"].clone();
            metadata[key] = json!(value);
            return model.change("volumes", volume, &json!({"metadata": metadata}));
        }
        let note = json!({"metadata": {key: value}});
        self.ask(Service::BlockStorage, Method::POST, &path, &note).await.unwrap();
    }

    pub(crate) async fn snapshot(&self, csi: &str, volume: &str, name: &str) -> String {
        let fields = json!({"name": name, "volume_id": volume, "metadata": {MARK: csi}});
        self.make_usable((Service::BlockStorage, "snapshots"), "snapshot", fields, ("status", "available")).await
    }

    /// Has a volume be in this state, whatever Cinder thinks of it.
    pub(crate) async fn set_volume_status(&self, volume: &str, status: &str) {
        match &self.backend {
            Backend::Model(model) => model.change("volumes", volume, &json!({"status": status})),
            Backend::Real { cloud, .. } => {
                cloud.alter("cinder.volumes", volume, &format!("status = '{status}'")).await.unwrap();
            }
        }
    }

    /// The same of a load balancer.
    pub(crate) async fn set_balancer_status(&self, balancer: &str, status: &str) {
        match &self.backend {
            Backend::Model(model) => {
                model.change("loadbalancers", balancer, &json!({"provisioning_status": status}));
            }
            Backend::Real { cloud, .. } => {
                let change = format!("provisioning_status = '{status}'");
                cloud.alter("octavia.load_balancer", balancer, &change).await.unwrap();
            }
        }
    }

    pub(crate) async fn set_tags(&self, balancer: &str, tags: &[String]) {
        let path = format!("v2/lbaas/loadbalancers/{balancer}");
        let tags = json!({"loadbalancer": {"tags": tags}});
        self.ask(Service::LoadBalancer, Method::PUT, &path, &tags).await.unwrap();
        eventually("the load balancer has its tags", SOON, async || {
            let found = self.ask(Service::LoadBalancer, Method::GET, &path, &Value::Null).await?;
            ensure!(found["loadbalancer"]["provisioning_status"] == "ACTIVE", "{found}");
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Destinations and next hops.
    pub(crate) async fn add_routes(&self, routes: &[(&str, &str)]) {
        let route = |(to, by): &(&str, &str)| json!({"destination": to, "nexthop": by});
        let body = json!({"router": {"routes": routes.iter().map(route).collect::<Vec<_>>()}});
        let path = format!("v2.0/routers/{}/add_extraroutes", self.router);
        self.ask(Service::Network, Method::PUT, &path, &body).await.unwrap();
    }

    /// Whether the service itself says that there is no such thing.
    pub(crate) async fn is_gone(&self, service: Service, path: &str) -> anyhow::Result<bool> {
        match self.ask(service, Method::GET, path, &Value::Null).await {
            Ok(_) => Ok(false),
            Err(error) if error.to_string().starts_with("404") => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Has it go. Gone already is fine.
    pub(crate) async fn delete(&self, service: Service, path: &str) -> anyhow::Result<()> {
        match self.ask(service, Method::DELETE, path, &Value::Null).await {
            Err(error) if !error.to_string().starts_with("404") => Err(error),
            _ => Ok(()),
        }
    }
}

/// A network that floating addresses come from. Only somebody who may do everything makes one.
async fn outside(cloud: &lab::Cloud) -> anyhow::Result<String> {
    let network = json!({"network": {"name": "outside", "router:external": true}});
    let made = cloud.ask(Service::Network, Method::POST, "v2.0/networks", Some(&network)).await?.ok()?;
    let network = text(&made["network"]["id"]);
    let subnet = json!({"subnet": {"network_id": network, "cidr": "203.0.113.0/24", "ip_version": 4,
        "enable_dhcp": false}});
    cloud.ask(Service::Network, Method::POST, "v2.0/subnets", Some(&subnet)).await?.ok()?;
    Ok(network)
}

/// Some lists come in any order.
fn sorted(value: &Value) -> Value {
    let Value::Array(items) = value else { return value.clone() };
    let mut items = items.clone();
    items.sort_by_key(ToString::to_string);
    Value::Array(items)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}
