//! What is really there: servers, ports and the security group. The number of calls does not depend on how many there are.

use std::collections::{BTreeMap, BTreeSet};

use groundcrew_core::provider::{
    Access, Device, ErrorKind, Instance, Instances, Listing, Port, Ports, ProviderError, RouteLimit, Routes,
    SecurityGroup, SecurityGroups, Subnet,
};
use ipnet::IpNet;
use tracing::debug;

use super::fleet::Marks;
use super::nodes::Node;
use super::routes::Table;
use super::settings::{Mode, OwnedBy, Settings};

/// Everything that one look has shown.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// All servers of the project.
    pub instances: Vec<Instance>,
    /// Whether these are all.
    pub complete: bool,
    /// The group of the Nodes, if one is looked after.
    pub group: Option<SecurityGroup>,
    /// The ports on the networks of the Nodes.
    pub ports: Vec<Port>,
    /// Whether there may be more of them.
    pub ports_hidden: bool,
    /// The ranges of the Nodes' subnets that each router is seen to be connected to, by its id. Not told of a single one.
    pub near: BTreeMap<String, Vec<IpNet>>,
    /// How servers show that they are the cluster's.
    pub marks: Marks,
    /// The routers that carry the routes to pods.
    pub tables: Vec<Table>,
    /// The roles that we have in our project, if they are looked at.
    pub roles: Option<BTreeSet<String>>,
    /// The Nodes that probes do not reach, if they could be asked.
    pub unreachable: Option<BTreeSet<String>>,
}

/// Looks at everything once.
pub(crate) async fn observe<C>(cloud: &C, nodes: &[Node], settings: &Settings) -> Result<Observed, ProviderError>
where
    C: Access + Instances + Ports + Routes + SecurityGroups,
{
    let mut seen = Observed { marks: marks(cloud, &settings.owned_by).await?, ..Observed::default() };
    if let Some(name) = &settings.security_group {
        seen.group = Some(group(cloud, name).await?);
    }
    let routers = if settings.routes == Mode::Off { &[][..] } else { &settings.routers };
    let groups = settings.groups != Mode::Off && settings.security_group.is_some();
    if groups || routers.len() > 1 {
        seen.look_at_ports(cloud, nodes).await?;
    }
    for id in routers {
        let router = cloud.router(id).await?;
        let limit = cloud.route_limit(&router).await.unwrap_or_else(|error| {
            debug!(%error, router = id, "the cloud does not tell its limit of routes");
            RouteLimit::Untold
        });
        seen.tables.push(Table { router, limit });
    }
    if !settings.required_roles.is_empty() {
        seen.roles = Some(cloud.roles().await?);
    }
    let Listing { items, complete } = cloud.instances().await?;
    Ok(Observed { instances: items, complete, ..seen })
}

async fn marks<C: Instances>(cloud: &C, owned_by: &OwnedBy) -> Result<Marks, ProviderError> {
    let group = match &owned_by.group {
        None => BTreeSet::new(),
        Some(id) => {
            let groups = cloud.instance_groups().await?.items;
            let found = groups.into_iter().find(|group| group.id == *id);
            found.ok_or_else(|| missing(&format!("no server group {id}; see --owned-server-group")))?.members
        }
    };
    Ok(Marks { tag: owned_by.tag.clone(), metadata: owned_by.metadata.clone(), group })
}

/// By its id, or by a name that only one group has.
async fn group<C: SecurityGroups>(cloud: &C, name: &str) -> Result<SecurityGroup, ProviderError> {
    match only(cloud.security_groups_named(name).await?, name)? {
        Some(group) => Ok(group),
        None => match cloud.security_group(name).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(missing(&format!("no security group has the name or the id {name}; see --security-group")))
            }
            found => found,
        },
    }
}

/// The one of this name, if there is one.
fn only(
    Listing { mut items, complete }: Listing<SecurityGroup>,
    name: &str,
) -> Result<Option<SecurityGroup>, ProviderError> {
    match items.len() {
        0 => Ok(None),
        1 if complete => Ok(items.pop()),
        1 => {
            let told = format!("not all security groups called {name} are shown; give --security-group the id");
            Err(ProviderError::new(ErrorKind::Unavailable, told))
        }
        several => Err(missing(&format!("{several} security groups are called {name}; give --security-group the id"))),
    }
}

impl Observed {
    /// A server may have ports on other networks too, for storage for example: those are not ours to open.
    async fn look_at_ports<C>(&mut self, cloud: &C, nodes: &[Node]) -> Result<(), ProviderError>
    where
        C: Ports + Routes,
    {
        let addresses: Vec<_> = nodes.iter().flat_map(|node| &node.addresses).collect();
        let Listing { mut items, complete } = cloud.subnets().await?;
        items.retain(|subnet| addresses.iter().any(|address| subnet.range.contains(*address)));
        self.ports_hidden = !complete;
        let networks: BTreeSet<_> = items.iter().map(|subnet| subnet.network.clone()).collect();
        if networks.is_empty() {
            return Ok(());
        }
        let ports = cloud.ports(&networks.into_iter().collect::<Vec<_>>()).await?;
        self.ports_hidden |= !ports.complete;
        self.ports = ports.items;
        self.near = near(&self.ports, &items);
        Ok(())
    }
}

/// The ranges that each router is connected to.
fn near(ports: &[Port], subnets: &[Subnet]) -> BTreeMap<String, Vec<IpNet>> {
    let mut near: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for port in ports {
        let Device::Router(router) = &port.device else { continue };
        let own = port.addresses.iter().filter_map(|own| subnets.iter().find(|subnet| subnet.id == own.subnet));
        near.entry(router.clone()).or_default().extend(own.map(|subnet| subnet.range));
    }
    near
}

fn missing(message: &str) -> ProviderError {
    ProviderError::new(ErrorKind::NotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_group_of_a_name_is_the_only_one_in_a_whole_listing_alone() {
        let group = SecurityGroup { id: "g".into(), name: "nodes".into(), rules: vec![] };
        let one = vec![group.clone()];
        assert_eq!(only(Listing::complete(one.clone()), "nodes").unwrap(), Some(group.clone()));
        let half = only(Listing::incomplete(one), "nodes").unwrap_err();
        assert_eq!(half.kind(), ErrorKind::Unavailable);
        assert!(only(Listing::complete(vec![group.clone(), group]), "nodes").is_err());
        assert_eq!(only(Listing::incomplete(vec![]), "nodes").unwrap(), None, "it may be an id");
    }
}
