//! What becomes of an `EIp` that a tenant made, or deletes.

use std::net::IpAddr;

use groundcrew_core::provider::ProviderError;

use super::super::eip::{EipKey, Seen, Trouble, Whose, Wish};
use super::super::pool::Family;
use super::{Book, Need};
use crate::error::Error;

/// How many users a message names: a condition has only so much room.
const MOST_NAMED: usize = 10;

/// What there is to do for a tenant's own `EIp`.
#[derive(Debug)]
pub(crate) enum Care {
    /// It is not ours to serve, or goes and stays with its Services.
    None,
    /// It says what it should as soon as that is written.
    Settled,
    /// It is being deleted, and somebody uses it still.
    InUse,
    /// Whoever gives out addresses is asked, and what it gives is entered.
    Needs(Need),
}

impl Book {
    /// Looks at a tenant's own, or at one that was made for a Service and that somebody deletes. One that is being deleted
    /// waits for its users, and says so. `doubt` is what is wrong with the address that it has.
    pub(crate) fn attend(
        &mut self,
        key: &EipKey,
        default_type: Option<&str>,
        doubt: Option<Trouble>,
    ) -> Result<Care, Error> {
        let Some((holding, seen)) = self.attended(key) else { return Ok(Care::None) };
        if seen.deleting {
            let users = users(&holding.should);
            if users.is_empty() {
                self.tell(key, None);
                return Ok(Care::Settled);
            }
            let (named, more) = users.split_at(users.len().min(MOST_NAMED));
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            let named = named.join(", ");
            let message = format!("is deleted as soon as nobody uses it any more; it is used by {named}{more}");
            self.tell(key, Some(Trouble { reason: "InUse".into(), message: message.into() }));
            return Ok(Care::InUse);
        }
        if holding.should.address.is_some() {
            self.tell(key, doubt);
            return Ok(Care::Settled);
        }
        let wish = seen.wish.as_deref().cloned().unwrap_or_default();
        self.need(key, &wish, default_type).map(Care::Needs)
    }

    fn need(&self, key: &EipKey, wish: &Wish, default_type: Option<&str>) -> Result<Need, Error> {
        if let Some(child) = &wish.child_ref {
            return Err(Error::ChildRef { child: child.to_string() });
        }
        let requested = match &wish.requested {
            None => None,
            Some(text) => match text.trim().parse::<IpAddr>() {
                Ok(address) => Some(address),
                Err(_) => return Err(Error::OddRequest { text: text.to_string() }),
            },
        };
        let network_type = wish.network_type.as_deref().or(default_type);
        // One address, so one family: IPv4 wherever there is any.
        let has_v4 = || self.pools.values().any(|p| p.serves(&key.namespace, network_type) && p.has(Family::V4));
        let has_v6 = || self.pools.values().any(|p| p.serves(&key.namespace, network_type) && p.has(Family::V6));
        let family = match requested {
            Some(address) => Family::of(address),
            None if !has_v4() && has_v6() => Family::V6,
            None => Family::V4,
        };
        Ok(Need { eip: key.clone(), family, network_type: network_type.map(Into::into), requested })
    }

    /// The address that was found for a tenant's own. It is his from here on.
    pub(crate) fn enter(&mut self, key: &EipKey, address: IpAddr, pool: std::sync::Arc<str>) {
        self.change(key, |holding| {
            holding.should.address = Some(address);
            holding.should.pool = pool;
            holding.should.trouble = None;
        });
    }

    /// Why there is none, in words for the tenant.
    pub(crate) fn refuse(&mut self, key: &EipKey, error: &ProviderError) {
        let trouble = Trouble { reason: error.response().reason.into(), message: error.to_string().into() };
        self.tell(key, Some(trouble));
    }

    /// What is wrong with it, as its status should say.
    pub(crate) fn trouble(&self, key: &EipKey) -> Option<&Trouble> {
        self.holdings.get(key)?.should.trouble.as_deref()
    }

    /// Those that a new term has to look at.
    pub(crate) fn to_attend(&self) -> Vec<EipKey> {
        self.holdings.keys().filter(|key| self.is_attended(key)).cloned().collect()
    }

    pub(crate) fn is_attended(&self, key: &EipKey) -> bool {
        self.attended(key).is_some()
    }

    pub(crate) fn is_tenants(&self, key: &EipKey) -> bool {
        self.tenants_own(key).is_some()
    }

    /// Whether this one names that `OvnEip` as its child.
    pub(crate) fn has_child(&self, key: &EipKey, name: &str) -> bool {
        let seen = self.holdings.get(key).and_then(|holding| holding.stored.as_ref());
        let wish = seen.and_then(|seen| seen.wish.as_deref());
        wish.is_some_and(|wish| wish.child_ref.as_deref() == Some(name))
    }

    fn attended(&self, key: &EipKey) -> Option<(&super::Holding, &Seen)> {
        self.tenants_own(key).or_else(|| {
            let holding: &super::Holding = self.holdings.get(key)?;
            // One that its Services have left is on its way out by our own hand.
            let is_torn = holding.made_for().is_some() && holding.is_known_in_use();
            Some((holding, holding.stored.as_ref()?)).filter(|(_, seen)| is_torn && seen.deleting)
        })
    }

    fn tenants_own(&self, key: &EipKey) -> Option<(&super::Holding, &Seen)> {
        let holding: &super::Holding = self.holdings.get(key)?;
        let seen = holding.stored.as_ref()?;
        let ours = match holding.whose {
            // A tenant can write our marks himself: they give no right to an address.
            Whose::Tenant => self.serve_eips || holding.should.address.is_some() || seen.deleting,
            Whose::Nobody => self.serve_eips,
            Whose::Service(_) | Whose::Other => false,
        };
        ours.then_some((holding, seen))
    }

    fn tell(&mut self, key: &EipKey, trouble: Option<Trouble>) {
        self.change(key, |holding| holding.should.trouble = trouble.map(Box::new));
    }
}

fn users(says: &super::super::eip::Says) -> Vec<String> {
    let services = says.services.iter().map(|name| format!("Service {name}"));
    services.chain(says.others.iter().map(|owner| format!("{} {}", owner.kind, owner.owner_ref))).collect()
}
