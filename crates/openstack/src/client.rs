//! The client: a call with a good token, at the right place.

use std::sync::Arc;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue, IF_MATCH};
use reqwest::{Method, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::block_storage::BlockStorage;
use crate::catalog::Service;
use crate::compute::Compute;
use crate::config::{Config, ConfigError};
use crate::error::{Error, Kind};
use crate::fault;
use crate::http::{self, Answer, Call, Http};
use crate::keystone::Session;
use crate::listing::Listing;
use crate::load_balancer::LoadBalancers;
use crate::network::Network;
use crate::page::{self, Item, More};
use crate::tokens::Tokens;

/// A cloud, as one user in one project. Cheap to clone; all clones share connections and the token.
#[derive(Debug, Clone)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    http: Http,
    tokens: Tokens,
}

/// Filters of a listing. A service may ignore one that it does not know, so look at what came yourself.
pub type Filters<'a> = &'a [(&'a str, &'a str)];

/// What a call is about, under the service's endpoint.
pub(crate) struct Ask<'a> {
    pub(crate) service: Service,
    pub(crate) path: &'a [&'a str],
    pub(crate) query: Filters<'a>,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(service: Service, path: &'a [&'a str]) -> Self {
        Self { service, path, query: &[] }
    }

    pub(crate) fn query(mut self, query: Filters<'a>) -> Self {
        self.query = query;
        self
    }
}

impl Client {
    /// A client that has not talked to anybody yet. The first call authenticates.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let http = Http::new(&config)?;
        Ok(Self(Arc::new(Inner { config, http, tokens: Tokens::default() })))
    }

    /// Who we are: authenticates if that was not done yet. A good first call, as its errors are about the configuration alone.
    pub async fn session(&self) -> Result<Arc<Session>, Error> {
        self.0.tokens.get(&self.0.http, &self.0.config).await
    }

    /// Neutron: routers, ports, security groups, floating IPs.
    #[must_use]
    pub fn network(&self) -> Network<'_> {
        Network(self)
    }

    /// Nova: servers.
    #[must_use]
    pub fn compute(&self) -> Compute<'_> {
        Compute(self)
    }

    /// Octavia: load balancers.
    #[must_use]
    pub fn load_balancers(&self) -> LoadBalancers<'_> {
        LoadBalancers(self)
    }

    /// Cinder: volumes, snapshots, backups.
    #[must_use]
    pub fn block_storage(&self) -> BlockStorage<'_> {
        BlockStorage(self)
    }

    /// One thing: the document under `key`.
    pub(crate) async fn get<T: DeserializeOwned>(&self, ask: &Ask<'_>, key: &str) -> Result<T, Error> {
        let (url, answer) = self.call(ask, &Method::GET, None, None).await?;
        document(&answer, key).map_err(|error| error.on(&Method::GET, &url))
    }

    /// All things of a collection, from all its pages.
    pub(crate) async fn list<T: Item>(&self, ask: &Ask<'_>, collection: &str, more: More) -> Result<Listing<T>, Error> {
        let first = place(ask, self.endpoint(ask.service, &*self.session().await?)?)?;
        let service = ask.service;
        page::follow(first, collection, more, |url| async move {
            Ok(self.at(service, &Method::GET, &url, None, None).await?.body)
        })
        .await
    }

    /// A write whose answer shows the thing as it is now.
    pub(crate) async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        ask: &Ask<'_>,
        body: &Value,
        revision: Option<i64>,
        key: &str,
    ) -> Result<T, Error> {
        let (url, answer) = self.call(ask, &method, Some(body), revision).await?;
        // It was done; only what came back is of no use.
        document(&answer, key).map_err(|error| error.on(&method, &url).with_maybe_applied(true))
    }

    /// A write whose answer says nothing more than that it was taken.
    pub(crate) async fn order(&self, method: Method, ask: &Ask<'_>, body: Option<&Value>) -> Result<(), Error> {
        self.call(ask, &method, body, None).await.map(drop)
    }

    /// A delete. What is gone already is fine.
    pub(crate) async fn delete(&self, ask: &Ask<'_>) -> Result<(), Error> {
        match self.order(Method::DELETE, ask, None).await {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            done => done,
        }
    }

    async fn call(
        &self,
        ask: &Ask<'_>,
        method: &Method,
        body: Option<&Value>,
        revision: Option<i64>,
    ) -> Result<(Url, Answer), Error> {
        let url = place(ask, self.endpoint(ask.service, &*self.session().await?)?)?;
        let answer = self.at(ask.service, method, &url, body, revision).await?;
        Ok((url, answer))
    }

    /// A request with a token. If that is refused, once more with another: it may have been revoked, or have ended on the way.
    async fn at(
        &self,
        service: Service,
        method: &Method,
        url: &Url,
        body: Option<&Value>,
        revision: Option<i64>,
    ) -> Result<Answer, Error> {
        let session = self.session().await?;
        match self.once(&session, service, method, url, body, revision).await {
            Err(error) if error.kind() == Kind::Unauthorized => {
                let session = self.0.tokens.replace(Some(&session), &self.0.http, &self.0.config).await?;
                self.once(&session, service, method, url, body, revision).await
            }
            done => done,
        }
    }

    async fn once(
        &self,
        session: &Session,
        service: Service,
        method: &Method,
        url: &Url,
        body: Option<&Value>,
        revision: Option<i64>,
    ) -> Result<Answer, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(&http::TOKEN, http::hidden(&session.token)?);
        if let Some(version) = microversion(service) {
            headers.insert(HeaderName::from_static("openstack-api-version"), HeaderValue::from_static(version));
        }
        if let Some(revision) = revision
            && let Ok(guard) = HeaderValue::from_str(&format!("revision_number={revision}"))
        {
            headers.insert(IF_MATCH, guard);
        }
        let call = Call {
            method: method.clone(),
            url: url.clone(),
            headers,
            body,
            repeatable: *method == Method::GET,
            secrets: &[&session.token],
        };
        let answer = self.0.http.send(&call).await;
        answer.map_err(|error| match (error.status(), microversion(service)) {
            (Some(406), Some(version)) => {
                error.map_message(|said| format!("the cloud is too old for us, who need version {version}: {said}"))
            }
            _ => error,
        })
    }

    fn endpoint(&self, service: Service, session: &Session) -> Result<Url, Error> {
        let Config { interface, region, .. } = &self.0.config;
        session.catalog().endpoint(service, *interface, region.as_deref(), session.project_id())
    }
}

/// The oldest version of an API that tells what we need.
fn microversion(service: Service) -> Option<&'static str> {
    match service {
        // 2.69 (Stein): servers of a cell that is down are shown as such, and not left out.
        Service::Compute => Some("compute 2.69"),
        // 3.43 (Pike): backups have metadata.
        Service::BlockStorage => Some("volume 3.43"),
        Service::Network | Service::LoadBalancer => None,
    }
}

fn place(ask: &Ask<'_>, mut url: Url) -> Result<Url, Error> {
    // Without its id, the path of a thing is that of the whole collection.
    if ask.path.iter().any(|segment| matches!(*segment, "" | "." | "..")) {
        return Err(Error::new(Kind::Invalid, format!("no id in the request for {}", ask.path.join("/"))));
    }
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(ask.path);
    }
    if !ask.query.is_empty() {
        url.query_pairs_mut().extend_pairs(ask.query);
    }
    Ok(url)
}

fn document<T: DeserializeOwned>(answer: &Answer, key: &str) -> Result<T, Error> {
    let garbled = |message: String| Error::new(Kind::Garbled, message);
    let mut whole: serde_json::Map<String, Value> =
        serde_json::from_slice(&answer.body).map_err(|error| garbled(fault::not_a_document(&answer.body, &error)))?;
    let part = whole.remove(key).ok_or_else(|| garbled(format!("the answer has no {key}")))?;
    serde_json::from_value(part)
        .map_err(|error| garbled(format!("the {key} in the answer cannot be understood: {error}")))
}
