//! A cloud whose network is the real Neutron, and whose servers are only remembered: Nova is not part of every test run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use groundcrew_core::leader::Term;
use groundcrew_core::provider::{
    Access, AddressPair, ErrorKind, Instance, InstanceGroup, InstanceState, Instances, Listing, NewRule, Port, Ports,
    ProviderError, Reboot, Route, RouteLimit, Router, Routes, SecurityGroup, SecurityGroups, Subnet,
};
use groundcrew_openstack_cloud::OpenStack;

type Done<T> = Result<T, ProviderError>;

/// Clones are the same cloud.
#[derive(Clone, Default)]
pub(crate) struct Cloud {
    /// Without it, asking about the network is a mistake of the test.
    pub(crate) neutron: Option<Arc<OpenStack>>,
    servers: Arc<Mutex<BTreeMap<String, Instance>>>,
    orders: Arc<Mutex<Vec<String>>>,
    refuses: Arc<AtomicBool>,
    down: Arc<AtomicBool>,
}

impl Cloud {
    /// A server that runs.
    pub(crate) fn boot(&self, id: &str) {
        let server = Instance {
            id: id.to_owned(),
            name: format!("server-{id}"),
            state: InstanceState::Running,
            task: None,
            created: None,
            addresses: vec![],
            locked: false,
            fault: None,
            tags: BTreeSet::new(),
            metadata: BTreeMap::new(),
        };
        self.servers.lock().unwrap().insert(id.to_owned(), server);
    }

    /// Whether it refuses to reboot servers from now on.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Whether it answers nobody from now on.
    pub(crate) fn down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    fn up(&self) -> Done<()> {
        let down = self.down.load(Ordering::SeqCst);
        if down { Err(ProviderError::new(ErrorKind::Unavailable, "the cloud is down")) } else { Ok(()) }
    }

    /// What was ordered so far, as `Soft a`, or `no Soft a` where it was refused.
    pub(crate) fn orders(&self) -> Vec<String> {
        self.orders.lock().unwrap().clone()
    }

    /// What is on a server.
    pub(crate) fn tags(&self, id: &str) -> BTreeSet<String> {
        self.servers.lock().unwrap()[id].tags.clone()
    }

    fn neutron(&self) -> &OpenStack {
        self.neutron.as_deref().unwrap()
    }
}

impl Access for Cloud {
    async fn roles(&self) -> Done<BTreeSet<String>> {
        self.up()?;
        match &self.neutron {
            Some(openstack) => openstack.roles().await,
            None => Ok(BTreeSet::from(["member".into()])),
        }
    }
}

impl Instances for Cloud {
    async fn instances(&self) -> Done<Listing<Instance>> {
        self.up()?;
        Ok(Listing::complete(self.servers.lock().unwrap().values().cloned().collect()))
    }

    async fn instance(&self, id: &str) -> Done<Instance> {
        let found = self.servers.lock().unwrap().get(id).cloned();
        found.ok_or_else(|| ProviderError::new(ErrorKind::NotFound, "no such server"))
    }

    async fn instance_groups(&self) -> Done<Listing<InstanceGroup>> {
        Ok(Listing::complete(vec![]))
    }

    async fn reboot(&self, id: &str, how: Reboot, _: &Term) -> Done<()> {
        let refused = self.refuses.load(Ordering::SeqCst);
        self.orders.lock().unwrap().push(format!("{}{how:?} {id}", if refused { "no " } else { "" }));
        if refused { Err(ProviderError::new(ErrorKind::Conflict, "not in this state")) } else { Ok(()) }
    }

    async fn delete_instance(&self, id: &str, _: &Term) -> Done<()> {
        self.orders.lock().unwrap().push(format!("Delete {id}"));
        self.servers.lock().unwrap().remove(id);
        Ok(())
    }

    async fn mark_instance(
        &self,
        id: &str,
        tags: &BTreeSet<String>,
        metadata: &BTreeMap<String, String>,
        _: &Term,
    ) -> Done<()> {
        let mut servers = self.servers.lock().unwrap();
        let server = servers.get_mut(id).unwrap();
        server.tags.extend(tags.iter().cloned());
        server.metadata.extend(metadata.clone());
        Ok(())
    }
}

impl Ports for Cloud {
    async fn ports(&self, networks: &[String]) -> Done<Listing<Port>> {
        self.neutron().ports(networks).await
    }

    async fn port(&self, id: &str) -> Done<Port> {
        self.neutron().port(id).await
    }

    async fn set_port_groups(&self, seen: &Port, groups: &[String], term: &Term) -> Done<Port> {
        self.neutron().set_port_groups(seen, groups, term).await
    }

    async fn set_port_pairs(&self, seen: &Port, pairs: &[AddressPair], term: &Term) -> Done<Port> {
        self.neutron().set_port_pairs(seen, pairs, term).await
    }
}

impl Routes for Cloud {
    async fn subnets(&self) -> Done<Listing<Subnet>> {
        self.neutron().subnets().await
    }

    async fn router(&self, id: &str) -> Done<Router> {
        self.neutron().router(id).await
    }

    async fn route_limit(&self, router: &Router) -> Done<RouteLimit> {
        self.neutron().route_limit(router).await
    }

    async fn single_routes(&self) -> Done<bool> {
        self.neutron().single_routes().await
    }

    async fn add_routes(&self, id: &str, routes: &[Route], term: &Term) -> Done<()> {
        self.neutron().add_routes(id, routes, term).await
    }

    async fn remove_routes(&self, id: &str, routes: &[Route], term: &Term) -> Done<()> {
        self.neutron().remove_routes(id, routes, term).await
    }

    async fn replace_routes(&self, seen: &Router, routes: &[Route], term: &Term) -> Done<()> {
        self.neutron().replace_routes(seen, routes, term).await
    }
}

impl SecurityGroups for Cloud {
    async fn security_groups_named(&self, name: &str) -> Done<Listing<SecurityGroup>> {
        self.neutron().security_groups_named(name).await
    }

    async fn security_group(&self, id: &str) -> Done<SecurityGroup> {
        self.neutron().security_group(id).await
    }

    async fn add_rule(&self, group: &str, rule: &NewRule, term: &Term) -> Done<Option<String>> {
        self.neutron().add_rule(group, rule, term).await
    }

    async fn delete_rule(&self, id: &str, term: &Term) -> Done<()> {
        self.neutron().delete_rule(id, term).await
    }
}
