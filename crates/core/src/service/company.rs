//! With whom a Service is on an address: by what they say, and by what the provider knows.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::object::{Group, Service};
use super::reconcile::Reconciler;
use crate::provider::{LoadBalancers, Owner};

impl<P: LoadBalancers> Reconciler<P> {
    /// The addresses that it has published, and keeps: also where a write of the whole Service took our claim off.
    pub(super) fn published(&self, service: &Service) -> Vec<IpAddr> {
        let claimed = self.class.addresses(service);
        if !claimed.is_empty() || !self.class.serves(service) {
            return claimed;
        }
        let ingress = service.ingress.iter().map(|ingress| ingress.address);
        ingress.filter(|address| self.provider.holds(&service.owner, *address)).collect()
    }

    /// With whom it shares its address, or is to.
    pub(super) fn group(&self, service: &Service) -> Vec<Arc<Service>> {
        let mut group = self.cache.group(service);
        let mut named = None;
        if let Some(Group::Named(name)) = &service.group {
            // Who was served before it named the address is elsewhere, and stays there.
            let is_on = |member: &Service| member.ingress.is_empty() || self.provider.is_on(&member.owner, name);
            group.retain(|member| is_on(service) && is_on(member));
            named = Some(&**name).filter(|_| is_on(service));
        }
        // Those as well who do not say so any more. Nearly always all are on the address of the first that is asked for.
        let mut seen: HashSet<Owner> = HashSet::new();
        let mut near = self.near(service, service, named, &mut seen);
        for member in &group {
            if !seen.contains(&member.owner) && !member.ingress.is_empty() {
                near.extend(self.near(service, member, None, &mut seen));
            }
        }
        let members: HashSet<Owner> = group.iter().map(|member| member.owner.clone()).collect();
        group.extend(near.into_iter().filter(|near| !members.contains(&near.owner)));
        group
    }

    /// Who has published an address together with `member`, and with the Service itself if that has published any.
    fn near(
        &self,
        service: &Service,
        member: &Service,
        named: Option<&str>,
        seen: &mut HashSet<Owner>,
    ) -> Vec<Arc<Service>> {
        let beside = self.provider.beside(&member.owner, named).services.into_iter();
        let new: Vec<_> = beside.filter(|owner| seen.insert(owner.clone())).collect();
        let present = new.iter().filter_map(|owner| self.cache.service(&owner.key).filter(|near| near.owner == *owner));
        let is_near = |near: &Arc<Service>| {
            let meets = |one: &Service| {
                near.ingress.iter().any(|ours| one.ingress.iter().any(|theirs| ours.address == theirs.address))
            };
            match (service.ingress.is_empty(), member.ingress.is_empty()) {
                (false, _) => meets(service),
                (true, false) => meets(member),
                (true, true) => !near.ingress.is_empty(),
            }
        };
        present.filter(is_near).collect()
    }
}
