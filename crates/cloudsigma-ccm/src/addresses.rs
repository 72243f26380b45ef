//! Which address a Service has: marks in the account, taken and given back.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use groundcrew_core::leader::Term;
use groundcrew_core::provider::{AddressAsk, Families, Living, Owner};
use jiff::Timestamp;
use tracing::{info, warn};
use uuid::Uuid;

use crate::client::{Client, Ip};
use crate::error::Error;
use crate::inventory::{Account, Inventory};
use crate::marks::{self, Mark};
use crate::nodes::Nodes;
use crate::pool::{ANNOTATION, Allowed, Pool, Rules, Unfit, choices, fit};
use crate::write::under;

/// `"true"`: the address stays this cluster's when its Service goes, for one of the same name.
pub(crate) const KEEP: &str = "groundcrew.dev/keep-address";

pub(crate) struct Addresses {
    pub(crate) client: Client,
    pub(crate) account: Account,
    pub(crate) cluster: Arc<str>,
    pub(crate) allowed: Vec<Allowed>,
    pub(crate) nodes: Nodes,
    pub(crate) deadline: Duration,
    /// How long after it was written a mark is read once more: longer than another cluster's write can be on its way that
    /// was decided on before.
    pub(crate) settle: Duration,
    pub(crate) book: Mutex<Book>,
}

/// What is not in the account's last reading.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Published by Services of this cluster: never given to others, whatever their marks say.
    living: BTreeMap<IpAddr, BTreeSet<Uuid>>,
    /// Being taken at the moment.
    reserved: BTreeSet<IpAddr>,
}

/// Given back when it is dropped.
struct Reserved<'a> {
    addresses: &'a Addresses,
    address: IpAddr,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.addresses.book().reserved.remove(&self.address);
    }
}

/// The pool that a Service asks for.
pub(crate) fn pool(ask: &AddressAsk) -> Result<Pool, Error> {
    ask.annotations.get(ANNOTATION).map_or(Ok(Pool::default()), |name| name.parse().map_err(Error::Wish))
}

pub(crate) fn keeps(ask: &AddressAsk) -> bool {
    ask.annotations.get(KEEP).is_some_and(|value| **value == *"true")
}

impl Addresses {
    pub(crate) fn read(&self) -> Result<Arc<Inventory>, Error> {
        self.account.last().ok_or(Error::NotRead)
    }

    /// The account with everything in it: half of it might lack what is looked for.
    pub(crate) async fn read_whole(&self) -> Result<Arc<Inventory>, Error> {
        let last = self.read()?;
        let last = if last.complete { last } else { self.account.refresh(&self.client).await? };
        if last.complete { Ok(last) } else { Err(Error::ReadInPart) }
    }

    /// Imports what is published before anything is given out.
    pub(crate) async fn begin(&self, living: &[Living]) -> Result<(), Error> {
        self.account.refresh(&self.client).await?;
        let mut book = self.book();
        book.living.clear();
        for Living { owner, addresses } in living {
            for address in addresses {
                book.living.entry(*address).or_default().insert(owner.uid);
            }
        }
        Ok(())
    }

    /// The addresses that carry this owner's mark.
    pub(crate) fn marked(&self, inventory: &Inventory, uid: Uuid) -> Vec<IpAddr> {
        let has = |ip: &&Ip| matches!(self.mark(ip), Mark::Ours(claim) if claim.owners.contains_key(&uid));
        inventory.ips.values().filter(has).map(|ip| ip.address).collect()
    }

    pub(crate) fn mark(&self, ip: &Ip) -> Mark {
        marks::read(&ip.meta, &self.cluster)
    }

    /// Holds an address of each family: the one that is published or marked, the one that is shared, the one that was asked
    /// for, or any that is free.
    pub(crate) async fn hold(&self, ask: &AddressAsk, term: &Term) -> Result<Vec<IpAddr>, Error> {
        let pool = pool(ask)?;
        let mut held = Vec::new();
        for v6 in families(ask.families).iter().copied() {
            held.push(self.hold_one(ask, pool, v6, term).await?);
        }
        Ok(held)
    }

    async fn hold_one(&self, ask: &AddressAsk, pool: Pool, v6: bool, term: &Term) -> Result<IpAddr, Error> {
        let inventory = self.read()?;
        let of_family = |addresses: Vec<IpAddr>| addresses.into_iter().find(|address| address.is_ipv6() == v6);
        // A living address does not change: what is asked for later says nothing about it.
        let had = of_family(ask.current.clone()).or_else(|| of_family(self.marked(&inventory, ask.owner.uid)));
        if let Some(address) = had {
            return self.claim(address, ask, true, term).await;
        }
        // Or a Service that was marked and not published yet would get a second one.
        let inventory = self.read_whole().await?;
        if let Some(address) = of_family(self.marked(&inventory, ask.owner.uid)) {
            return self.claim(address, ask, true, term).await;
        }
        if let Some(other) = &ask.share_with {
            let theirs = of_family(self.marked(&inventory, other.uid));
            let address = theirs.ok_or_else(|| Error::NothingToShare { with: other.key.to_string() })?;
            return self.claim(address, ask, true, term).await;
        }
        let nodes = self.nodes.addresses();
        let rules = Rules { cluster: &self.cluster, allowed: &self.allowed, nodes: &nodes, now: Timestamp::now() };
        let service = ask.owner.key.to_string();
        if let Some(address) = of_family(ask.requested.clone()) {
            let unfit = |why| Error::Unfit { address, why };
            let ip = inventory.ips.get(&address).ok_or_else(|| unfit(Unfit::Unknown))?;
            fit(ip, &service, pool, &inventory, &rules).map_err(unfit)?;
            let _reserved =
                self.reserve(address, ask.owner.uid).ok_or_else(|| unfit(Unfit::InUse("another Service".into())))?;
            return self.claim(address, ask, false, term).await;
        }
        let mut tried = BTreeSet::new();
        loop {
            let inventory = self.read()?;
            let taken = &self.taken(ask.owner.uid) | &tried;
            let found = choices(&service, pool, v6, &inventory, &rules, &taken);
            let reserved = found.iter().find_map(|address| self.reserve(*address, ask.owner.uid));
            let Some(reserved) = reserved else {
                return Err(Error::PoolEmpty { pool, why: self.summary(&service, pool, v6, &inventory, &rules) });
            };
            match self.claim(reserved.address, ask, false, term).await {
                // The account's last reading was too old; it is not any more.
                Err(Error::Outrun { address } | Error::Unfit { address, .. }) => {
                    info!(%address, service, "taken by somebody else; trying the next");
                    tried.insert(address);
                }
                held => return held,
            }
        }
    }

    /// Marks the address as this owner's, and believes it only when it was read twice. `had` for one that is the owner's
    /// already, or of who shares it.
    async fn claim(&self, address: IpAddr, ask: &AddressAsk, had: bool, term: &Term) -> Result<IpAddr, Error> {
        let (cluster, owner, keep) = (&*self.cluster, &ask.owner, keeps(ask));
        let mut fresh = false;
        let edit = self.client.edit_meta::<Error>(address, |now| {
            self.account.note(now);
            let unfit = |why| Err(Error::Unfit { address, why });
            match marks::read(&now.meta, cluster) {
                Mark::Foreign(cluster) => return unfit(Unfit::OtherCluster(cluster)),
                Mark::Ours(claim) => match claim.owners.values().next() {
                    _ if claim.owners.contains_key(&owner.uid) && claim.keeps_as(owner, keep) => return Ok(None),
                    Some(holder) if !had => return unfit(Unfit::InUse(holder.to_string())),
                    _ => {}
                },
                Mark::None => fresh = true,
            }
            Ok(Some(marks::with(&now.meta, cluster, owner, keep)))
        });
        let mut ip = under(term, self.deadline, edit).await?;
        if fresh {
            tokio::time::sleep(self.settle).await;
            ip = self.client.ip(address).await?;
        }
        self.account.note(&ip);
        match self.mark(&ip) {
            Mark::Ours(claim) if claim.owners.contains_key(&owner.uid) => {
                self.book().living.entry(address).or_default().insert(owner.uid);
                Ok(address)
            }
            mark => {
                warn!(%address, %owner, ?mark, "another writer was quicker");
                Err(Error::Outrun { address })
            }
        }
    }

    /// Takes the owner's mark from an address. Nothing is left that could answer on it by then.
    pub(crate) async fn unmark(&self, address: IpAddr, owner: &Owner, term: &Term) -> Result<(), Error> {
        let edit = self.client.edit_meta::<Error>(address, |now| {
            let without = marks::without(&now.meta, &self.cluster, owner);
            let ours = matches!(self.mark(now), Mark::Ours(_));
            Ok((ours && without != now.meta).then_some(without))
        });
        match under(term, self.deadline, edit).await {
            Ok(ip) => self.account.note(&ip),
            // It went with its subscription.
            Err(Error::Cloud(error)) if error.kind() == crate::client::Kind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The Service is gone with everything that it had.
    pub(crate) fn forget(&self, uid: Uuid) {
        self.book().living.retain(|_, owners| {
            owners.remove(&uid);
            !owners.is_empty()
        });
    }

    fn reserve(&self, address: IpAddr, uid: Uuid) -> Option<Reserved<'_>> {
        let mut book = self.book();
        let free =
            book.living.get(&address).is_none_or(|owners| owners.contains(&uid)) && book.reserved.insert(address);
        free.then_some(Reserved { addresses: self, address })
    }

    fn taken(&self, uid: Uuid) -> BTreeSet<IpAddr> {
        let book = self.book();
        let living = book.living.iter().filter(|(_, owners)| !owners.contains(&uid)).map(|(address, _)| *address);
        living.chain(book.reserved.iter().copied()).collect()
    }

    /// Why nothing is free, by count.
    fn summary(&self, service: &str, pool: Pool, v6: bool, inventory: &Inventory, rules: &Rules<'_>) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let taken = self.taken(Uuid::nil());
        for ip in inventory.ips.values().filter(|ip| ip.address.is_ipv6() == v6) {
            let why = match fit(ip, service, pool, inventory, rules) {
                Ok(()) if taken.contains(&ip.address) => "in use",
                // Tried, and not had.
                Ok(()) => "of others at this moment",
                Err(Unfit::Unknown) => continue,
                Err(Unfit::Shared) => "of another account",
                Err(Unfit::NotSubscribed | Unfit::Subscribed) => "of the other pool",
                Err(Unfit::Expired) => "expired",
                Err(Unfit::OnServer(_) | Unfit::NodeAddress) => "on servers",
                Err(Unfit::NotAllowed) => "not allowed",
                Err(Unfit::OtherCluster(_)) => "of other clusters",
                Err(Unfit::InUse(_)) => "in use",
            };
            *counts.entry(why).or_default() += 1;
        }
        if counts.is_empty() {
            return "the account has none; buy a subscription".to_owned();
        }
        counts.iter().map(|(why, count)| format!("{count} {why}")).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether each address that is wanted is IPv6, in order.
fn families(families: Families) -> &'static [bool] {
    match families {
        Families::V4 => &[false],
        Families::V6 => &[true],
        Families::V4V6 => &[false, true],
        Families::V6V4 => &[true, false],
    }
}
