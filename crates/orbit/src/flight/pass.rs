//! One pass: look, compare, change, tell.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::{Access, Instances, Ports, Routes, SecurityGroups};
use groundcrew_core::runtime::Runtime;
use jiff::Timestamp;
use kube::Client;
use tracing::info;

use super::apply::apply;
use super::fleet::fleet;
use super::ladder::{View, climb};
use super::memory::Memory;
use super::nodes::Node;
use super::observe::{Observed, observe};
use super::plan::{HOOK, NUDGE, RESYNC, plan};
use super::probes::{hear, is_silent, reports};
use super::push::{Pace, Signal};
use super::settings::Settings;
use super::sightings::Sightings;
use super::status::{Failure, PROBES_DOUBTED, PROBES_UNKNOWN, Status, Told};
use crate::nodes::list;

/// All of one look. The client gives up on single calls long before.
const LOOK_DEADLINE: Duration = Duration::from_mins(3);

pub(crate) struct Flight<C> {
    pub(crate) cloud: Arc<C>,
    pub(crate) client: Client,
    pub(crate) runtime: Runtime,
    pub(crate) settings: Settings,
    pub(crate) memory: Memory,
    pub(crate) status: Status,
    /// Since when every pass has seen everything.
    pub(crate) steady_since: Option<Moment>,
    /// Servers of the cluster that are no Nodes.
    pub(crate) sightings: Sightings,
    /// Nodes that are not ready.
    pub(crate) unready: Sightings,
    /// Nodes that probes do not reach.
    pub(crate) unreached: Sightings,
    pub(crate) pace: Pace,
    /// What is in the way of believing the probes.
    pub(crate) doubts: Vec<Told>,
}

impl<C: Access + Instances + Ports + Routes + SecurityGroups> Flight<C> {
    /// Whether everything could be looked at. Without a term nothing is written.
    pub(crate) async fn pass(&mut self, term: Option<&Term>) -> Result<(), ()> {
        let began = Moment::now();
        let done = match list(&self.client).await {
            Ok(nodes) => self.over(&nodes, began, term).await,
            Err(error) => Err(Failure::NodesUnknown(error.to_string())),
        };
        done.map_err(|failure| {
            self.steady_since = None;
            self.sightings.forget();
            self.unreached.forget();
            self.status.failed(&failure, term.is_some());
        })
    }

    async fn over(&mut self, nodes: &[Node], began: Moment, term: Option<&Term>) -> Result<(), Failure> {
        let look = observe(&*self.cloud, nodes, &self.settings);
        let seen = tokio::time::timeout(LOOK_DEADLINE, look).await;
        let seen = seen.map_err(|_| format!("it did not show everything within {} s", LOOK_DEADLINE.as_secs()));
        let seen = seen.and_then(|seen| seen.map_err(|error| error.to_string()));
        let observed = seen.map_err(Failure::CloudUnavailable)?;
        let observed = Observed { unreachable: self.unreachable(nodes).await, ..observed };
        let taken = self.memory.load().await.map_err(|error| Failure::RepairsUnknown(error.to_string()))?;
        let steady_since = *self.steady_since.get_or_insert(began);
        let fleet = fleet(nodes, &observed.instances, &observed.marks);
        let alone = fleet.iter().filter(|member| member.node.is_none());
        let nodeless = self.sightings.look(alone.map(|member| member.instance.id.as_str()), Moment::now());
        let spells: Vec<_> = nodes.iter().filter_map(Node::spell).collect();
        let unready = self.unready.look(spells.iter().map(String::as_str), Moment::now());
        let view = View {
            fleet: &fleet,
            nodes,
            complete: observed.complete,
            steady: steady_since.until(Moment::now()),
            unready: &unready,
            nodeless: &nodeless,
            taken: &taken,
            now: Timestamp::now(),
        };
        let (lasting, helpless) = self.out_of_reach(nodes, &observed);
        let due = |action| self.pace.is_due(action, self.settings.push_every, began);
        let signal =
            Signal { lasting: &lasting, helpless: &helpless, nudge: due(NUDGE), resync: due(RESYNC), hook: due(HOOK) };
        let plan = plan(nodes, &fleet, &observed, climb(view, &self.settings.ladder), signal, &self.settings);
        for step in &plan.steps {
            info!(%step, "planned");
        }
        for diff in plan.diffs() {
            self.runtime.show_plan(diff);
        }
        let applied = match term {
            Some(term) => Some(apply(&plan, &*self.cloud, &self.client, &mut self.memory, term).await),
            None => None,
        };
        for (step, _) in plan.steps.iter().zip(applied.iter().flatten()) {
            self.pace.took(step.action(), began);
        }
        self.status.passed(&plan, applied.as_ref(), &self.doubts);
        Ok(())
    }

    /// The Nodes that probes do not reach. Without their word, nothing is done that needs it, and nothing is said to be over.
    async fn unreachable(&mut self, nodes: &[Node]) -> Option<BTreeSet<String>> {
        let namespace = self.settings.probes.as_ref()?;
        let heard = reports(&self.client, namespace, Timestamp::now()).await.map_err(|error| error.to_string());
        let heard =
            heard.and_then(|reports| if is_silent(&reports, nodes) { Err(silence(namespace)) } else { Ok(reports) });
        match heard {
            Ok(reports) => {
                let heard = hear(&reports, nodes);
                self.doubts = heard.doubts.into_iter().map(|doubt| (PROBES_DOUBTED, doubt)).collect();
                Some(heard.unreachable)
            }
            Err(why) => {
                self.doubts = vec![(PROBES_UNKNOWN, format!("nobody says which Nodes are out of reach: {why}"))];
                None
            }
        }
    }

    /// The ready Nodes that have been out of reach for long enough to do something, and for twice as long.
    fn out_of_reach<'a>(&mut self, nodes: &'a [Node], observed: &Observed) -> (Vec<&'a Node>, Vec<&'a Node>) {
        let names = observed.unreachable.iter().flatten().map(String::as_str);
        let ages = self.unreached.look(names, Moment::now());
        let patience = self.settings.unreachable_after;
        let out_for = |time: Duration| {
            let out =
                |node: &&Node| node.unready_since.is_none() && ages.get(&node.name).is_some_and(|age| *age >= time);
            nodes.iter().filter(out).collect::<Vec<_>>()
        };
        (out_for(patience), out_for(2 * patience))
    }
}

fn silence(namespace: &str) -> String {
    format!("no probe on a ready Node has written its Lease in namespace {namespace} lately; does net-probe run there?")
}
