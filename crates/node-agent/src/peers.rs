//! The other agents, asked when the API server does not answer.
//!
//! An agent that is cut off alone must let go: the controller gives its addresses to others. But when most agents are
//! cut off, the controller moves nothing (more than half of the Leases are late), and letting go would be an outage that
//! nobody ends. So a late agent asks the others, and keeps its addresses only while most of all agents say that they
//! do not reach the API server either. Which agents there are is best known by one that does reach it: a Node may have
//! been deleted or added since we were cut off, and the controller counts without the one and with the other.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use groundcrew_api::names::{annotation, label};
use groundcrew_core::leader::Moment;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::authority::Authority;
use crate::metrics::Metrics;
use crate::timing::Timings;

/// How often the list of agents is read, for each of them: an agent that is not known yet is not counted, and in a large
/// cluster one more or less decides nothing.
const REFRESH: Duration = Duration::from_millis(100);
const REFRESH_AT_MOST: Duration = Duration::from_secs(5);
const REFRESH_AT_LEAST: Duration = Duration::from_mins(1);
/// A client that does not send its request in this time is cut off.
const HEADER_DEADLINE: Duration = Duration::from_secs(5);

/// What an agent answers.
#[derive(Debug, Serialize, Deserialize)]
struct Reach {
    /// Who answers: an address may have passed to another machine.
    node: String,
    /// It has not reached the API server for so long that its Lease is certainly late.
    out: bool,
    /// How many agents it knows, itself included: it may know of one that we do not.
    agents: usize,
    /// Their names, from one that reaches the API server and has listed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    names: Option<BTreeSet<String>>,
}

pub(crate) struct Peers {
    node: String,
    timings: Timings,
    http: reqwest::Client,
    /// Others' nodes and where to ask them; `None` until they were listed once.
    others: Mutex<Option<BTreeMap<String, String>>>,
    /// When the last renewal that was taken was sent. Before the first one, when the process began: the Lease may be fresh
    /// from an earlier run, and the controller sees only that.
    renewed: Mutex<Moment>,
    /// Somebody asked: there is one that does not reach the API server, and depends on what we know.
    asked: Notify,
}

/// Whether more than half of all agents are out: we, and those that said so. An agent that does not answer may well be
/// in reach of the API server.
fn most_are_out(agents: usize, out: usize) -> bool {
    2 * out > agents
}

/// How many agents there are, and how many of them are out, of which we are one. Whoever reaches the API server knows
/// which there are; of several such the one who leaves us the least. Without any, all that anybody has heard of counts.
fn count(us: &str, known: usize, answers: &[Reach]) -> (usize, usize) {
    let out: BTreeSet<&str> =
        answers.iter().filter(|reach| reach.out).map(|reach| reach.node.as_str()).chain([us]).collect();
    let in_reach = answers.iter().filter(|reach| !reach.out).filter_map(|reach| reach.names.as_ref());
    let counts = in_reach.map(|names| (names.len(), names.iter().filter(|name| out.contains(name.as_str())).count()));
    let least = counts.min_by_key(|(agents, out)| most_are_out(*agents, *out));
    least.unwrap_or_else(|| (answers.iter().map(|reach| reach.agents).fold(known, usize::max), out.len()))
}

fn is_out(renewed: Moment, timings: Timings, now: Moment) -> bool {
    renewed + timings.out() <= now
}

impl Peers {
    pub(crate) fn new(node: String, timings: Timings) -> Result<Self, reqwest::Error> {
        // Never through a proxy: nodes talk to each other directly or not at all.
        let http = reqwest::Client::builder().no_proxy().timeout(timings.round_trip).build()?;
        Ok(Self {
            node,
            timings,
            http,
            others: Mutex::default(),
            renewed: Mutex::new(Moment::now()),
            asked: Notify::new(),
        })
    }

    pub(crate) fn renewed(&self, sent: Moment) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = sent;
    }

    fn out(&self, now: Moment) -> bool {
        is_out(*self.renewed.lock().unwrap_or_else(PoisonError::into_inner), self.timings, now)
    }

    /// Keeps the list of agents.
    pub(crate) async fn learn(&self, leases: Api<Lease>, stop: CancellationToken) {
        let agents = ListParams::default().labels(label::AGENT_NODE).match_any();
        while !stop.is_cancelled() {
            let (pause, asked) = match timeout(Duration::from_secs(10), leases.list(&agents)).await {
                Ok(Ok(list)) => {
                    let others: BTreeMap<_, _> =
                        list.items.iter().filter_map(agent).filter(|(node, _)| *node != self.node).collect();
                    let each = u32::try_from(others.len()).unwrap_or(u32::MAX);
                    *self.others.lock().unwrap_or_else(PoisonError::into_inner) = Some(others);
                    let pause = REFRESH.saturating_mul(each).min(REFRESH_AT_LEAST);
                    (pause.max(REFRESH_AT_MOST), pause.max(self.timings.renew))
                }
                Ok(Err(error)) => {
                    debug!(%error, "agents not listed");
                    (self.timings.renew, self.timings.renew)
                }
                Err(_) => (self.timings.renew, self.timings.renew),
            };
            let rest = async {
                sleep(asked).await;
                let _ = timeout(pause.saturating_sub(asked), self.asked.notified()).await;
            };
            stop.run_until_cancelled(rest).await;
        }
    }

    /// Extends the authority while most agents are out.
    pub(crate) async fn vigil(&self, authority: watch::Sender<Authority>, metrics: Metrics, stop: CancellationToken) {
        let mut kept = false;
        while stop.run_until_cancelled(sleep(self.timings.renew / 4)).await.is_some() {
            let asked = Moment::now();
            if !self.out(asked) || authority.borrow().deadline(asked).is_none() {
                kept = false;
                continue;
            }
            let Some((agents, out)) = self.ask().await else { continue };
            if !most_are_out(agents, out) {
                continue;
            }
            authority.send_modify(|authority| authority.extended(self.timings.extension(asked), Moment::now()));
            metrics.extended.inc();
            if !kept {
                warn!(agents, out, "most agents do not reach the API server: addresses are kept");
                kept = true;
            }
        }
    }

    /// How many agents there are, and how many of them say that they are out; both with us. `None` while unknown.
    async fn ask(&self) -> Option<(usize, usize)> {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let answers = join_all(others.iter().map(async |(node, url)| {
            let answer = self.http.get(format!("{url}/reach")).send().await.ok()?;
            let reach: Reach = answer.error_for_status().ok()?.json().await.ok()?;
            (reach.node == *node).then_some(reach)
        }))
        .await;
        let answers: Vec<_> = answers.into_iter().flatten().collect();
        Some(count(&self.node, others.len() + 1, &answers))
    }

    /// Answers other agents.
    pub(crate) async fn answer(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
            let Ok((stream, _)) = accepted else {
                // Out of file descriptors, most likely: accepting again at once would spin.
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            let peers = self.clone();
            tokio::spawn(async move {
                let answer = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
                    std::future::ready(Ok::<_, Infallible>(peers.reply(request.uri().path())))
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_DEADLINE)
                    .serve_connection(TokioIo::new(stream), answer);
                if let Err(error) = connection.await {
                    debug!(%error, "connection of another agent");
                }
            });
        }
    }

    fn reply(&self, path: &str) -> Response<Full<Bytes>> {
        self.asked.notify_one();
        let out = self.out(Moment::now());
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let agents = 1 + others.as_ref().map_or(0, BTreeMap::len);
        let names = others.as_ref().filter(|_| !out);
        let names = names.map(|others| others.keys().chain([&self.node]).cloned().collect());
        let reach = Reach { node: self.node.clone(), out, agents, names };
        let body = serde_json::to_vec(&reach).unwrap_or_default();
        let mut response = Response::new(Full::from(body));
        if path != "/reach" {
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        response
    }
}

/// Listens for other agents.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await?;
    info!(%address, "answering other agents");
    Ok(listener)
}

/// A living agent and where to ask it. One that has given its Lease back holds nothing and is asked nothing.
fn agent(lease: &Lease) -> Option<(String, String)> {
    let node = lease.metadata.labels.as_ref()?.get(label::AGENT_NODE)?;
    let url = lease.metadata.annotations.as_ref()?.get(annotation::AGENT_URL)?;
    let holder = lease.spec.as_ref()?.holder_identity.as_ref()?;
    (!holder.is_empty()).then(|| (node.clone(), url.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_kept_only_while_more_than_half_of_all_agents_are_out() {
        assert!(most_are_out(1, 1), "alone, there is nobody to move them to");
        assert!(!most_are_out(2, 1), "half is not most");
        assert!(most_are_out(2, 2));
        assert!(!most_are_out(3, 1));
        assert!(most_are_out(3, 2));
        assert!(!most_are_out(4, 2));
    }

    fn answer(node: &str, names: Option<&[&str]>) -> Reach {
        let names = names.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>());
        let agents = names.as_ref().map_or(3, BTreeSet::len);
        Reach { node: node.to_owned(), out: names.is_none(), agents, names }
    }

    #[test]
    fn a_node_that_was_deleted_or_added_since_we_were_cut_off_is_counted_as_who_reaches_the_api_server_knows() {
        let c = answer("c", None);
        let of = |answers: &[Reach]| count("a", 3, answers);
        assert_eq!(of(&[]), (3, 1));
        assert_eq!(of(std::slice::from_ref(&c)), (3, 2), "nobody in reach answers: what we knew counts");
        let deleted = answer("b", Some(&["a", "b"]));
        assert_eq!(of(&[deleted, c]), (2, 1), "c is none any more, whatever it says");
        let added = answer("b", Some(&["a", "b", "c", "d", "e"]));
        assert_eq!(of(&[added, answer("c", None)]), (5, 2));
        let both = [answer("b", Some(&["a", "b"])), answer("d", Some(&["a", "b", "c"])), answer("c", None)];
        assert_eq!(of(&both), (2, 1), "the one who leaves us the least");
        let forgotten = answer("b", Some(&["b", "c"]));
        assert_eq!(of(&[forgotten, answer("c", None)]), (2, 1), "our own Node was deleted");
        let starting = Reach { names: None, ..answer("b", Some(&["b"])) };
        assert_eq!(of(&[starting, answer("c", None)]), (3, 2), "it has listed nobody yet");
    }

    #[test]
    fn an_agent_is_out_when_it_has_been_without_a_renewal_for_long_and_not_because_it_just_began() {
        let start = Moment::now();
        let out = |renewed, later| is_out(renewed, Timings::DEFAULT, start + later);
        assert!(!out(start, Duration::from_millis(4_900)));
        assert!(out(start, Duration::from_secs(5)));
    }
}
