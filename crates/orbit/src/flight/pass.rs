//! One pass: look, compare, change, tell.

use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::{Instances, Ports, ProviderError, Routes, SecurityGroups};
use jiff::Timestamp;
use kube::Client;
use tracing::info;

use super::apply::apply;
use super::fleet::fleet;
use super::ladder::{View, climb};
use super::memory::Memory;
use super::nodes::Node;
use super::observe::observe;
use super::plan::plan;
use super::settings::Settings;
use super::sightings::Sightings;
use super::status::Status;
use crate::nodes::list;

/// All of one look. The client gives up on single calls long before.
const LOOK_DEADLINE: Duration = Duration::from_mins(3);

pub(crate) struct Flight<C> {
    pub(crate) cloud: Arc<C>,
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) memory: Memory,
    pub(crate) status: Status,
    /// Since when every list of Nodes has come without a break.
    pub(crate) steady_since: Option<Moment>,
    pub(crate) sightings: Sightings,
}

impl<C: Instances + Ports + Routes + SecurityGroups> Flight<C> {
    /// Whether everything could be looked at. Without a term nothing is written.
    pub(crate) async fn pass(&mut self, term: Option<&Term>) -> Result<(), ()> {
        let nodes = self.nodes().await;
        let done = match &nodes {
            Ok(nodes) => self.over(nodes, term).await,
            Err(message) => Err(message.clone()),
        };
        done.map_err(|message| {
            self.sightings.forget();
            self.status.failed(&message, term.is_some());
        })
    }

    async fn nodes(&mut self) -> Result<Vec<Node>, String> {
        let listed = list(&self.client).await;
        self.steady_since = listed.is_ok().then(|| self.steady_since.unwrap_or_else(Moment::now));
        listed.map_err(|error| error.to_string())
    }

    async fn over(&mut self, nodes: &[Node], term: Option<&Term>) -> Result<(), String> {
        let look = async {
            let observed = observe(&*self.cloud, nodes, &self.settings).await?;
            Ok::<_, ProviderError>((observed, self.memory.load().await?))
        };
        let (observed, taken) = match tokio::time::timeout(LOOK_DEADLINE, look).await {
            Ok(seen) => seen.map_err(|error| error.to_string())?,
            Err(_) => return Err(format!("the cloud did not show everything within {} s", LOOK_DEADLINE.as_secs())),
        };
        let fleet = fleet(nodes, &observed.instances, &observed.marks);
        let nodeless = self.sightings.look(&fleet, Moment::now());
        let view = View {
            fleet: &fleet,
            has_nodes: !nodes.is_empty(),
            complete: observed.complete,
            steady: self.steady_since.map_or(Duration::ZERO, |since| since.until(Moment::now())),
            nodeless: &nodeless,
            taken: &taken,
            now: Timestamp::now(),
        };
        let plan = plan(nodes, &fleet, &observed, climb(view, &self.settings.ladder), &self.settings);
        for step in &plan.steps {
            info!(%step, "planned");
        }
        let applied = match term {
            Some(term) => Some(apply(&plan, &*self.cloud, &self.client, &mut self.memory, term).await),
            None => None,
        };
        self.status.passed(&plan, applied.as_ref());
        Ok(())
    }
}
