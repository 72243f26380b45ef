//! Keeps nodes true to their servers: initialises new ones, follows addresses, and deletes those whose server is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_core::diff::Diff;
use groundcrew_core::events::{Severity, reference};
use groundcrew_core::leader::{Moment, Role, Term};
use groundcrew_core::provider::ProviderError;
use groundcrew_core::runtime::Runtime;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::initialise::Changes;
use super::lifecycle::{Evidence, verdict};
use super::{Nodes, PROVIDER, initialise, is_ready, server};
use crate::client::{Client, Kind, Server};
use crate::floating::Floating;
use crate::inventory::{Account, Inventory};
use crate::marks::{self, Mark};

pub(crate) use super::initialise::Site;

/// How long a node that was deleted counts among those that may go.
const WINDOW: Duration = Duration::from_mins(10);

pub(crate) struct Controller {
    pub(crate) nodes: Nodes,
    pub(crate) api: Api<Node>,
    pub(crate) client: Client,
    pub(crate) account: Account,
    pub(crate) floating: Floating,
    pub(crate) site: Site,
    pub(crate) cluster: Arc<str>,
    /// How many nodes may be deleted in a [`WINDOW`].
    pub(crate) limit: usize,
    pub(crate) deadline: Duration,
    pub(crate) interval: Duration,
    pub(crate) runtime: Runtime,
}

impl Controller {
    pub(crate) async fn run(self, role: watch::Receiver<Role>, stop: CancellationToken) {
        let mut role = role;
        let (mut went, mut shown) = (Vec::new(), BTreeMap::new());
        let (mut nodes, mut account) = (self.nodes.mirror.changes(), self.account.changes());
        loop {
            let term = role.borrow_and_update().term().cloned();
            nodes.borrow_and_update();
            account.borrow_and_update();
            match (term, self.account.last()) {
                (Some(term), Some(inventory)) => self.look(&inventory, &mut went, &term).await,
                (None, Some(inventory)) if self.runtime.dry_run => self.preview(&inventory, &mut shown).await,
                _ => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                _ = nodes.changed() => {}
                _ = account.changed() => {}
                Ok(()) = role.changed() => {}
                // What failed is looked at again, also where nothing changes.
                () = tokio::time::sleep(self.interval) => {}
            }
        }
    }

    /// `went` has when nodes were deleted.
    async fn look(&self, inventory: &Inventory, went: &mut Vec<Moment>, term: &Term) {
        let floating = self.floating_addresses(inventory);
        let account = self.site.account(&inventory.user);
        let mut evidence = BTreeMap::new();
        for node in self.nodes.all() {
            let Some(server) = self.server_of(&node, inventory).await else { continue };
            evidence.insert(node.name_any(), evidence_of(&node, &server, &account));
            if let Known::Here(server) = server {
                let changes = initialise::changes(&node, &server, &self.site, &account, &floating);
                self.bring_up_to_date(&node, &server, changes, term).await;
            }
        }
        let servers: BTreeSet<_> = inventory.servers.keys().cloned().collect();
        went.retain(|at| at.until(Moment::now()) < WINDOW);
        let verdict = verdict(&evidence, inventory.complete.then_some(&servers), self.limit, went.len());
        for name in verdict.delete {
            if let Some(Evidence { seen: (uid, resource_version), .. }) = evidence.remove(&name)
                && self.delete(&name, Preconditions { uid, resource_version }, term).await
            {
                went.push(Moment::now());
            }
        }
        if let Some((names, why)) = verdict.held {
            warn!(nodes = names.join(", "), "the servers of these nodes are gone, but the nodes are kept: {why}");
            for name in names {
                self.tell(
                    &name,
                    Severity::Warning,
                    "NodeKept",
                    format!("its server is gone from the account; kept: {why}"),
                );
            }
        }
    }

    /// What a look would do, for a dry run. `shown` has what was shown last: Nodes change all the time, and most of it changes
    /// nothing here.
    async fn preview(&self, inventory: &Inventory, shown: &mut BTreeMap<String, Vec<String>>) {
        let floating = self.floating_addresses(inventory);
        let account = self.site.account(&inventory.user);
        let (mut evidence, mut plans) = (BTreeMap::new(), BTreeMap::new());
        for node in self.nodes.all() {
            let Some(server) = self.server_of(&node, inventory).await else { continue };
            evidence.insert(node.name_any(), evidence_of(&node, &server, &account));
            if let Known::Here(server) = server {
                let changes = initialise::changes(&node, &server, &self.site, &account, &floating);
                plans.insert(node.name_any(), changes.lines(&node));
            }
        }
        let servers: BTreeSet<_> = inventory.servers.keys().cloned().collect();
        let verdict = verdict(&evidence, inventory.complete.then_some(&servers), self.limit, 0);
        for name in verdict.delete {
            plans.insert(name, vec!["- the Node: its server does not exist any more".to_owned()]);
        }
        if let Some((names, why)) = verdict.held {
            for name in names {
                plans.insert(name, vec![format!("! its server does not exist any more; kept: {why}")]);
            }
        }
        for (name, lines) in &plans {
            if !lines.is_empty() && shown.get(name) != Some(lines) {
                self.runtime.show_plan(Diff::of(format!("Node {name}"), lines));
            }
        }
        *shown = plans;
    }

    /// The server of a node: in the list, by itself, or known to be gone. `None` where nobody knows.
    async fn server_of(&self, node: &Node, inventory: &Inventory) -> Option<Known> {
        if node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_some()) {
            // One of another cloud is another controller's.
            let uuid = server(node)?;
            if let Some(server) = inventory.servers.get(uuid) {
                return Some(Known::Here(server.clone()));
            }
            return match self.client.server(uuid).await {
                Ok(server) => Some(Known::Here(server)),
                Err(error) if error.kind() == Kind::NotFound => Some(Known::Gone(uuid.to_owned())),
                Err(error) => {
                    debug!(node = node.name_any(), %error, "nothing is known of its server");
                    None
                }
            };
        }
        // It is written for ever: a node that somebody else initialised, or half a list, is no ground for it.
        if !inventory.complete || !initialise::is_new(node) {
            return None;
        }
        let servers: Vec<_> = inventory.servers.values().filter(|server| initialise::is_of(node, server)).collect();
        if let [server] = servers[..] {
            return Some(Known::Here(server.clone()));
        }
        let words = format!(
            "{} servers have its name and one of its addresses; start kubelet with --provider-id={PROVIDER}<uuid of its server>",
            servers.len()
        );
        self.tell(&node.name_any(), Severity::Warning, "ServerUnknown", words);
        None
    }

    async fn bring_up_to_date(&self, node: &Node, server: &Server, changes: Changes, term: &Term) {
        // Addresses first: what is scheduled on an untainted node may need them.
        let mut version = None;
        if let Some(patch) = changes.status {
            match self.patch(node, &patch, true, term).await {
                Ok(written) => version = written.resource_version(),
                Err(error) => return debug!(node = node.name_any(), %error, "addresses not written; looking again"),
            }
        }
        if let Some(mut patch) = changes.object {
            if let Some(version) = version {
                patch["metadata"]["resourceVersion"] = version.into();
            }
            match self.patch(node, &patch, false, term).await {
                Ok(_) => info!(node = node.name_any(), server = server.uuid, %patch, "brought up to date"),
                Err(error) => debug!(node = node.name_any(), %error, "not brought up to date; looking again"),
            }
        }
    }

    async fn patch(&self, node: &Node, patch: &Value, status: bool, term: &Term) -> Result<Node, ProviderError> {
        let (name, params, patch) = (node.name_any(), PatchParams::default(), Patch::Merge(patch));
        let write = async {
            let written = if status {
                self.api.patch_status(&name, &params, &patch).await
            } else {
                self.api.patch(&name, &params, &patch).await
            };
            written.map_err(|error| ProviderError::from_kube(&format!("cannot change node {name}"), &error))
        };
        Ok(term.write(self.deadline, write).await?)
    }

    /// Deletes it in the state in which it was found not ready. Whether it is gone, or may be.
    async fn delete(&self, name: &str, known: Preconditions, term: &Term) -> bool {
        let params = DeleteParams { preconditions: Some(known), ..DeleteParams::default() };
        let tried = format!("cannot delete node {name}");
        let delete =
            async { self.api.delete(name, &params).await.map_err(|error| ProviderError::from_kube(&tried, &error)) };
        self.tell(name, Severity::Normal, "DeletingNode", "its server does not exist any more".to_owned());
        match term.write(self.deadline, delete).await {
            Ok(_) => {
                info!(node = name, "deleted: its server does not exist any more");
                true
            }
            Err(error) => {
                warn!(node = name, %error, "not deleted; looking again");
                ProviderError::from(error).maybe_applied()
            }
        }
    }

    /// Addresses that move between nodes: by their marks, and by their objects.
    fn floating_addresses(&self, inventory: &Inventory) -> BTreeSet<IpAddr> {
        let marked = inventory.ips.values().filter(|ip| marks::read(&ip.meta, &self.cluster) != Mark::None);
        let made = self.floating.mirror.all().into_iter().filter_map(|object| object.spec.address.parse().ok());
        marked.map(|ip| ip.address).chain(made).collect()
    }

    fn tell(&self, name: &str, severity: Severity, reason: &'static str, words: String) {
        // A dry run writes nothing, Events neither.
        if !self.runtime.dry_run {
            // kubelet's own Events about a node name it in the place of its uid.
            self.runtime.events.tell(reference::<Node>(None, name, Some(name.to_owned())), severity, reason, words);
        }
    }
}

enum Known {
    Here(Server),
    Gone(String),
}

/// What is known of a node whose server is known, or known to be gone.
fn evidence_of(node: &Node, server: &Known, account: &str) -> Evidence {
    let (server, answered_gone) = match server {
        Known::Here(server) => (server.uuid.clone(), false),
        Known::Gone(uuid) => (uuid.clone(), true),
    };
    let was_here = initialise::account(node) == Some(account);
    let seen = (node.uid(), node.resource_version());
    Evidence { ready: is_ready(node), server, answered_gone, was_here, seen }
}
