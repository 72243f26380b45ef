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
    /// `last` is the reading before. What a list that is not whole lacks is there as it was then: half a list must
    /// neither pin an address to a dead node nor hide a node that could take it.
    pub(crate) async fn read(client: &Client, last: Option<&Self>) -> Result<Self, Error> {
        // Before the others: of credentials that are refused, each further request is one more wrong attempt.
        let user = client.user().await?;
        let (ips, subscriptions, servers) = try_join!(client.ips(), client.ip_subscriptions(), client.servers())?;
        // Not every location has it, and it only makes a choice better.
        let hosts = client.availability_groups().await.unwrap_or_default();
        let complete = ips.complete && subscriptions.complete && servers.complete;
        let whole = (ips.complete, subscriptions.complete, servers.complete);
        let mut paid: BTreeMap<IpAddr, Subscription> = BTreeMap::new();
        for subscription in subscriptions.items {
            let address = subscription.subscribed_object.as_deref().and_then(|address| address.parse().ok());
            let Some(address) = address else { continue };
            let known = paid.entry(address).or_insert_with(|| subscription.clone());
            if (subscription.is_active(), subscription.end_time) > (known.is_active(), known.end_time) {
                *known = subscription;
            }
        }
        let mut read = Self {
            user,
            ips: ips.items.into_iter().map(|ip| (ip.address, ip)).collect(),
            subscriptions: paid,
            servers: servers.items.into_iter().map(|server| (server.uuid.clone(), server)).collect(),
            hosts: hosts.into_iter().map(|host| host.into_iter().collect()).collect(),
            complete,
        };
        if let Some(last) = last.filter(|last| last.user == read.user) {
            fill(&mut read.ips, &last.ips, whole.0);
            fill(&mut read.subscriptions, &last.subscriptions, whole.1);
            fill(&mut read.servers, &last.servers, whole.2);
        }
        Ok(read)
    }

    /// The number of the physical host that a server is on, where the cloud tells.
    pub(crate) fn host(&self, server: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.contains(server))
    }
}

/// Adds what only the last reading had, unless the new one is whole.
fn fill<K: Ord + Clone, V: Clone>(read: &mut BTreeMap<K, V>, last: &BTreeMap<K, V>, whole: bool) {
    if !whole {
        for (key, value) in last {
            read.entry(key.clone()).or_insert_with(|| value.clone());
        }
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
    noted: Arc<Mutex<Noted>>,
}

/// What decides between readings that overtake each other.
#[derive(Debug, Default)]
struct Noted {
    /// Addresses that were read by themselves, and when: a listing that began before does not know better.
    ips: BTreeMap<IpAddr, (Moment, Ip)>,
    /// When the last reading began.
    began: Option<Moment>,
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

    /// Reads it all; the last reading stays where that fails. Several may read at once: the one that began last counts.
    pub(crate) async fn refresh(&self, client: &Client) -> Result<Arc<Inventory>, Error> {
        let began = Moment::now();
        let last = self.last();
        let mut read = Inventory::read(client, last.as_deref()).await?;
        let mut noted = self.noted();
        if let (Some(newer), Some(last)) = (noted.began, self.last())
            && newer > began
        {
            return Ok(last);
        }
        noted.began = Some(began);
        noted.ips.retain(|_, (at, _)| *at >= began);
        read.ips.extend(noted.ips.iter().map(|(address, (_, ip))| (*address, ip.clone())));
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
        noted.ips.insert(ip.address, (Moment::now(), ip.clone()));
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

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use groundcrew_testkit::cloudsigma::{CloudSigma, Effect, Fault, Nic, PASSWORD, USER};
    use groundcrew_testkit::eventually;

    use super::*;
    use crate::client::{Config, Credentials, Kind, Secret};

    fn client(cloud: &CloudSigma) -> Client {
        Client::new(Config {
            api: cloud.url().parse().unwrap(),
            credentials: Credentials::Password { user: USER.to_owned(), password: Secret::new(PASSWORD) },
            timeout: Duration::from_secs(30),
            retry_for: Duration::from_mins(1),
        })
        .unwrap()
    }

    #[tokio::test]
    async fn credentials_that_are_refused_are_tried_once_a_reading() {
        let cloud = CloudSigma::start().await.unwrap();
        cloud.accept_password(false);
        let error = Account::default().refresh(&client(&cloud)).await.unwrap_err();
        assert_eq!((error.kind(), cloud.calls().len()), (Kind::Unauthorized, 1));
    }

    #[tokio::test]
    async fn a_reading_that_was_overtaken_by_a_later_one_is_not_believed() {
        let cloud = CloudSigma::start().await.unwrap();
        let client = client(&cloud);
        let account = Account::default();
        // The second reading must end before the first.
        cloud.fault(Fault::on("GET", "servers/detail/", Effect::Late(Duration::from_secs(5))).times(1));
        let slow = tokio::spawn({
            let (account, client) = (account.clone(), client.clone());
            async move { account.refresh(&client).await }
        });
        eventually("the first reading has seen the servers", Duration::from_mins(1), async || {
            let asked = cloud.calls().iter().any(|call| call.path.starts_with("servers/detail/"));
            if asked { Ok(()) } else { Err("not yet") }
        })
        .await
        .unwrap();
        let server = cloud.account(|account| account.add_server("node-1", Nic::Manual));
        account.refresh(&client).await.unwrap();
        let late = slow.await.unwrap().unwrap();
        assert!(account.last().unwrap().servers.contains_key(&server));
        assert!(late.servers.contains_key(&server), "nor by who asked for it");
    }
}
