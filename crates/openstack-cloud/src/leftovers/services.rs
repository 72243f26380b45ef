//! What the cloud controller manager leaves: load balancers, floating IPs and their security groups.

use std::collections::BTreeSet;

use groundcrew_core::leader::Term;
use groundcrew_core::provider::{
    Leftover, LeftoverClass, LeftoverKind, Leftovers, Listing, Named, Presence, ProviderError, User,
};
use openstack_client::load_balancer::LoadBalancer;
use openstack_client::network::{FloatingIp, PortUpdate, SecurityGroup};
use openstack_client::{Error, Kind};

use super::marks;
use super::{Absent, in_use, not_ours};
use crate::OpenStack;
use crate::error::told;
use crate::listing::translate;

const LOAD_BALANCER: LeftoverKind = LeftoverKind { name: "octavia-load-balancer", class: LeftoverClass::LoadBalancer };
const FLOATING_IP: LeftoverKind = LeftoverKind { name: "neutron-floating-ip", class: LeftoverClass::FloatingIp };
const GROUP: LeftoverKind = LeftoverKind { name: "neutron-security-group", class: LeftoverClass::SecurityGroup };

/// What carries this `--cluster-name` of the cloud controller manager.
pub struct ServiceLeftovers {
    /// The project.
    pub cloud: OpenStack,
    /// The name.
    pub cluster: String,
    /// What the cloud does not have.
    pub absent: Vec<Absent>,
}

impl ServiceLeftovers {
    fn balancer(&self, balancer: LoadBalancer) -> Option<Leftover> {
        let made_for = marks::load_balancer(&balancer, &self.cluster);
        let (lent, others) = marks::tags(&balancer, &self.cluster);
        let about = match (&made_for, lent.first()) {
            (Some(user), _) => format!("made for {user}"),
            (None, Some(key)) => format!("lent to Service {key}"),
            (None, None) => return None,
        };
        let doubt = match (made_for.is_some(), others.first()) {
            (false, _) => Some("another made it; only a tag on it is this cluster's".to_owned()),
            (true, Some(other)) => Some(format!("others use it too: {other}")),
            (true, None) => marks::doubt(&self.cluster),
        };
        // One that several share is in use as long as one of them lives.
        let users: BTreeSet<_> = made_for.into_iter().chain(lent.into_iter().map(User::Service)).collect();
        let about = format!("{about}, {}", balancer.provisioning_status);
        let verb = if doubt.is_some() { "show" } else { "delete --cascade" };
        Some(Leftover {
            kind: LOAD_BALANCER,
            command: format!("openstack loadbalancer {verb} {}", balancer.id),
            id: balancer.id,
            name: balancer.name,
            about,
            gib: None,
            users: users.into_iter().collect(),
            created: None,
            doubt,
            kept: false,
        })
    }

    fn address(&self, address: FloatingIp) -> Option<Leftover> {
        let user = marks::floating_ip(&address, &self.cluster)?;
        Some(self.plain(FLOATING_IP, "floating ip", address.id, address.floating_ip_address.to_string(), user))
    }

    fn group(&self, group: SecurityGroup) -> Option<Leftover> {
        let user = marks::security_group(&group, &self.cluster)?;
        Some(self.plain(GROUP, "security group", group.id, group.name, user))
    }

    fn plain(&self, kind: LeftoverKind, noun: &str, id: String, name: String, user: User) -> Leftover {
        let doubt = marks::doubt(&self.cluster);
        let command = format!("openstack {noun} {} {id}", if doubt.is_some() { "show" } else { "delete" });
        let about = format!("made for {user}");
        Leftover { kind, id, name, about, gib: None, users: vec![user], created: None, doubt, kept: false, command }
    }

    /// Whether it is still what was found: ours, for the same users, and without doubt.
    fn check(leftover: &Leftover, now: Option<Leftover>) -> Result<(), ProviderError> {
        match now {
            Some(now) if now.doubt.is_some() => Err(in_use(now.doubt.unwrap_or_default())),
            Some(now) if now.users == leftover.users => Ok(()),
            _ => Err(not_ours(leftover)),
        }
    }

    async fn remove_balancer(&self, leftover: &Leftover, term: &Term) -> Result<(), ProviderError> {
        let octavia = self.cloud.client.load_balancers();
        let Some(balancer) = there(octavia.get(&leftover.id).await)? else { return Ok(()) };
        if balancer.provisioning_status == "PENDING_DELETE" {
            return Ok(());
        }
        if balancer.is_pending() {
            let (id, state) = (&balancer.id, &balancer.provisioning_status);
            return Err(in_use(format!("load balancer {id} is {state}; Octavia changes nothing until that ends")));
        }
        Self::check(leftover, self.balancer(balancer))?;
        self.cloud.write(term, octavia.delete_cascade(&leftover.id)).await
    }

    async fn remove_address(&self, leftover: &Leftover, term: &Term) -> Result<(), ProviderError> {
        let neutron = self.cloud.client.network();
        let Some(address) = there(neutron.floating_ip(&leftover.id).await)? else { return Ok(()) };
        // That of a load balancer loses it with the load balancer; whoever has one now is somebody else.
        if let Some(port) = &address.port_id {
            return Err(in_use(format!("floating IP {} leads to port {port}", address.floating_ip_address)));
        }
        Self::check(leftover, self.address(address))?;
        self.cloud.write(term, neutron.delete_floating_ip(&leftover.id)).await
    }

    /// The controller puts its groups on the ports of Nodes, and a group that is in use does not go.
    async fn remove_group(&self, leftover: &Leftover, term: &Term) -> Result<(), ProviderError> {
        let neutron = self.cloud.client.network();
        let Some(group) = there(neutron.security_group(&leftover.id).await)? else { return Ok(()) };
        Self::check(leftover, self.group(group))?;
        let users = neutron.ports(&[("security_groups", &leftover.id)]).await.map_err(told)?;
        for port in users.complete().map_err(told)? {
            let Some(groups) = port.security_groups.filter(|groups| groups.contains(&leftover.id)) else { continue };
            let rest = groups.into_iter().filter(|group| *group != leftover.id).collect();
            let change = PortUpdate { security_groups: Some(rest), ..PortUpdate::default() };
            self.cloud.write(term, neutron.update_port(&port.id, &change, port.revision_number)).await?;
        }
        self.cloud.write(term, neutron.delete_security_group(&leftover.id)).await
    }
}

impl Leftovers for ServiceLeftovers {
    fn kinds(&self) -> &'static [LeftoverKind] {
        &[LOAD_BALANCER, FLOATING_IP, GROUP]
    }

    async fn find(&self) -> Result<Listing<Leftover>, ProviderError> {
        let (octavia, neutron) = (self.cloud.client.load_balancers(), self.cloud.client.network());
        // Whoever has two things in turn is shown neither if it moves from the second list to the first meanwhile; marks
        // do not move.
        let balancers = async {
            if self.absent.contains(&Absent::LoadBalancers) {
                return Ok(openstack_client::Listing { items: Vec::new(), gaps: Vec::new() });
            }
            octavia.list(&[]).await
        };
        let (balancers, addresses, groups) =
            futures::try_join!(balancers, neutron.floating_ips(&[]), neutron.security_groups(&[])).map_err(told)?;
        let balancers = translate("load balancers", balancers, Ok::<_, String>);
        let addresses = translate("floating IPs", addresses, Ok::<_, String>);
        let groups = translate("security groups", groups, Ok::<_, String>);
        let complete = balancers.complete && addresses.complete && groups.complete;
        let mut items: Vec<_> = balancers.items.into_iter().filter_map(|one| self.balancer(one)).collect();
        items.extend(addresses.items.into_iter().filter_map(|one| self.address(one)));
        items.extend(groups.items.into_iter().filter_map(|one| self.group(one)));
        Ok(Listing { items, complete })
    }

    async fn presence(&self, named: &Named) -> Result<Presence, ProviderError> {
        let Named::LoadBalancer { class: None, service, id } = named else { return Ok(Presence::Unknown) };
        if self.absent.contains(&Absent::LoadBalancers) {
            return Ok(Presence::Gone);
        }
        let octavia = self.cloud.client.load_balancers();
        if let Some(id) = id
            && there(octavia.get(id).await)?.is_some()
        {
            return Ok(Presence::There);
        }
        let name = marks::service_name(&self.cluster, service);
        let namesakes = octavia.list(&[("name", &name)]).await.map_err(told)?.complete().map_err(told)?;
        Ok(if namesakes.iter().any(|one| one.name == name) { Presence::There } else { Presence::Gone })
    }

    async fn remove(&self, leftover: &Leftover, term: &Term) -> Result<(), ProviderError> {
        match leftover.kind {
            LOAD_BALANCER => self.remove_balancer(leftover, term).await,
            FLOATING_IP => self.remove_address(leftover, term).await,
            _ => self.remove_group(leftover, term).await,
        }
    }
}

/// `None` of what the service itself says is gone.
pub(super) fn there<T>(read: Result<T, Error>) -> Result<Option<T>, ProviderError> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(told(error)),
    }
}
