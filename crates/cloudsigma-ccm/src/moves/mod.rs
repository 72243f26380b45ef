//! Puts addresses on nodes, and on others when those fail.
//!
//! ```text
//! Leases --lives--+
//! Nodes ----------+--decide--> Moves --carry out--> FloatingIP.spec --node agents--> status
//! FloatingIPs ----+
//! ```

mod carry_out;
mod decide;
mod lives;
mod metrics;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use groundcrew_api::names::{condition, lease};
use groundcrew_core::events::{Events, Severity};
use groundcrew_core::leader::{Moment, Role, Term};
use groundcrew_core::provider::Look;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, ResourceExt};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::client::Client;
use crate::error::Error;
use crate::floating::Floating;
use crate::inventory::{Account, Inventory};
use crate::mirror::Mirror;
use crate::nodes::{self, Nodes};
use crate::provider::is_pinned;
use crate::reach::Reach;
use crate::troubles::Troubles;
use crate::wishes::Wishes;
use decide::{Address, Brake, Decision, Move, decide};
use lives::Lives;
pub(crate) use metrics::Metrics;

/// As many as are moved at once: an API server takes more, a cloud in attach mode hardly.
const TOGETHER: usize = 16;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// When to give up on a node, and how soon an address may move again without need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Since its Lease was last seen to change; the Lease's own duration where that is longer.
    pub(crate) delay: Duration,
    pub(crate) hold: Duration,
}

pub(crate) struct Mover {
    pub(crate) client: Client,
    pub(crate) account: Account,
    pub(crate) nodes: Nodes,
    pub(crate) leases: Mirror<Lease>,
    pub(crate) lease_api: Api<Lease>,
    pub(crate) floating: Floating,
    pub(crate) wishes: Arc<Wishes>,
    pub(crate) reach: Arc<dyn Reach>,
    pub(crate) troubles: Troubles,
    pub(crate) timing: Timing,
    pub(crate) ignore_exclusion: bool,
    /// Whether a silent node's server is stopped first.
    pub(crate) fence: bool,
    pub(crate) deadline: Duration,
    pub(crate) looks: broadcast::Sender<Look>,
    pub(crate) events: Events,
    /// What is told about all of them is told here.
    pub(crate) about: ObjectReference,
    pub(crate) metrics: Metrics,
}

/// What the loop remembers.
#[derive(Debug, Default)]
struct Memory {
    lives: Lives,
    moved: BTreeMap<IpAddr, Moment>,
    /// When an address that could not be moved is tried again.
    failed: BTreeMap<IpAddr, (Moment, Duration)>,
    brake: Option<Brake>,
}

impl Mover {
    /// Works until `stop`. Followers keep count of who lives, and write nothing.
    pub(crate) async fn run(self, role: watch::Receiver<Role>, stop: CancellationToken) {
        let mut role = role;
        let mut memory = Memory::default();
        let (mut nodes, mut leases) = (self.nodes.mirror.changes(), self.leases.changes());
        let (mut floating, mut wishes) = (self.floating.mirror.changes(), self.wishes.changes());
        let mut account = self.account.changes();
        loop {
            let term = role.borrow_and_update().term().cloned();
            let pause = self.look(&mut memory, term.as_ref()).await;
            // A sender that is gone is the process's end, which `stop` tells.
            tokio::select! {
                () = stop.cancelled() => return,
                _ = nodes.changed() => {}
                _ = leases.changed() => {}
                _ = floating.changed() => {}
                _ = wishes.changed() => {}
                _ = account.changed() => {}
                Ok(()) = role.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One look at everything; how long until the next even if nobody says anything.
    async fn look(&self, memory: &mut Memory, term: Option<&Term>) -> Duration {
        let now = Moment::now();
        let inventory = self.account.last();
        let addresses = self.addresses(memory, inventory.as_deref(), now);
        let names = self.names(&addresses);
        memory.lives.observe(names.iter(), |node| self.leases.get(&lease::of_node(node)), now);
        let mut decision = decide(&addresses, &self.view(&names, &memory.lives, inventory.as_deref(), now));
        if memory.brake.is_some() && decision.brake.is_none() {
            // Whoever is still silent may have been cut off together with us: everybody has the whole time again.
            memory.lives.restart(now);
            decision = decide(&addresses, &self.view(&names, &memory.lives, inventory.as_deref(), now));
        }
        self.tell_brake(memory.brake, decision.brake, term.is_some());
        memory.brake = decision.brake;
        self.metrics.brake.set(decision.brake.is_some().into());
        self.metrics.stranded.set(decision.stranded.len().try_into().unwrap_or(i64::MAX));
        if let Some(term) = term {
            self.carry_out(decision, memory, term, now).await;
        } else {
            memory.failed.clear();
            memory.moved.clear();
        }
        let retry = memory.failed.values().map(|(at, _)| now.until(*at).max(Duration::from_millis(50))).min();
        let rest =
            memory.moved.values().map(|at| now.until(*at + self.timing.hold)).filter(|rest| !rest.is_zero()).min();
        let due = memory.lives.next(now, self.timing.delay);
        due.into_iter().chain(retry).chain(rest).min().unwrap_or(LONGEST_PAUSE)
    }

    async fn carry_out(&self, decision: Decision, memory: &mut Memory, term: &Term, now: Moment) {
        memory.failed.retain(|address, _| decision.moves.iter().any(|m| m.address == *address));
        memory.moved.retain(|_, at| at.until(now) < self.timing.hold);
        let due: Vec<Move> = decision
            .moves
            .into_iter()
            .filter(|m| memory.failed.get(&m.address).is_none_or(|(at, _)| *at <= now))
            .collect();
        let (lives, delay) = (&memory.lives, self.timing.delay);
        let done: Vec<_> = stream::iter(due)
            .map(|planned| async move {
                let silence = planned.evict.as_deref().and_then(|node| lives.silence(node, now, delay));
                // Cut short it is as after a crash. One that hangs must not hold up the others for long.
                let moving = carry_out::carry_out(self, &planned, silence.as_ref(), term);
                let carried = tokio::time::timeout(self.deadline * 2, moving).await;
                let address = planned.address;
                (planned, carried.unwrap_or(Err(Error::NotMoved { address })))
            })
            .buffer_unordered(TOGETHER)
            .collect()
            .await;
        for (planned, carried) in done {
            self.note(memory, planned, carried);
        }
    }

    fn note(&self, memory: &mut Memory, planned: Move, carried: Result<(), Error>) {
        let Move { address, from, to, evict, reason } = planned;
        let trouble = match carried {
            Ok(()) => {
                memory.failed.remove(&address);
                if from != to {
                    memory.moved.insert(address, Moment::now());
                    info!(%address, from = from.as_deref(), to = to.as_deref(), evicted = evict.as_deref(), reason = reason.label(), "assigned");
                    self.metrics.moves.with_label_values(&[reason.label()]).inc();
                }
                None
            }
            Err(error) => {
                let pause =
                    memory.failed.get(&address).map_or(FIRST_PAUSE, |(_, pause)| (*pause * 2).min(LONGEST_PAUSE));
                memory.failed.insert(address, (Moment::now() + pause, pause));
                warn!(%address, to = to.as_deref(), %error, "not assigned; looking again");
                Some(error)
            }
        };
        // Another writer was quicker, which a fresh look settles: nothing that a user should hear of.
        let trouble = trouble.filter(|error| !matches!(error, Error::Kube(_)));
        if self.troubles.set(address, trouble.as_ref()) {
            for service in self.wishes.services(address) {
                let _ = self.looks.send(Look::At(service));
            }
        }
    }

    fn addresses(&self, memory: &Memory, inventory: Option<&Inventory>, now: Moment) -> BTreeMap<IpAddr, Address> {
        let wishes = self.wishes.all();
        let ours = self.floating.ours().into_iter().filter(|(_, o)| o.metadata.deletion_timestamp.is_none());
        ours.map(|(ip, object)| {
            let wish = wishes.get(&ip);
            let name = |node: &Option<String>| node.as_deref().map(Arc::from);
            let status = object.status.as_ref();
            let ready = status.and_then(|status| status.conditions.iter().find(|c| c.type_ == condition::READY));
            let address = Address {
                holder: name(&object.spec.holder),
                claimed: status.and_then(|status| name(&status.holder)),
                evicted: name(&object.spec.evicted),
                wanted: wish.is_some(),
                local: wish.cloned().flatten(),
                pinned: is_pinned(ip, inventory),
                rests: memory.moved.get(&ip).is_some_and(|at| at.until(now) < self.timing.hold),
                unreachable: status.is_some_and(|status| status.serial == object.spec.serial)
                    && ready.is_some_and(|ready| ready.status == "False" && ready.reason == "LinkDown"),
            };
            (ip, address)
        })
        .collect()
    }

    /// Every node that is, holds, or says that it holds.
    fn names(&self, addresses: &BTreeMap<IpAddr, Address>) -> BTreeSet<Arc<str>> {
        let nodes = self.nodes.all().into_iter().map(|node| Arc::from(node.name_any()));
        let holders = addresses.values().flat_map(|address| [address.holder.clone(), address.claimed.clone()]);
        nodes.chain(holders.flatten()).collect()
    }

    fn view(
        &self,
        names: &BTreeSet<Arc<str>>,
        lives: &Lives,
        inventory: Option<&Inventory>,
        now: Moment,
    ) -> BTreeMap<Arc<str>, decide::Node> {
        let view = names.iter().map(|name| {
            let node = self.nodes.mirror.get(name);
            let uuid = node.as_deref().and_then(nodes::server);
            let server = uuid.and_then(|uuid| inventory?.servers.get(uuid));
            let complete = inventory.is_some_and(|inventory| inventory.complete);
            let unfit = match (&node, server) {
                (None, _) => Some("it is not a node any more"),
                (Some(node), None) => {
                    // What half a list lacks may be there all the same.
                    let missing = complete.then_some("its server is not in the account");
                    nodes::unfit(node, self.ignore_exclusion).or(missing)
                }
                (Some(node), Some(server)) => {
                    nodes::unfit(node, self.ignore_exclusion).or_else(|| self.reach.able(server).err())
                }
            };
            let view = decide::Node {
                agent: lives.agent(name, now, self.timing.delay),
                stopped: server.is_some_and(|server| server.status == "stopped"),
                // One of whose server nothing is known gets nothing new.
                ready: server.is_some() && node.as_deref().is_some_and(nodes::is_ready),
                unfit,
                host: uuid.and_then(|uuid| inventory?.host(uuid)),
                counts: node.is_some() && self.leases.get(&lease::of_node(name)).is_some(),
            };
            (name.clone(), view)
        });
        view.collect()
    }

    fn tell_brake(&self, before: Option<Brake>, now: Option<Brake>, leads: bool) {
        match (before, now) {
            (None, Some(Brake { late, nodes })) => {
                let note = format!(
                    "{late} of {nodes} node agents are not heard: more likely this controller sees nothing than that they are \
                     dead. No address is taken from a silent one until most are heard again"
                );
                warn!("{note}");
                if leads {
                    self.events.tell(self.about.clone(), Severity::Warning, "FailoverBraked", note);
                }
            }
            (Some(_), None) => info!("most nodes are heard again; silent ones have the whole delay anew"),
            _ => {}
        }
    }
}
