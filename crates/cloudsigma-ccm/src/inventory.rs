//! What the account has, as it was last read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::try_join;
use groundcrew_core::leader::Moment;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::client::{Client, Error, Ip, Server, Subscription};

/// One reading of the account.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Inventory {
    /// The uuid of the account's user.
    pub(crate) user: String,
    pub(crate) ips: BTreeMap<IpAddr, Ip>,
    /// By the address that is paid for. One with an active subscription and an expired one has the active one here.
    pub(crate) subscriptions: BTreeMap<IpAddr, Subscription>,
    pub(crate) servers: BTreeMap<String, Server>,
    /// Servers that share a physical host.
    pub(crate) hosts: Vec<BTreeSet<String>>,
    /// Whether every list was whole.
    pub(crate) complete: bool,
}

impl Inventory {
    pub(crate) async fn read(client: &Client) -> Result<Self, Error> {
        let (user, ips, subscriptions, servers) =
            try_join!(client.user(), client.ips(), client.ip_subscriptions(), client.servers())?;
        // Not every location has it, and it only makes a choice better.
        let hosts = client.availability_groups().await.unwrap_or_default();
        let complete = ips.complete && subscriptions.complete && servers.complete;
        let mut paid: BTreeMap<IpAddr, Subscription> = BTreeMap::new();
        for subscription in subscriptions.items {
            let address = subscription.subscribed_object.as_deref().and_then(|address| address.parse().ok());
            let Some(address) = address else { continue };
            let known = paid.entry(address).or_insert_with(|| subscription.clone());
            if (subscription.is_active(), subscription.end_time) > (known.is_active(), known.end_time) {
                *known = subscription;
            }
        }
        Ok(Self {
            user,
            ips: ips.items.into_iter().map(|ip| (ip.address, ip)).collect(),
            subscriptions: paid,
            servers: servers.items.into_iter().map(|server| (server.uuid.clone(), server)).collect(),
            hosts: hosts.into_iter().map(|host| host.into_iter().collect()).collect(),
            complete,
        })
    }

    /// The number of the physical host that a server is on, where the cloud tells.
    pub(crate) fn host(&self, server: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.contains(server))
    }
}

impl Subscription {
    pub(crate) fn is_active(&self) -> bool {
        self.status == "active"
    }

    /// Whether it is over: by its status or by the clock, whichever is first. One that renews itself is over only when its
    /// status says so.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        !self.is_active() || (!self.auto_renew && self.end_time.is_some_and(|end| end <= now))
    }
}

/// The last reading, for whoever needs it. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    last: watch::Sender<Option<Arc<Inventory>>>,
    /// Addresses that were read by themselves, and when: a listing that began before does not know better.
    noted: Arc<Mutex<BTreeMap<IpAddr, (Moment, Ip)>>>,
}

impl Default for Account {
    fn default() -> Self {
        Self { last: watch::Sender::new(None), noted: Arc::default() }
    }
}

impl Account {
    pub(crate) fn last(&self) -> Option<Arc<Inventory>> {
        self.last.borrow().clone()
    }

    /// Reads it all; the last reading stays where that fails.
    pub(crate) async fn refresh(&self, client: &Client) -> Result<Arc<Inventory>, Error> {
        let began = Moment::now();
        let mut read = Inventory::read(client).await?;
        let mut noted = self.noted();
        noted.retain(|_, (at, _)| *at >= began);
        read.ips.extend(noted.iter().map(|(address, (_, ip))| (*address, ip.clone())));
        let read = Arc::new(read);
        self.last.send_if_modified(|last| {
            let news = last.as_ref() != Some(&read);
            *last = Some(read.clone());
            news
        });
        Ok(read)
    }

    /// One address was read by itself.
    pub(crate) fn note(&self, ip: &Ip) {
        let mut noted = self.noted();
        noted.insert(ip.address, (Moment::now(), ip.clone()));
        self.last.send_if_modified(|last| {
            let Some(known) = last.as_mut().filter(|known| known.ips.get(&ip.address) != Some(ip)) else {
                return false;
            };
            Arc::make_mut(known).ips.insert(ip.address, ip.clone());
            true
        });
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Option<Arc<Inventory>>> {
        self.last.subscribe()
    }

    fn noted(&self) -> MutexGuard<'_, BTreeMap<IpAddr, (Moment, Ip)>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
