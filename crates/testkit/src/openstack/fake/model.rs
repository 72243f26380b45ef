//! Neutron, Nova, Cinder and Octavia with a memory, as far as our controllers need them.
//!
//! It answers as the real ones were seen to: the same test bodies run on both.

mod block_storage;
mod compute;
mod load_balancer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Fake, Reply, Seen};
use crate::openstack::Method;

/// Has an answer of its own to some requests.
type Fault = Box<dyn FnMut(&Seen) -> Option<Reply> + Send>;

/// A cloud with one project, `p1`, and no more in it than a test puts there.
#[derive(Clone)]
pub struct Model {
    /// The HTTP around it, with Keystone.
    pub fake: Fake,
    memory: Arc<Mutex<Memory>>,
}

struct Memory {
    /// By collection and id.
    things: BTreeMap<String, BTreeMap<String, Value>>,
    extensions: BTreeSet<&'static str>,
    route_limit: usize,
    made: usize,
    fault: Option<Fault>,
}

struct Refusal(u16, &'static str, String);

type Answered = std::result::Result<Value, Refusal>;

impl Model {
    /// An empty cloud. Its routers take 31 routes.
    pub async fn start() -> Result<Self> {
        let memory = Arc::new(Mutex::new(Memory {
            things: BTreeMap::new(),
            extensions: BTreeSet::from(["extraroute", "extraroute-atomic", "revision-if-match"]),
            route_limit: 31,
            made: 0,
            fault: None,
        }));
        let answering = memory.clone();
        let fake = Fake::start(move |seen| lock(&answering).reply(seen)).await?;
        Ok(Self { fake, memory })
    }

    /// Lets `fault` answer whatever it has an answer to, from now on.
    pub fn fault(&self, fault: impl FnMut(&Seen) -> Option<Reply> + Send + 'static) {
        lock(&self.memory).fault = Some(Box::new(fault));
    }

    /// Ends all faults.
    pub fn heal(&self) {
        lock(&self.memory).fault = None;
    }

    /// A Neutron that can only replace all routes of a router.
    pub fn without_single_routes(&self) {
        lock(&self.memory).extensions.remove("extraroute-atomic");
    }

    /// Puts a server there, with one address.
    pub fn boot(&self, name: &str, address: &str) {
        let server = json!({
            "id": name, "name": name, "tenant_id": "p1", "status": "ACTIVE",
            "addresses": {"lan": [{"addr": address, "version": 4, "OS-EXT-IPS:type": "fixed"}]},
        });
        lock(&self.memory).things.entry("servers".into()).or_default().insert(name.into(), server);
    }

    /// Has Nova lose a server: its cell is down.
    pub fn lose(&self, server: &str) {
        self.change("servers", server, &json!({"lost": true}));
    }

    /// Ends that.
    pub fn find(&self, server: &str) {
        self.change("servers", server, &json!({"lost": false}));
    }

    /// Takes something away.
    pub fn forget(&self, collection: &str, id: &str) {
        lock(&self.memory).things.entry(collection.into()).or_default().remove(id);
    }

    /// Changes something behind everybody's back.
    pub fn change(&self, collection: &str, id: &str, fields: &Value) {
        if let Some(thing) = lock(&self.memory).things.entry(collection.into()).or_default().get_mut(id) {
            merge(thing, fields);
        }
    }

    /// Everything that is there, by collection and id.
    #[must_use]
    pub fn everything(&self) -> BTreeMap<String, BTreeMap<String, Value>> {
        let mut all = lock(&self.memory).things.clone();
        all.retain(|_, things| !things.is_empty());
        all
    }

    /// What is answered to a request, without a token and without faults.
    pub fn ask(&self, method: &Method, path: &str, body: &Value) -> Result<Value> {
        let (status, answer) = lock(&self.memory).answer(method.as_str(), &format!("/{path}"), body, None);
        ensure!(status < 300, "{status}: {answer}");
        Ok(answer)
    }
}

fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    fn reply(&mut self, seen: &Seen) -> Reply {
        if let Some(reply) = self.fault.as_mut().and_then(|fault| fault(seen)) {
            return reply;
        }
        let (method, path) = seen.line.split_once(' ').unwrap_or_default();
        let (status, body) = self.answer(method, path, &seen.body, seen.header("if-match"));
        Reply::json(status, &body)
    }

    fn answer(&mut self, method: &str, path: &str, body: &Value, guard: Option<&str>) -> (u16, Value) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let place: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
        match place.as_slice() {
            ["compute", "v2.1", place @ ..] => return self.nova(method, place, body),
            ["volume", "v3", _, place @ ..] => return self.cinder(method, place, query, body),
            ["lb", "v2", "lbaas", place @ ..] => return self.octavia(method, place, query, body),
            _ => (),
        }
        let answered = match (method, place.as_slice()) {
            ("GET", ["v2.0", "extensions"]) => {
                let alias = |alias: &&str| json!({"alias": alias, "name": alias});
                Ok(json!({"extensions": self.extensions.iter().map(alias).collect::<Vec<_>>()}))
            }
            ("GET", ["v2.0", "quotas", _]) => Ok(json!({"quota": {"router_route": self.route_limit, "port": 500}})),
            ("GET", ["v2.0", all]) => Ok(json!({all.replace('-', "_"): self.all(all, query)})),
            ("GET", ["v2.0", all, id]) => self.one(all, id),
            ("POST", ["v2.0", all]) => Ok(self.make(all, body)),
            ("PUT", ["v2.0", "routers", id, "add_router_interface"]) => self.connect(id, body),
            ("PUT", ["v2.0", "routers", id, "add_extraroutes"]) => self.reroute(id, |there| {
                there.retain(|route| !routes(body).contains(route));
                there.extend(routes(body));
            }),
            ("PUT", ["v2.0", "routers", id, "remove_extraroutes"]) => {
                self.reroute(id, |there| there.retain(|route| !routes(body).contains(route)))
            }
            ("PUT", ["v2.0", "routers", id]) => {
                self.guarded("routers", id, guard).and_then(|()| self.reroute(id, |there| *there = routes(body)))
            }
            ("PUT", ["v2.0", all, id]) => self.guarded(all, id, guard).and_then(|()| self.update(all, id, body)),
            ("DELETE", ["v2.0", all, id]) => self.delete(all, id),
            _ => Err(Refusal(404, "HTTPNotFound", "The resource could not be found.".into())),
        };
        match answered {
            Ok(_) if method == "DELETE" => (204, Value::Null),
            Ok(body) => (if method == "POST" { 201 } else { 200 }, body),
            Err(Refusal(status, kind, message)) => {
                (status, json!({"NeutronError": {"type": kind, "message": message, "detail": ""}}))
            }
        }
    }

    fn all(&self, collection: &str, query: &str) -> Vec<Value> {
        let filters = filters(query);
        let fits = |thing: &&Value| {
            let has = |(key, values): (&String, &Vec<String>)| match &thing[key] {
                Value::Array(many) => many.iter().any(|one| values.iter().any(|wanted| one == wanted)),
                one => values.iter().any(|wanted| one == wanted),
            };
            filters.iter().all(has)
        };
        self.things.get(collection).into_iter().flat_map(BTreeMap::values).filter(fits).cloned().collect()
    }

    fn one(&self, collection: &str, id: &str) -> Answered {
        let thing = self.things.get(collection).and_then(|all| all.get(id));
        thing.map(|thing| json!({singular(collection): thing})).ok_or_else(|| missing(collection, id))
    }

    fn make(&mut self, collection: &str, body: &Value) -> Value {
        self.made += 1;
        let id = format!("{}-{}", singular(collection), self.made);
        let mut thing = json!({"id": id, "name": "", "project_id": "p1", "status": "ACTIVE", "revision_number": 1});
        let defaults = match collection {
            "routers" => json!({"routes": []}),
            "ports" => json!({
                "device_id": "", "device_owner": "", "allowed_address_pairs": [], "security_groups": [],
                "port_security_enabled": true,
            }),
            _ => Value::Null,
        };
        merge(&mut thing, &defaults);
        merge(&mut thing, &body[singular(collection)]);
        self.things.entry(collection.into()).or_default().insert(id, thing.clone());
        json!({singular(collection): thing})
    }

    fn update(&mut self, collection: &str, id: &str, body: &Value) -> Answered {
        let thing = self.things.get_mut(collection).and_then(|all| all.get_mut(id));
        let thing = thing.ok_or_else(|| missing(collection, id))?;
        merge(thing, &body[singular(collection)]);
        thing["revision_number"] = json!(thing["revision_number"].as_i64().unwrap_or_default() + 1);
        Ok(json!({singular(collection): thing}))
    }

    fn delete(&mut self, collection: &str, id: &str) -> Answered {
        self.one(collection, id)?;
        if collection == "security-groups" && !self.all("ports", &format!("security_groups={id}")).is_empty() {
            return Err(Refusal(409, "SecurityGroupInUse", format!("Security Group {id} in use.")));
        }
        self.things.entry(collection.into()).or_default().remove(id);
        Ok(Value::Null)
    }

    fn guarded(&self, collection: &str, id: &str, guard: Option<&str>) -> std::result::Result<(), Refusal> {
        let current = self.one(collection, id)?[singular(collection)]["revision_number"].to_string();
        match guard.and_then(|guard| guard.strip_prefix("revision_number=")) {
            Some(wanted) if wanted != current => {
                let message = format!("Constrained to {wanted}, but current revision is {current}");
                Err(Refusal(412, "RevisionNumberConstraintFailed", message))
            }
            _ => Ok(()),
        }
    }

    fn connect(&mut self, router: &str, body: &Value) -> Answered {
        let subnet = body["subnet_id"].as_str().unwrap_or_default();
        let subnet = self.one("subnets", subnet)?["subnet"].clone();
        let port = json!({"port": {
            "network_id": subnet["network_id"], "device_id": router, "device_owner": "network:router_interface",
            "fixed_ips": [{"subnet_id": subnet["id"], "ip_address": subnet["gateway_ip"]}],
        }});
        Ok(self.make("ports", &port))
    }

    /// Changes the routes of a router as Neutron does: what remains is checked as a whole.
    fn reroute(&mut self, id: &str, change: impl FnOnce(&mut Vec<Value>)) -> Answered {
        let mut there = routes(&self.one("routers", id)?);
        change(&mut there);
        if there.len() > self.route_limit {
            return Err(Refusal(409, "OverQuota", "Quota exceeded for resources: ['router_route'].".into()));
        }
        let interfaces = self.all("ports", &format!("device_id={id}"));
        let subnets = interfaces.iter().filter_map(|port| port["fixed_ips"][0]["subnet_id"].as_str());
        let prefixes: Vec<_> = subnets.filter_map(|id| prefix(&self.one("subnets", id).ok()?["subnet"])).collect();
        let is_on_link = |route: &&Value| {
            let hop = route["nexthop"].as_str().unwrap_or_default();
            prefixes.iter().any(|prefix| hop.starts_with(prefix))
        };
        if let Some(lost) = there.iter().find(|route| !is_on_link(route)) {
            let message = format!("Invalid format for routes: {lost}, the nexthop is not connected with router");
            return Err(Refusal(400, "InvalidRoutes", message));
        }
        self.update("routers", id, &json!({"router": {"routes": there}}))
    }
}

/// What a query asks for. Several values of one key are alternatives.
fn filters(query: &str) -> BTreeMap<String, Vec<String>> {
    let mut filters: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        filters.entry(key.to_owned()).or_default().push(decoded(value));
    }
    filters
}

fn decoded(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let escaped = tail.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => bytes.push(if *first == b'+' { b' ' } else { *first }),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The part of a subnet's addresses that all of them have; ranges of tests end at a dot.
fn prefix(subnet: &Value) -> Option<String> {
    let (address, length) = subnet["cidr"].as_str()?.split_once('/')?;
    let dots = length.parse::<usize>().ok()? / 8;
    Some(address.split_inclusive('.').take(dots).collect())
}

fn routes(body: &Value) -> Vec<Value> {
    body["router"]["routes"].as_array().cloned().unwrap_or_default()
}

fn singular(collection: &str) -> String {
    collection.trim_end_matches('s').replace('-', "_")
}

fn missing(collection: &str, id: &str) -> Refusal {
    let kind = if collection == "routers" { "RouterNotFound" } else { "NotFound" };
    Refusal(404, kind, format!("{} {id} could not be found", singular(collection)))
}

fn merge(thing: &mut Value, fields: &Value) {
    for (key, value) in fields.as_object().into_iter().flatten() {
        thing[key] = value.clone();
    }
}
