//! Which address a Service has: marks in the account, taken and given back.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::{AddressAsk, Families, Living, Owner};
use jiff::Timestamp;
use tracing::{info, warn};
use uuid::Uuid;

use crate::client::{Client, Edited, Ip, Kind};
use crate::error::Error;
use crate::inventory::{Account, Inventory};
use crate::marks::{self, Mark};
use crate::nodes::Nodes;
use crate::pool::{ANNOTATION, Allowed, Pool, Rules, Unfit, choices, fit};
use crate::write::{leads, under};

/// How long an address that could not be used is not given out.
const SHUNNED: Duration = Duration::from_mins(10);

/// `"true"`: the address stays this cluster's when its Service goes, for one of the same name.
pub(crate) const KEEP: &str = groundcrew_api::names::annotation::KEEP_ADDRESS;

pub(crate) struct Addresses {
    pub(crate) client: Client,
    pub(crate) account: Account,
    pub(crate) cluster: Arc<str>,
    pub(crate) allowed: Vec<Allowed>,
    pub(crate) nodes: Nodes,
    pub(crate) deadline: Duration,
    /// How long after it was written a mark is read once more, and how long a write of one may take: a cluster that was
    /// slower has perhaps written over another that had waited that long already.
    pub(crate) settle: Duration,
    /// How often each cluster reads its account, and thereby puts back a mark that another has written over.
    pub(crate) interval: Duration,
    pub(crate) book: Mutex<Book>,
}

/// What is not in the account's last reading.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Published by Services of this cluster: never given to others, whatever their marks say.
    living: BTreeMap<IpAddr, BTreeSet<Uuid>>,
    /// Being taken at the moment.
    reserved: BTreeSet<IpAddr>,
    /// Marked too late, or perhaps marked, and by whom: another cluster may have them, so that the mark goes.
    doubted: BTreeMap<IpAddr, Uuid>,
    /// Not taken before this: until then another cluster that has one has said so.
    resting: BTreeMap<IpAddr, Moment>,
    /// Not given out before this: a node has it as its own, or another host answers for it.
    shunned: BTreeMap<IpAddr, Moment>,
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
    /// for, or any that is free. Who has one already keeps it although there is none of another family, and why there is none.
    pub(crate) async fn hold(&self, ask: &AddressAsk, term: &Term) -> Result<(Vec<IpAddr>, Option<Error>), Error> {
        let pool = pool(ask)?;
        let (mut held, mut lacking) = (Vec::new(), None);
        for v6 in families(ask.families).iter().copied() {
            let lives = ask.current.is_empty() || ask.current.iter().any(|address| address.is_ipv6() == v6);
            match self.hold_one(ask, pool, v6, term).await {
                Err(error) if !lives => lacking = Some(error),
                one => held.push(one?),
            }
        }
        Ok((held, lacking))
    }

    async fn hold_one(&self, ask: &AddressAsk, pool: Pool, v6: bool, term: &Term) -> Result<IpAddr, Error> {
        let inventory = self.read()?;
        let of_family = |addresses: Vec<IpAddr>| addresses.into_iter().find(|address| address.is_ipv6() == v6);
        let marked = |inventory: &Inventory| {
            let marked = self.marked(inventory, ask.owner.uid).into_iter();
            of_family(marked.filter(|address| !self.book().doubted.contains_key(address)).collect())
        };
        // A living address does not change: what is asked for later says nothing about it.
        if let Some(address) = of_family(ask.current.clone()).or_else(|| marked(&inventory)) {
            return self.claim(address, ask, true, term).await;
        }
        // Or a Service that was marked and not published yet would get a second one.
        let inventory = self.read_whole().await?;
        if let Some(address) = marked(&inventory) {
            return self.claim(address, ask, true, term).await;
        }
        self.give_back_doubted(&ask.owner, term).await?;
        let is_shared = ask.share_families.is_none_or(|shared| families(shared).contains(&v6));
        if let Some(other) = ask.share_with.as_ref().filter(|_| is_shared) {
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
            if self.resting().contains(&address) {
                return Err(Error::Outrun { address });
            }
            let _reserved =
                self.reserve(address, ask.owner.uid).ok_or_else(|| unfit(Unfit::InUse("another Service".into())))?;
            return self.claim(address, ask, false, term).await;
        }
        let (resting, shunned) = (self.resting(), self.shunned());
        let (mut tried, mut late) = (&resting | &shunned, None);
        loop {
            let inventory = self.read()?;
            let taken = &self.taken(ask.owner.uid) | &tried;
            let found = choices(&service, pool, v6, &inventory, &rules, &taken);
            let reserved = found.iter().find_map(|address| self.reserve(*address, ask.owner.uid));
            let Some(reserved) = reserved else {
                let free = choices(&service, pool, v6, &inventory, &rules, &self.taken(ask.owner.uid));
                let perhaps = free.into_iter().find(|address| resting.contains(address) && !shunned.contains(address));
                let why = || self.summary(&service, pool, v6, &inventory, &rules);
                return Err(late
                    .or(perhaps.map(|address| Error::Outrun { address }))
                    .unwrap_or_else(|| Error::PoolEmpty { pool, v6, why: why() }));
            };
            let address = reserved.address;
            match self.claim(address, ask, false, term).await {
                // The account's last reading was too old; it is not any more.
                Err(Error::Outrun { .. } | Error::Unfit { .. }) => {
                    info!(%address, service, "taken by somebody else; trying the next");
                }
                Err(error @ Error::MarkedLate { .. }) => {
                    warn!(%error, service, "trying the next");
                    late = Some(error);
                }
                held => return held,
            }
            tried.insert(address);
        }
    }

    /// Marks the address as this owner's, and believes it only when it was read twice. `had` for one that is the owner's
    /// already, or of who shares it.
    async fn claim(&self, address: IpAddr, ask: &AddressAsk, had: bool, term: &Term) -> Result<IpAddr, Error> {
        let (cluster, owner, keep) = (&*self.cluster, &ask.owner, keeps(ask));
        let mut fresh = false;
        let edit = self.client.edit_meta::<Error>(address, |now| {
            self.account.note(now);
            leads(term)?;
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
        let edited = under(term, self.deadline, edit).await;
        // Whoever serves an address already stands by it.
        let taken = fresh && !ask.current.contains(&address);
        if taken && edited.as_ref().is_err_and(may_be_marked) {
            self.doubt(address, owner);
        }
        let Edited { now: mut ip, took } = edited?;
        if taken && took >= self.settle {
            self.doubt(address, owner);
            self.give_back(address, owner, term).await?;
            return Err(Error::MarkedLate { address, took, settle: self.settle });
        }
        if fresh {
            tokio::time::sleep(self.settle).await;
            ip = self.client.ip(address).await?;
        }
        self.account.note(&ip);
        match self.mark(&ip) {
            Mark::Ours(claim) if claim.owners.contains_key(&owner.uid) => {
                let mut book = self.book();
                book.living.entry(address).or_default().insert(owner.uid);
                book.doubted.remove(&address);
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
            leads(term)?;
            let without = marks::without(&now.meta, &self.cluster, owner);
            let ours = matches!(self.mark(now), Mark::Ours(_));
            Ok((ours && without != now.meta).then_some(without))
        });
        match under(term, self.deadline, edit).await {
            Ok(edited) => self.account.note(&edited.now),
            // It went with its subscription.
            Err(Error::Cloud(error)) if error.kind() == Kind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut book = self.book();
        book.living.entry(address).or_default().remove(&owner.uid);
        book.living.retain(|_, owners| !owners.is_empty());
        Ok(())
    }

    /// Gives back what this owner has marked in doubt, before another is taken. The last reading may be older than the mark.
    async fn give_back_doubted(&self, owner: &Owner, term: &Term) -> Result<(), Error> {
        let doubted = self.book().doubted.clone();
        for (address, _) in doubted.into_iter().filter(|(_, marked_by)| *marked_by == owner.uid) {
            self.give_back(address, owner, term).await?;
        }
        Ok(())
    }

    /// As it was before this owner marked it: kept for nobody either.
    async fn give_back(&self, address: IpAddr, owner: &Owner, term: &Term) -> Result<(), Error> {
        let edit = self.client.edit_meta::<Error>(address, |now| {
            leads(term)?;
            let alone = |claim: &marks::Claim| claim.owners.keys().all(|uid| *uid == owner.uid);
            let given = matches!(self.mark(now), Mark::Ours(claim) if alone(&claim));
            Ok(given.then(|| marks::unmarked(&now.meta)))
        });
        let given = match under(term, self.deadline, edit).await {
            // It went with its subscription.
            Err(Error::Cloud(error)) if error.kind() == Kind::NotFound => return Ok(()),
            given => given?,
        };
        self.account.note(&given.now);
        if !given.took.is_zero() {
            self.doubt(address, owner);
        }
        Ok(())
    }

    fn doubt(&self, address: IpAddr, owner: &Owner) {
        let mut book = self.book();
        book.doubted.insert(address, owner.uid);
        // Whoever has it has read its account by then, and marked it again.
        book.resting.insert(address, Moment::now() + self.interval * 2);
    }

    fn resting(&self) -> BTreeSet<IpAddr> {
        let (mut book, now) = (self.book(), Moment::now());
        book.resting.retain(|_, until| now < *until);
        book.resting.keys().copied().collect()
    }

    /// It could not be used.
    pub(crate) fn shun(&self, address: IpAddr) {
        self.book().shunned.insert(address, Moment::now() + SHUNNED);
    }

    pub(crate) fn shunned(&self) -> BTreeSet<IpAddr> {
        let (mut book, now) = (self.book(), Moment::now());
        book.shunned.retain(|_, until| now < *until);
        book.shunned.keys().copied().collect()
    }

    /// The owner has it no longer, and nobody else has it.
    pub(crate) async fn give_up(&self, address: IpAddr, owner: &Owner, term: &Term) -> Result<(), Error> {
        self.give_back(address, owner, term).await?;
        let mut book = self.book();
        book.living.remove(&address);
        book.doubted.remove(&address);
        Ok(())
    }

    /// The Service is gone with everything that it had.
    pub(crate) fn forget(&self, uid: Uuid) {
        let mut book = self.book();
        book.doubted.retain(|_, marked_by| *marked_by != uid);
        book.living.retain(|_, owners| {
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
        let (taken, shunned) = (self.taken(Uuid::nil()), self.shunned());
        for ip in inventory.ips.values().filter(|ip| ip.address.is_ipv6() == v6) {
            let why = match fit(ip, service, pool, inventory, rules) {
                Ok(()) if taken.contains(&ip.address) => "in use",
                Ok(()) if shunned.contains(&ip.address) => "answered for by other hosts",
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

/// Whether a write that failed may have marked the address all the same, or will.
fn may_be_marked(error: &Error) -> bool {
    match error {
        Error::Cloud(error) => matches!(error.kind(), Kind::Unavailable | Kind::Garbled),
        Error::Kube(error) => error.maybe_applied(),
        _ => false,
    }
}

/// Whether each address that is wanted is IPv6, in order.
pub(crate) fn families(families: Families) -> &'static [bool] {
    match families {
        Families::V4 => &[false],
        Families::V6 => &[true],
        Families::V4V6 => &[false, true],
        Families::V6V4 => &[true, false],
    }
}
