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

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_api::names::{annotation, condition, lease};
use groundcrew_core::diff::Diff;
use groundcrew_core::events::{Severity, reference};
use groundcrew_core::leader::{Moment, Role, Term};
use groundcrew_core::provider::Look;
use groundcrew_core::runtime::Runtime;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::client::{Client, Nic};
use crate::error::Error;
use crate::floating::{self, Floating};
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

/// As many as are moved at once: an API server takes more, a cloud in attach mode hardly. One that hangs takes a place.
const TOGETHER: usize = 32;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What a node says that has no interface for an address: its link is down, or there is none.
const UNABLE: [&str; 2] = ["LinkDown", "NoInterface"];

/// When to give up on a node, and how soon an address may move again without need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Since its Lease was last seen to change; the Lease's own duration where that is longer.
    pub(crate) delay: Duration,
    pub(crate) hold: Duration,
    /// A node that cannot hold an address gets nothing new for this long: it would get all that is new, as it has the least.
    pub(crate) recovery: Duration,
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
    pub(crate) metrics: Metrics,
    pub(crate) runtime: Runtime,
}

/// What the loop remembers.
#[derive(Debug, Default)]
struct Memory {
    lives: Lives,
    moved: BTreeMap<IpAddr, Moment>,
    /// When an address that could not be moved is tried again.
    failed: BTreeMap<IpAddr, (Moment, Duration)>,
    /// Those that are being carried out.
    moving: BTreeMap<IpAddr, Move>,
    /// Nodes that had no interface for an address, and when they said so last.
    unable: BTreeMap<Arc<str>, Moment>,
    braked: Option<Braked>,
    /// The servers of all nodes that are named anywhere: a Node may go before its server does.
    servers: BTreeMap<Arc<str>, String>,
    /// What a dry run has shown last: Leases change all the time, and most of it changes nothing here.
    shown: BTreeMap<IpAddr, Vec<String>>,
}

/// While the brake is on.
#[derive(Debug)]
struct Braked {
    brake: Brake,
    /// The nodes that counted when it began. Agents that are cut off count by what they knew then: who is deleted since may
    /// still tell them that it is out, and who is new cannot outvote whom they know.
    counted: BTreeSet<Arc<str>>,
}

/// A move and what became of it.
type Carried = (Move, Result<(), Error>);
/// Moves that are under way, each on its own: one that hangs keeps nobody from deciding on the others.
type UnderWay<'a> = FuturesUnordered<BoxFuture<'a, Carried>>;

impl Mover {
    /// Works until `stop`. Followers keep count of who lives, and write nothing.
    pub(crate) async fn run(self, role: watch::Receiver<Role>, stop: CancellationToken) {
        let mut role = role;
        let mut memory = Memory::default();
        let mut under_way = FuturesUnordered::new();
        let (mut nodes, mut leases) = (self.nodes.mirror.changes(), self.leases.changes());
        let (mut floating, mut wishes) = (self.floating.mirror.changes(), self.wishes.changes());
        let mut account = self.account.changes();
        loop {
            let term = role.borrow_and_update().term().cloned();
            let pause = self.look(&mut memory, &under_way, term.as_ref());
            // A sender that is gone is the process's end, which `stop` tells.
            tokio::select! {
                () = stop.cancelled() => return,
                _ = nodes.changed() => {}
                _ = leases.changed() => {}
                _ = floating.changed() => {}
                _ = wishes.changed() => {}
                _ = account.changed() => {}
                Ok(()) = role.changed() => {}
                Some(carried) = under_way.next() => self.note(&mut memory, carried),
                () = tokio::time::sleep(pause) => {}
            }
            while let Some(Some(carried)) = under_way.next().now_or_never() {
                self.note(&mut memory, carried);
            }
        }
    }

    /// One look at everything; how long until the next even if nobody says anything.
    fn look<'a>(&'a self, memory: &mut Memory, under_way: &UnderWay<'a>, term: Option<&Term>) -> Duration {
        let now = Moment::now();
        let inventory = self.account.last();
        let addresses = self.addresses(memory, inventory.as_deref(), now);
        memory.unable.retain(|_, said| said.until(now) < self.timing.recovery);
        let unreachable = addresses.values().filter(|address| address.unreachable);
        memory.unable.extend(unreachable.filter_map(|address| Some((address.holder.clone()?, now))));
        let names = self.names(&addresses, memory.braked.as_ref());
        self.learn_servers(&names, &mut memory.servers);
        memory.lives.observe(names.iter(), |node| self.leases.get(&lease::of_node(node)), now);
        let claimants = claimants(&addresses);
        let mut view = self.view(&names, &claimants, memory, inventory.as_deref(), now);
        let mut decision = decide(&addresses, &view);
        let before = memory.braked.as_ref().map(|braked| braked.brake);
        if before.is_some() && decision.brake.is_none() {
            // Whoever is still silent may have been cut off together with us: everybody has the whole time again.
            memory.lives.restart(now);
            memory.braked = None;
            view = self.view(&names, &claimants, memory, inventory.as_deref(), now);
            decision = decide(&addresses, &view);
        }
        self.tell_brake(before, decision.brake, term.is_some());
        match (decision.brake, &mut memory.braked) {
            (Some(brake), Some(braked)) => braked.brake = brake,
            (Some(brake), none) => {
                let counted = view.iter().filter(|(_, node)| node.counts).map(|(name, _)| name.clone());
                *none = Some(Braked { brake, counted: counted.collect() });
            }
            (None, braked) => *braked = None,
        }
        self.metrics.brake.set(decision.brake.is_some().into());
        self.metrics.stranded.set(decision.stranded.len().try_into().unwrap_or(i64::MAX));
        if let Some(term) = term {
            self.carry_out(decision, memory, under_way, term, now);
        } else {
            memory.failed.clear();
            memory.moved.clear();
            if self.runtime.dry_run {
                self.preview(&decision, memory);
            }
        }
        let retry = memory.failed.values().map(|(at, _)| now.until(*at).max(Duration::from_millis(50))).min();
        let rest =
            memory.moved.values().map(|at| now.until(*at + self.timing.hold)).filter(|rest| !rest.is_zero()).min();
        let due = memory.lives.next(now, self.timing.delay);
        let recovered = memory.unable.values().map(|said| now.until(*said + self.timing.recovery)).min();
        due.into_iter().chain(retry).chain(rest).chain(recovered).min().unwrap_or(LONGEST_PAUSE)
    }

    /// What would be carried out, for a dry run.
    fn preview(&self, decision: &Decision, memory: &mut Memory) {
        let plans: BTreeMap<_, _> = decision.moves.iter().map(|planned| (planned.address, planned.lines())).collect();
        for (address, lines) in &plans {
            if memory.shown.get(address) != Some(lines) {
                self.runtime.show_plan(Diff::of(format!("FloatingIP {}", FloatingIP::name_of(*address)), lines));
            }
        }
        memory.shown = plans;
    }

    fn carry_out<'a>(
        &'a self,
        decision: Decision,
        memory: &mut Memory,
        under_way: &UnderWay<'a>,
        term: &Term,
        now: Moment,
    ) {
        let planned = |address: &IpAddr| decision.moves.iter().any(|m| m.address == *address);
        let stays = |address: &IpAddr| planned(address) || memory.moving.contains_key(address);
        for (address, _) in memory.failed.extract_if(.., |address, _| !stays(address)) {
            self.tell_trouble(address, None);
        }
        memory.moved.retain(|_, at| at.until(now) < self.timing.hold);
        let braked = decision.brake.is_some();
        for planned in decision.moves {
            let rests = memory.failed.get(&planned.address).is_some_and(|(at, _)| now < *at);
            if rests || memory.moving.contains_key(&planned.address) || memory.moving.len() >= TOGETHER {
                continue;
            }
            let evict = planned.evict.as_deref().filter(|_| !braked);
            let silence = evict.and_then(|node| memory.lives.silence(node, now, self.timing.delay));
            let server = planned.evict.as_ref().and_then(|node| memory.servers.get(node)).cloned();
            memory.moving.insert(planned.address, planned.clone());
            let term = term.clone();
            let moving = async move {
                // Cut short it is as after a crash.
                let moving = carry_out::carry_out(self, &planned, silence.as_ref(), server.as_deref(), &term);
                let carried = tokio::time::timeout(self.deadline * 2, moving).await;
                let address = planned.address;
                (planned, carried.unwrap_or(Err(Error::NotMoved { address })))
            };
            under_way.push(moving.boxed());
        }
    }

    fn note(&self, memory: &mut Memory, (planned, carried): Carried) {
        let Move { address, from, to, evict, reason, blind } = planned;
        memory.moving.remove(&address);
        let trouble = match carried {
            Ok(()) => {
                memory.failed.remove(&address);
                if from != to {
                    if !blind {
                        memory.moved.insert(address, Moment::now());
                    }
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
                self.tell_drives(&error);
                Some(error)
            }
        };
        // Another writer was quicker, which a fresh look settles: nothing that a user should hear of.
        let trouble = trouble.filter(|error| !matches!(error, Error::Kube(_)));
        self.tell_trouble(address, trouble.as_ref());
    }

    fn tell_trouble(&self, address: IpAddr, trouble: Option<&Error>) {
        if self.troubles.set(address, trouble) {
            for service in self.wishes.services(address) {
                let _ = self.looks.send(Look::At(service));
            }
        }
    }

    /// At the Node: the next look finds nothing to change and says no more of it.
    fn tell_drives(&self, error: &Error) {
        let Error::DrivesChanged { server, .. } = error else { return };
        for node in self.nodes.all().iter().filter(|node| nodes::server(node) == Some(server)) {
            let name = node.name_any();
            // kubelet's own Events about a node name it in the place of its uid.
            let about = reference::<Node>(None, &name, Some(name.clone()));
            self.runtime.events.tell(about, Severity::Warning, "DrivesChanged", error.to_string());
        }
    }

    fn addresses(&self, memory: &Memory, inventory: Option<&Inventory>, now: Moment) -> BTreeMap<IpAddr, Address> {
        let wishes = self.wishes.all();
        let ours = self.floating.ours().into_iter().filter(|(_, o)| o.metadata.deletion_timestamp.is_none());
        let ours = ours.map(|(ip, object)| {
            let wish = wishes.get(&ip);
            let name = |node: &Option<String>| node.as_deref().map(Arc::from);
            let status = object.status.as_ref();
            let ready = status.and_then(|status| status.conditions.iter().find(|c| c.type_ == condition::READY));
            // What is under way counts as done, so that others are placed beside it.
            let moving = memory.moving.get(&ip).and_then(|planned| planned.to.clone());
            let address = Address {
                holder: moving.or_else(|| name(&object.spec.holder)),
                claimed: status.and_then(|status| name(&status.holder)),
                evicted: name(&object.spec.evicted),
                wanted: wish.is_some(),
                local: wish.cloned().flatten(),
                pinned: is_pinned(ip, inventory),
                rests: memory.moved.get(&ip).is_some_and(|at| at.until(now) < self.timing.hold),
                unreachable: status.is_some_and(|status| status.serial == object.spec.serial)
                    && ready.is_some_and(|ready| ready.status == "False" && UNABLE.contains(&ready.reason.as_str())),
                other_nic: self.has_other_nic(ip, &object, inventory),
            };
            (ip, address)
        });
        let mut addresses: BTreeMap<_, _> = ours.collect();
        if self.runtime.dry_run {
            // Of those whose object would be made first.
            for (ip, local) in wishes.iter().filter(|(ip, _)| self.floating.get(**ip).is_none()) {
                addresses.insert(*ip, Address { wanted: true, local: local.clone(), ..Address::default() });
            }
        }
        addresses
    }

    /// Whether the holder's server does not have the NIC that the holder was told, or it was told none, and has another.
    fn has_other_nic(&self, ip: IpAddr, object: &FloatingIP, inventory: Option<&Inventory>) -> bool {
        let server = object.spec.holder.as_deref().and_then(|holder| self.nodes.server_of(holder));
        let Some(server) = server.and_then(|uuid| inventory?.servers.get(&uuid)) else { return false };
        let is_told = |nic: Nic| Some(nic.mac) == object.spec.mac;
        !server.nics().into_iter().any(is_told) && self.reach.nic(server, ip).is_some()
    }

    /// Every node that is, holds, says that it holds, or counts.
    fn names(&self, addresses: &BTreeMap<IpAddr, Address>, braked: Option<&Braked>) -> BTreeSet<Arc<str>> {
        let nodes = self.nodes.all().into_iter().map(|node| Arc::from(node.name_any()));
        let holders = addresses.values().flat_map(|address| [address.holder.clone(), address.claimed.clone()]);
        let counted = braked.into_iter().flat_map(|braked| braked.counted.iter().cloned());
        nodes.chain(holders.flatten()).chain(counted).collect()
    }

    fn learn_servers(&self, names: &BTreeSet<Arc<str>>, servers: &mut BTreeMap<Arc<str>, String>) {
        servers.retain(|name, _| names.contains(name));
        for (_, object) in self.floating.ours() {
            // Noted when the holder was chosen: all that a new process knows of one whose Node is gone.
            if let (Some(holder), Some(server)) = (object.spec.holder.as_deref(), floating::server(&object)) {
                servers.entry(Arc::from(holder)).or_insert_with(|| server.to_owned());
            }
        }
        for name in names {
            let node = self.nodes.mirror.get(name);
            match node.as_deref().map(nodes::server) {
                Some(Some(server)) => drop(servers.insert(name.clone(), server.to_owned())),
                // Another one of the same name, whose server is not known yet.
                Some(None) => drop(servers.remove(name)),
                None => {}
            }
        }
    }

    fn view(
        &self,
        names: &BTreeSet<Arc<str>>,
        claimants: &BTreeSet<Arc<str>>,
        memory: &Memory,
        inventory: Option<&Inventory>,
        now: Moment,
    ) -> BTreeMap<Arc<str>, decide::Node> {
        let view = names.iter().map(|name| {
            let node = self.nodes.mirror.get(name);
            let uuid = memory.servers.get(name).map(String::as_str);
            let server = uuid.and_then(|uuid| inventory?.servers.get(uuid));
            let complete = inventory.is_some_and(|inventory| inventory.complete);
            let unfit = match (&node, server) {
                (None, _) => Some("it is not a node any more"),
                (Some(node), None) => {
                    // What half a list lacks may be there all the same.
                    let missing = complete.then_some("its server is not in the account");
                    nodes::unfit(node, self.ignore_exclusion).or(missing)
                }
                (Some(node), Some(_)) => nodes::unfit(node, self.ignore_exclusion),
            };
            // What does not exist any more tells nobody anything.
            let may_tell = || !uuid.is_some_and(|uuid| self.is_deleted(uuid, inventory));
            let counts = match (&memory.braked, &node) {
                (Some(braked), _) => braked.counted.contains(name) && may_tell(),
                (None, Some(_)) => self.leases.get(&lease::of_node(name)).is_some(),
                // Of nodes that were deleted, a new process knows only those that have an address.
                (None, None) => claimants.contains(name) && may_tell(),
            };
            let view = decide::Node {
                agent: memory.lives.agent(name, now, self.timing.delay),
                stopped: server.is_some_and(|server| server.status == "stopped"),
                // One of whose server nothing is known gets nothing new, nor does one whose agent says that it cannot hold.
                ready: server.is_some()
                    && node.as_deref().is_some_and(nodes::is_ready)
                    && !self.is_unable(name)
                    && !memory.unable.contains_key(name),
                unfit,
                // What is not known takes nothing away.
                takes: [false, true].map(|v6| server.is_none_or(|server| self.reach.able(server, v6))),
                host: uuid.and_then(|uuid| inventory?.host(uuid)),
                counts,
            };
            (name.clone(), view)
        });
        view.collect()
    }

    /// Whether the server is gone from the account, which has those of other nodes: so it is the right one.
    fn is_deleted(&self, server: &str, inventory: Option<&Inventory>) -> bool {
        let Some(inventory) = inventory.filter(|inventory| inventory.complete) else { return false };
        let others = self.nodes.servers();
        !inventory.servers.contains_key(server) && others.iter().any(|other| inventory.servers.contains_key(other))
    }

    /// Whether the node's agent says that it could hold no address: its link is down.
    fn is_unable(&self, node: &str) -> bool {
        self.leases.get(&lease::of_node(node)).is_some_and(|lease| lease.annotations().contains_key(annotation::UNABLE))
    }

    fn tell_brake(&self, before: Option<Brake>, now: Option<Brake>, leads: bool) {
        match (before, now) {
            (None, Some(Brake { late, nodes })) => {
                let note = format!(
                    "{late} of {nodes} node agents are not heard: more likely this controller sees nothing than that they are \
                     dead. No address is taken from a silent one until most of them are heard again, or their servers are \
                     stopped or deleted; deleting their Nodes is not enough"
                );
                warn!("{note}");
                if leads {
                    self.runtime.events.tell(self.runtime.about.clone(), Severity::Warning, "FailoverBraked", note);
                }
            }
            (Some(_), None) => info!("most nodes are heard again; silent ones have the whole delay anew"),
            _ => {}
        }
    }
}

/// Nodes that say that they hold an address, and whose word counts.
fn claimants(addresses: &BTreeMap<IpAddr, Address>) -> BTreeSet<Arc<str>> {
    let claims = addresses.values().filter(|address| address.claimed != address.evicted);
    claims.filter_map(|address| address.claimed.clone()).collect()
}
