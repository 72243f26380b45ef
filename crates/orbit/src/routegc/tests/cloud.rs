//! A cloud with a memory: what it is told is what it says next time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use groundcrew_core::leader::Term;
use groundcrew_core::provider::{
    AddressPair, Device, ErrorKind, Instance, InstanceGroup, InstanceState, Instances, Listing, Port, PortAddress,
    Ports, ProviderError, Reboot, Route, RouteLimit, Router, Routes, Subnet,
};

/// What happens to the next write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is done, and the answer is lost.
    DoneUnheard,
    /// It is not done, and nobody knows.
    LostUnheard,
    /// It is refused.
    Refused,
}

type Meanwhile<T> = Box<dyn FnOnce(&mut Vec<T>) + Send>;

pub(super) struct State {
    pub(super) routes: Vec<Route>,
    pub(super) subnets: Vec<Subnet>,
    pub(super) ports: Vec<Port>,
    pub(super) servers: Vec<Instance>,
    pub(super) incomplete: BTreeSet<&'static str>,
    pub(super) single: bool,
    /// Whether it does not even tell what it can do.
    pub(super) deaf: bool,
    pub(super) limit: RouteLimit,
    pub(super) fate: Option<Fate>,
    /// Done between the next read of the router and the write after it.
    pub(super) meanwhile: Option<Meanwhile<Route>>,
    /// The same of a port.
    pub(super) meanwhile_ports: Option<Meanwhile<Port>>,
    pub(super) revision: i64,
    /// Whether a changed revision is noticed.
    pub(super) compares: bool,
    pub(super) calls: Vec<&'static str>,
}

#[derive(Clone)]
pub(super) struct MemoryCloud(Arc<Mutex<State>>);

impl MemoryCloud {
    /// A router r1 on subnet s1, 10.0.0.0/24, and a server with its port for each of these last octets. Any other router has
    /// the same routes.
    pub(super) fn new(servers: impl IntoIterator<Item = u8>) -> Self {
        let cloud = Self(Arc::new(Mutex::new(State {
            routes: Vec::new(),
            subnets: vec![Subnet {
                id: "s1".into(),
                network: "net1".into(),
                range: "10.0.0.0/24".parse().unwrap(),
                hides_ports: false,
            }],
            ports: vec![port("router-port", Device::Router("r1".into()), "s1", "10.0.0.254")],
            servers: Vec::new(),
            incomplete: BTreeSet::new(),
            single: true,
            deaf: false,
            limit: RouteLimit::At(1_000),
            fate: None,
            meanwhile: None,
            meanwhile_ports: None,
            revision: 1,
            compares: true,
            calls: Vec::new(),
        })));
        for octet in servers {
            cloud.boot(octet);
        }
        cloud
    }

    pub(super) fn with_routes(self, routes: impl IntoIterator<Item = Route>) -> Self {
        self.lock().routes.extend(routes);
        self
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(super) fn routes(&self) -> BTreeSet<Route> {
        self.lock().routes.iter().cloned().collect()
    }

    pub(super) fn boot(&self, octet: u8) {
        let address = format!("10.0.0.{octet}");
        let mut state = self.lock();
        state.servers.push(server(&format!("n{octet}"), &address));
        state.ports.push(port(&format!("port-{octet}"), Device::Server(format!("n{octet}")), "s1", &address));
    }

    pub(super) fn allow(&self, port: &str, ranges: &[&str]) {
        let pair = |range: &&str| AddressPair { range: (*range).to_owned(), mac: None };
        let mut state = self.lock();
        let port = state.ports.iter_mut().find(|known| known.id == port).unwrap();
        port.pairs.get_or_insert_default().extend(ranges.iter().map(pair));
    }

    pub(super) fn allowed(&self, port: &str) -> Vec<String> {
        let state = self.lock();
        let port = state.ports.iter().find(|known| known.id == port).unwrap();
        port.pairs.iter().flatten().map(|pair| pair.range.clone()).collect()
    }

    fn listing<T: Clone>(&self, what: &'static str, items: impl FnOnce(&State) -> Vec<T>) -> Listing<T> {
        let mut state = self.lock();
        state.calls.push(what);
        Listing { items: items(&state), complete: !state.incomplete.contains(what) }
    }

    fn write(&self, what: &'static str, change: impl FnOnce(&mut State)) -> Result<(), ProviderError> {
        let mut state = self.lock();
        state.calls.push(what);
        let lost = || ProviderError::new(ErrorKind::Unavailable, "the connection was lost").with_maybe_applied(true);
        match state.fate.take() {
            Some(Fate::LostUnheard) => return Err(lost()),
            Some(Fate::Refused) => return Err(ProviderError::new(ErrorKind::Invalid, "the nexthop is not connected")),
            Some(Fate::DoneUnheard) => {
                change(&mut state);
                return Err(lost());
            }
            None => {}
        }
        state.revision += 1;
        change(&mut state);
        Ok(())
    }
}

pub(super) fn port(id: &str, device: Device, subnet: &str, address: &str) -> Port {
    Port {
        id: id.into(),
        network: "net1".into(),
        device,
        addresses: vec![PortAddress { subnet: subnet.into(), address: address.parse().unwrap() }],
        secured: true,
        groups: Some(Vec::new()),
        pairs: Some(Vec::new()),
        revision: Some(1),
    }
}

pub(super) fn server(name: &str, address: &str) -> Instance {
    Instance {
        id: name.into(),
        name: name.into(),
        state: InstanceState::Running,
        task: None,
        created: None,
        addresses: vec![address.parse().unwrap()],
        locked: false,
        fault: None,
        tags: BTreeSet::new(),
        metadata: BTreeMap::new(),
    }
}

impl Routes for MemoryCloud {
    async fn subnets(&self) -> Result<Listing<Subnet>, ProviderError> {
        Ok(self.listing("subnets", |state| state.subnets.clone()))
    }

    async fn router(&self, id: &str) -> Result<Router, ProviderError> {
        let mut state = self.lock();
        state.calls.push("router");
        let seen = Router {
            id: id.into(),
            name: "router".into(),
            project: "p1".into(),
            routes: state.routes.clone(),
            revision: Some(state.revision),
        };
        if let Some(change) = state.meanwhile.take() {
            change(&mut state.routes);
            state.revision += 1;
        }
        Ok(seen)
    }

    async fn route_limit(&self, _: &Router) -> Result<RouteLimit, ProviderError> {
        Ok(self.lock().limit)
    }

    async fn single_routes(&self) -> Result<bool, ProviderError> {
        let state = self.lock();
        if state.deaf { Err(ProviderError::new(ErrorKind::Unavailable, "no answer")) } else { Ok(state.single) }
    }

    async fn add_routes(&self, _: &str, routes: &[Route], _: &Term) -> Result<(), ProviderError> {
        self.write("add", |state| state.routes.extend_from_slice(routes))
    }

    async fn remove_routes(&self, _: &str, routes: &[Route], _: &Term) -> Result<(), ProviderError> {
        self.write("remove", |state| state.routes.retain(|route| !routes.contains(route)))
    }

    async fn replace_routes(&self, seen: &Router, routes: &[Route], _: &Term) -> Result<(), ProviderError> {
        let stale = {
            let state = self.lock();
            state.compares && seen.revision != Some(state.revision)
        };
        if stale {
            self.lock().calls.push("replace");
            return Err(ProviderError::new(ErrorKind::Conflict, "constrained to another revision"));
        }
        self.write("replace", |state| state.routes = routes.to_vec())
    }
}

impl Ports for MemoryCloud {
    async fn ports(&self, networks: &[String]) -> Result<Listing<Port>, ProviderError> {
        let wanted = |port: &&Port| networks.contains(&port.network);
        Ok(self.listing("ports", |state| state.ports.iter().filter(wanted).cloned().collect()))
    }

    async fn port(&self, id: &str) -> Result<Port, ProviderError> {
        let mut state = self.lock();
        let found = state.ports.iter().find(|port| port.id == id).cloned();
        if let Some(change) = state.meanwhile_ports.take() {
            change(&mut state.ports);
        }
        found.ok_or_else(|| ProviderError::new(ErrorKind::NotFound, "no such port"))
    }

    async fn set_port_groups(&self, seen: &Port, _: &[String], _: &Term) -> Result<Port, ProviderError> {
        Ok(seen.clone())
    }

    async fn set_port_pairs(&self, seen: &Port, pairs: &[AddressPair], _: &Term) -> Result<Port, ProviderError> {
        self.write("pairs", |state| {
            let mut ports = state.ports.iter_mut().filter(|port| port.id == seen.id);
            ports.next().unwrap().pairs = Some(pairs.to_vec());
        })?;
        self.port(&seen.id).await
    }
}

impl Instances for MemoryCloud {
    async fn instances(&self) -> Result<Listing<Instance>, ProviderError> {
        Ok(self.listing("servers", |state| state.servers.clone()))
    }

    async fn instance(&self, _: &str) -> Result<Instance, ProviderError> {
        Err(ProviderError::new(ErrorKind::NotFound, "not asked for by the collector"))
    }

    async fn instance_groups(&self) -> Result<Listing<InstanceGroup>, ProviderError> {
        Ok(Listing::complete(Vec::new()))
    }

    async fn reboot(&self, _: &str, _: Reboot, _: &Term) -> Result<(), ProviderError> {
        Ok(())
    }

    async fn delete_instance(&self, _: &str, _: &Term) -> Result<(), ProviderError> {
        Ok(())
    }

    async fn mark_instance(
        &self,
        _: &str,
        _: &BTreeSet<String>,
        _: &BTreeMap<String, String>,
        _: &Term,
    ) -> Result<(), ProviderError> {
        Ok(())
    }
}
