//! The CloudSigma API as it really behaves: which calls, and what may be believed of their answers.
//!
//! There is no optimistic locking: the last PUT wins. So whatever is changed is read just before, written only if it is
//! not right already, and read again afterwards; what the answer to a PUT says is not believed.

mod auth;
mod endpoint;
mod error;
mod http;
mod objects;
mod secret;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use groundcrew_core::leader::Moment;
use groundcrew_core::provider::Listing;
use reqwest::{Method, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::{debug, warn};

pub use auth::Credentials;
pub use endpoint::{endpoint, known_endpoint};
pub use error::{Error, Kind};
pub(crate) use http::outside;
pub use objects::{Conf, Ip, Meta, Nic, Server, Subscription, Tag};
pub use secret::Secret;

use auth::Auth;
use http::{Call, Http};

/// How often a write is built anew because another one was under way.
const ATTEMPTS: usize = 5;

/// Where to find the API, and as whom.
#[derive(Debug, Clone)]
pub struct Config {
    /// As `https://zrh.cloudsigma.com/api/2.0/`. For impersonation, that of the direct host.
    pub api: Url,
    /// As whom.
    pub credentials: Credentials,
    /// For one attempt of a request.
    pub timeout: Duration,
    /// For how long a read is tried again.
    pub retry_for: Duration,
}

/// An object that was changed, or was right already.
#[derive(Debug, Clone, PartialEq)]
pub struct Edited<T> {
    /// As it was read afterwards: perhaps another writer's work.
    pub now: T,
    /// From the reading on which the change was built to the answer to the write. Somebody else's write of that time is lost.
    /// Zero where nothing was written.
    pub took: Duration,
}

/// Calls of one account. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    api: Url,
    http: Http,
    auth: Auth,
    /// What was read longer ago is not written back.
    stale: Duration,
    /// Who changes an object, by path. One at a time: each write is of a whole, and the last one wins.
    writers: Mutex<BTreeMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

#[derive(Deserialize)]
struct Page {
    meta: PageMeta,
    objects: Vec<Value>,
}

#[derive(Deserialize)]
struct PageMeta {
    total_count: usize,
}

impl Client {
    /// A client; nothing is asked yet.
    pub fn new(config: Config) -> Result<Self, Error> {
        let http = Http::new(config.timeout, config.retry_for)?;
        let auth = Auth::new(config.credentials, &config.api)?;
        // A request may take long; a process that was stopped in the middle of one takes longer.
        let stale = config.timeout / 2;
        Ok(Self(Arc::new(Inner { api: config.api, http, auth, stale, writers: Mutex::default() })))
    }

    /// The uuid of the user whose account it is.
    pub async fn user(&self) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Profile {
            uuid: String,
        }
        Ok(self.get::<Profile>("profile/").await?.uuid)
    }

    /// All addresses: the account's own, those that DHCP gave to its servers, and those that others share with it.
    pub async fn ips(&self) -> Result<Listing<Ip>, Error> {
        self.list("ips/detail/").await
    }

    /// One address.
    pub async fn ip(&self, address: IpAddr) -> Result<Ip, Error> {
        self.get(&format!("ips/{address}/")).await
    }

    /// Changes an address's `meta` as `edit` says, which gets it as it is now; `None` leaves it.
    pub async fn edit_meta<E: From<Error>>(
        &self,
        address: IpAddr,
        mut edit: impl FnMut(&Ip) -> Result<Option<Meta>, E>,
    ) -> Result<Edited<Ip>, E> {
        self.edit(&format!("ips/{address}/"), |now| Ok(edit(now)?.map(|meta| json!({ "meta": meta })))).await
    }

    /// What is paid for, of addresses.
    pub async fn ip_subscriptions(&self) -> Result<Listing<Subscription>, Error> {
        self.list("subscriptions/?resource=ip").await
    }

    /// All servers.
    pub async fn servers(&self) -> Result<Listing<Server>, Error> {
        self.list("servers/detail/").await
    }

    /// One server.
    pub async fn server(&self, uuid: &str) -> Result<Server, Error> {
        self.get(&format!("servers/{uuid}/")).await
    }

    /// Changes a server as `edit` says, which gets it as it is now; `None` leaves it. A running one may have ignored
    /// everything.
    pub async fn edit_server<E: From<Error>>(
        &self,
        uuid: &str,
        edit: impl FnMut(&Server) -> Result<Option<Value>, E>,
    ) -> Result<Edited<Server>, E> {
        self.edit(&format!("servers/{uuid}/"), edit).await
    }

    /// Cuts a server's power. Accepted is not done.
    pub async fn stop_server(&self, uuid: &str) -> Result<(), Error> {
        self.send(Method::POST, &format!("servers/{uuid}/action/?do=stop"), Some(&json!({}))).await.map(drop)
    }

    /// Uuids of running servers that share a physical host, one list a host.
    pub async fn availability_groups(&self) -> Result<Vec<Vec<String>>, Error> {
        self.get("servers/availability_groups/").await
    }

    /// All tags.
    pub async fn tags(&self) -> Result<Listing<Tag>, Error> {
        self.list("tags/").await
    }

    /// A new tag; names are not unique.
    pub async fn create_tag(&self, tag: &Tag) -> Result<(), Error> {
        self.send(Method::POST, "tags/", Some(&json!({ "objects": [tag.body()] }))).await.map(drop)
    }

    /// What a tag is on, whole.
    pub async fn put_tag(&self, tag: &Tag) -> Result<(), Error> {
        self.send(Method::PUT, &format!("tags/{}/", tag.uuid), Some(&tag.body())).await.map(drop)
    }

    /// Removes a tag. Gone already is fine.
    pub async fn delete_tag(&self, uuid: &str) -> Result<(), Error> {
        match self.send(Method::DELETE, &format!("tags/{uuid}/"), None).await {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            sent => sent.map(drop),
        }
    }

    /// A token for the API, for whoever still reads it from a Secret. `None` where a password is used.
    pub async fn token(&self) -> Result<Option<Secret>, Error> {
        self.0.auth.token(&self.0.http).await
    }

    /// Reads, has `edit` build the write, writes, and reads again. Nobody else of this process changes it meanwhile.
    async fn edit<T: DeserializeOwned, E: From<Error>>(
        &self,
        path: &str,
        mut edit: impl FnMut(&T) -> Result<Option<Value>, E>,
    ) -> Result<Edited<T>, E> {
        let writer = self.writer(path);
        let _alone = writer.lock().await;
        let mut attempt = 0;
        loop {
            let began = Moment::now();
            let now = self.get(path).await?;
            let Some(body) = edit(&now)? else { return Ok(Edited { now, took: Duration::ZERO }) };
            // The write replaces the whole: what others did since the reading, such as attaching a volume, is undone by it.
            let written = if began.until(Moment::now()) > self.0.stale {
                Err(Error::new(Kind::Concurrency, format!("{path} was read too long ago to be written back")))
            } else {
                self.send(Method::PUT, path, Some(&body)).await
            };
            match written {
                Ok(_) => {
                    let took = began.until(Moment::now());
                    return Ok(Edited { now: self.get(path).await?, took });
                }
                Err(error) => self.again(error, &mut attempt).await?,
            }
        }
    }

    /// Waits before the next attempt where another write was under way; hands every other error on.
    async fn again(&self, error: Error, attempt: &mut usize) -> Result<(), Error> {
        *attempt += 1;
        if error.kind() != Kind::Concurrency || *attempt >= ATTEMPTS {
            return Err(error);
        }
        let pause =
            Duration::from_millis(100).mul_f64(rand::random_range(0.5..1.5)) * u32::try_from(*attempt).unwrap_or(1);
        debug!(%error, ?pause, "another write was under way; reading again");
        tokio::time::sleep(pause).await;
        Ok(())
    }

    fn writer(&self, path: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut writers = self.0.writers.lock().unwrap_or_else(PoisonError::into_inner);
        writers.retain(|_, writer| writer.strong_count() > 0);
        if let Some(writer) = writers.get(path).and_then(Weak::upgrade) {
            return writer;
        }
        let writer = Arc::new(tokio::sync::Mutex::new(()));
        writers.insert(path.to_owned(), Arc::downgrade(&writer));
        writer
    }

    /// Everything of a kind. The default page has 20; 0 is all, and the count tells whether it was.
    async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Listing<T>, Error> {
        let path = format!("{path}{}limit=0", if path.contains('?') { '&' } else { '?' });
        let page: Page = self.get(&path).await?;
        let (sent, total) = (page.objects.len(), page.meta.total_count);
        // In the place of one that is named twice another one is missing.
        let named = || page.objects.iter().filter_map(|object| object["uuid"].as_str());
        let distinct = named().collect::<BTreeSet<_>>().len() == named().count();
        let mut items = Vec::with_capacity(sent);
        for object in page.objects {
            match serde_json::from_value(object) {
                Ok(item) => items.push(item),
                Err(error) => warn!(path, %error, "an object of the list cannot be read"),
            }
        }
        let complete = distinct && items.len() == total;
        if !complete {
            warn!(path, read = items.len(), sent, total, "the list is incomplete");
        }
        Ok(Listing { items, complete })
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let body = self.send(Method::GET, path, None).await?;
        serde_json::from_slice(&body)
            .map_err(|error| Error::new(Kind::Garbled, format!("GET {path}: the answer cannot be read: {error}")))
    }

    /// One request; what was refused is replaced once, where there is something else.
    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Vec<u8>, Error> {
        let Inner { api, http, auth, .. } = &*self.0;
        let url = api.join(path).map_err(|error| Error::new(Kind::Invalid, format!("{path}: {error}")))?;
        let mut authorization = auth.header(http).await?;
        let mut renewed = false;
        loop {
            let call = Call { method: method.clone(), url: url.clone(), authorization: &authorization, body };
            match http.send(&call).await {
                Err(error) if error.kind() == Kind::Unauthorized && !renewed && auth.renews() => {
                    renewed = true;
                    match auth.replace(&authorization, http).await? {
                        Some(other) => authorization = other,
                        None => return Err(error),
                    }
                }
                answered => return answered,
            }
        }
    }
}
