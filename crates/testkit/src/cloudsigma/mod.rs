//! A `CloudSigma` account behind its HTTP API, with the oddities that the real one has.
//!
//! | oddity | where |
//! |---|---|
//! | lists have 20 objects unless `limit=0` asks for all; short views lack what `/detail/` has | `lists` |
//! | errors are an array of objects, or for permissions a single object | `reply` |
//! | a PUT of a running server changes `name`, `meta`, `tags` and drives; the rest is ignored with 200 | `servers` |
//! | NICs are known by their MAC: left out is removed, without one is new, unknown is an error | `servers` |
//! | actions answer 202 and happen later | `servers` |
//! | an address takes a PUT of `meta` alone; there is neither POST nor DELETE | `ips` |
//! | a tag's `resources` are replaced whole; names are not unique | `tags` |
//! | two writes of one object at a time: the second gets 503 `concurrency` | `api` |
//! | an impersonated token is another user's anywhere but on the direct host | `oauth` |
//!
//! What a test wants to go wrong it says with [`Fault`]. There is no optimistic locking here, as there is none there: the
//! last PUT wins.

mod account;
mod api;
mod fault;
mod ips;
mod lists;
mod oauth;
mod reply;
mod serve;
mod servers;
mod tags;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

pub use account::{Account, Nic, OWNER, STRANGER};
pub use fault::{Effect, Fault, Hold};

use crate::command::find_pinned;
use api::State;

/// The account's user.
pub const USER: &str = "ops@example.com";
/// The user's password.
pub const PASSWORD: &str = "not-a-real-password";
/// The service provider's client, for impersonation.
pub const CLIENT_ID: &str = "test-client";
/// The client's secret.
pub const CLIENT_SECRET: &str = "not-a-real-client-secret";

/// A Python that has the package `cloudsigma`, with which users of the real API write their programs.
pub async fn foreign_python() -> Result<PathBuf> {
    Ok(find_pinned("cloudsigma").await?.join("bin/python3"))
}

/// A running simulator. It lives on the runtime of the test that made it.
#[derive(Debug)]
pub struct CloudSigma {
    shared: Shared,
    plain: SocketAddr,
    direct: SocketAddr,
    listeners: [AbortHandle; 2],
}

/// The state that the listeners share.
#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<State>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which of the cloud's two hosts a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    Plain,
    Direct,
}

/// A request that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `GET`, `PUT`.
    pub method: String,
    /// The path without what all have in common, and the query: `ips/detail/?limit=0`.
    pub path: String,
    /// What it was answered with; 0 where nothing was, or is not yet.
    pub status: u16,
}

impl Call {
    /// Whether it would change the account.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.method != "GET"
    }
}

impl CloudSigma {
    /// Starts an empty account.
    pub async fn start() -> Result<Self> {
        let plain = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("bind a port for CloudSigma")?;
        let direct = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("bind a port for CloudSigma")?;
        let (plain_address, direct_address) = (plain.local_addr()?, direct.local_addr()?);
        let shared = Shared(Arc::new(Mutex::new(State::new(plain_address, direct_address))));
        let listeners = [
            tokio::spawn(serve::serve(plain, Host::Plain, shared.clone())).abort_handle(),
            tokio::spawn(serve::serve(direct, Host::Direct, shared.clone())).abort_handle(),
        ];
        Ok(Self { shared, plain: plain_address, direct: direct_address, listeners })
    }

    /// The API's base, for a user with a password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/api/2.0/", self.plain)
    }

    /// The same on the direct host, where impersonated tokens belong.
    #[must_use]
    pub fn direct_url(&self) -> String {
        format!("http://{}/api/2.0/", self.direct)
    }

    /// Where the service provider's tokens come from.
    #[must_use]
    pub fn oauth_url(&self) -> String {
        format!("http://{}/auth", self.plain)
    }

    /// Where it listens, to put a proxy before it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.plain
    }

    /// Looks at the account or changes it, as its owner does in the web console.
    pub fn account<T>(&self, look: impl FnOnce(&mut Account) -> T) -> T {
        look(&mut self.shared.lock().account)
    }

    /// Everything that the account has, to compare with later.
    #[must_use]
    pub fn snapshot(&self) -> Account {
        self.shared.lock().account.clone()
    }

    /// One address as the API shows it.
    #[must_use]
    pub fn ip(&self, address: IpAddr) -> Option<Value> {
        self.shared.lock().account.ip(&address.to_string())
    }

    /// One server as the API shows it.
    #[must_use]
    pub fn server(&self, uuid: &str) -> Option<Value> {
        self.shared.lock().account.server(uuid)
    }

    /// Something goes wrong from now on. Faults are tried in the order in which they were given.
    pub fn fault(&self, fault: Fault) {
        self.shared.lock().faults.push(fault);
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        self.shared.lock().faults.clear();
    }

    /// How long a write takes; while it does, others of the same object are refused with 503.
    pub fn write_time(&self, time: Duration) {
        self.shared.lock().write_time = time;
    }

    /// How long tokens last that are given out from now on.
    pub fn token_life(&self, life: Duration) {
        self.shared.lock().tokens.life = life;
    }

    /// Ends all tokens.
    pub fn revoke_tokens(&self) {
        self.shared.lock().tokens.revoke();
    }

    /// Whether the password is accepted.
    pub fn accept_password(&self, accept: bool) {
        self.shared.lock().password_accepted = accept;
    }

    /// The requests to the API so far, those for tokens not among them.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.lock().calls.clone()
    }

    /// Those that change something.
    #[must_use]
    pub fn writes(&self) -> Vec<Call> {
        self.calls().into_iter().filter(Call::is_write).collect()
    }

    /// How often each kind of token was given out: service account, ticket, impersonation.
    #[must_use]
    pub fn token_counts(&self) -> [usize; 3] {
        self.shared.lock().tokens.given
    }
}

impl Drop for CloudSigma {
    fn drop(&mut self) {
        self.listeners.iter().for_each(AbortHandle::abort);
    }
}
