//! Carries a plan out. The only module that changes the cloud.

use std::time::Duration;

use groundcrew_api::node_repair::{NodeRepairStatus, RepairOutcome, RepairStep};
use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::{
    ErrorKind, Instance, Instances, NewRule, Port, Ports, ProviderError, Reboot, Route, Routes, SecurityGroups,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tracing::{info, warn};

use super::conditions::Change;
use super::fleet::{has_name, may_be};
use super::hook::{Hook, HookError};
use super::ladder::Repair;
use super::memory::Memory;
use super::nodes::Node;
use super::plan::{Plan, Step};
use crate::nodes::{NodesError, list};

/// For a call to the API server.
const DEADLINE: Duration = Duration::from_secs(4);
/// No step begins later than this after the first: what it was planned from is too old. Each ends by the deadlines of its calls.
const LAST_STEP: Duration = Duration::from_mins(2);
/// The longest reason that fits into a note.
const LONGEST: usize = 1_000;

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    /// The cloud or the API server refused, or did not answer.
    #[error(transparent)]
    Refused(#[from] ProviderError),
    /// It is not any more as it was when the plan was made.
    #[error("{0} meanwhile")]
    Changed(&'static str),
    /// Nothing but whole lists would do.
    #[error("the cloud cannot add and remove single routes (no extension extraroute-atomic)")]
    WholeListsOnly,
    /// Somebody else leads, and calls the hook if need be.
    #[error("not the leader any more; the hook was ended, if it was begun")]
    Deposed,
    /// The operator's hook did not do it.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// The same rule is there already, of somebody else.
    #[error("the group has a rule for tcp port 9 from 192.0.2.1/32 already, so nothing was sent again; delete it")]
    NothingNew,
    /// It was written, and is not there.
    #[error("the port does not have the group after the write")]
    Undone,
}

/// How each step ended that was begun, in their order. What failed or was not begun is planned again from a fresh look, never
/// retried blindly.
pub(crate) type Applied = Vec<Result<(), ApplyError>>;

/// One failure does not stop the rest.
pub(crate) async fn apply<C>(plan: &Plan<'_>, cloud: &C, client: &Client, memory: &mut Memory, term: &Term) -> Applied
where
    C: Instances + Ports + Routes + SecurityGroups,
{
    let began = Moment::now();
    for id in plan.forget.iter().take_while(|_| began.until(Moment::now()) < LAST_STEP) {
        if let Err(error) = memory.forget(id, term).await {
            warn!(server = id, %error, "the last repair is not forgotten yet");
        }
    }
    let mut applied = Vec::new();
    for step in &plan.steps {
        if began.until(Moment::now()) >= LAST_STEP {
            let left = plan.steps.len() - applied.len();
            warn!(left, "the rest has to wait for the next pass: this one takes too long");
            break;
        }
        let done = match step {
            Step::AddRule { group, rule } => {
                cloud.add_rule(group, rule, term).await.map(drop).map_err(ApplyError::Refused)
            }
            Step::AddGroup { port, group, .. } => add_group(cloud, port, group, term).await,
            Step::Label { member, tags, metadata } => {
                cloud.mark_instance(&member.instance.id, tags, metadata, term).await.map_err(ApplyError::Refused)
            }
            Step::Nudge { group, rule } => nudge(cloud, group, rule, term).await,
            Step::RemoveRule(rule) => cloud.delete_rule(&rule.id, term).await.map_err(ApplyError::Refused),
            Step::Resync { router, route } => resync(cloud, router, route, term).await,
            Step::RemoveRoute { router, route } => {
                let routes = std::slice::from_ref(*route);
                cloud.remove_routes(router, routes, term).await.map_err(ApplyError::Refused)
            }
            Step::CallHook { hook, nodes } => call(hook, nodes, term).await,
            Step::Show(change) => show(client, change, term).await,
            Step::Repair(repair) => take(repair, cloud, client, memory, term).await,
        };
        match &done {
            Ok(()) => info!(%step, "done"),
            Err(error) => warn!(%step, %error, "not done; looking again"),
        }
        applied.push(done);
    }
    applied
}

/// A port takes whole lists only, and not every cloud counts revisions: what another wrote since the look would be lost
/// without a word, so the port is read again.
async fn add_group<C: Ports>(cloud: &C, seen: &Port, group: &str, term: &Term) -> Result<(), ApplyError> {
    let port = &cloud.port(&seen.id).await?;
    if port.device != seen.device || port.network != seen.network || !port.secured {
        return Err(ApplyError::Changed("the port changed"));
    }
    let mut groups = port.groups.clone().ok_or(ApplyError::Changed("the groups of the port are no longer told"))?;
    if groups.iter().any(|id| id == group) {
        return Ok(());
    }
    groups.push(group.to_owned());
    let written = cloud.set_port_groups(port, &groups, term).await;
    // An answer that was lost may have been a success, and a success may have been undone by another writer.
    if written.as_ref().is_err_and(|error| !error.maybe_applied()) {
        written?;
    }
    let now = cloud.port(&port.id).await?;
    let there = now.groups.is_some_and(|groups| groups.iter().any(|id| id == group));
    if there { Ok(()) } else { Err(ApplyError::Undone) }
}

/// A rule that stays, because we die or the delete fails, is known by its description and goes with the next pass.
async fn nudge<C: SecurityGroups>(cloud: &C, group: &str, rule: &NewRule, term: &Term) -> Result<(), ApplyError> {
    let id = cloud.add_rule(group, rule, term).await?.ok_or(ApplyError::NothingNew)?;
    Ok(cloud.delete_rule(&id, term).await?)
}

/// A route that stays is known by its destination and goes with the next pass. Never by a whole list: somebody else's new
/// route is worth more than this.
async fn resync<C: Routes>(cloud: &C, router: &str, route: &Route, term: &Term) -> Result<(), ApplyError> {
    if !cloud.single_routes().await? {
        return Err(ApplyError::WholeListsOnly);
    }
    let only = std::slice::from_ref(route);
    cloud.add_routes(router, only, term).await?;
    Ok(cloud.remove_routes(router, only, term).await?)
}

/// It is no write of ours that could be fenced, so it ends with our right to write.
async fn call(hook: &Hook, nodes: &[&str], term: &Term) -> Result<(), ApplyError> {
    if !term.allows(Duration::ZERO) {
        return Err(ApplyError::Deposed);
    }
    tokio::select! {
        called = hook.call(nodes) => called.map_err(ApplyError::Hook),
        () = term.over() => Err(ApplyError::Deposed),
    }
}

/// The time of the condition is that of the change: nobody beats as a heart here.
async fn show(client: &Client, change: &Change<'_>, term: &Term) -> Result<(), ApplyError> {
    let Change { node, kind, words } = change;
    let (status, reason) = match words {
        Some(_) => ("True", kind.source()),
        None => ("False", "AsItShouldBe"),
    };
    let (condition, message) = (kind.name(), words.as_deref().unwrap_or_default());
    let now = Timestamp::now().to_string();
    let shown = json!({"type": condition, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now, "lastHeartbeatTime": now});
    let patch = Patch::Strategic(json!({"metadata": {"uid": node.uid}, "status": {"conditions": [shown]}}));
    let (nodes, params): (Api<v1::Node>, _) = (Api::all(client.clone()), PatchParams::default());
    let write = async {
        let written = nodes.patch_status(&node.name, &params, &patch).await;
        written.map_err(|error| ProviderError::from_kube("write a condition of the Node", &error))
    };
    term.write(DEADLINE, write).await.map_err(ProviderError::from)?;
    Ok(())
}

/// Looks once more, notes the step, orders it, notes what became of the order. A process that dies in between leaves a step
/// that nobody knows to have been ordered.
async fn take<C: Instances>(
    repair: &Repair<'_>,
    cloud: &C,
    client: &Client,
    memory: &mut Memory,
    term: &Term,
) -> Result<(), ApplyError> {
    let planned = repair.member.instance;
    let now = cloud.instance(&planned.id).await?;
    if now.state != planned.state || now.task.is_some() || now.locked {
        return Err(ApplyError::Changed("the server changed"));
    }
    let nodes: Vec<Node> = list(client).await.map_err(|error| unlisted(&error))?;
    unchanged(repair.member.node, &now, &nodes)?;
    let mut noted = NodeRepairStatus {
        step: repair.step,
        at: Time(Timestamp::now()),
        why: cut(&repair.why.to_string()),
        outcome: RepairOutcome::Begun,
        refusals: repair.refusals,
        refusal: None,
    };
    memory.note(repair.member, noted.clone(), term).await?;
    let ordered = match repair.step {
        RepairStep::SoftReboot => cloud.reboot(&planned.id, Reboot::Soft, term).await,
        RepairStep::HardReboot => cloud.reboot(&planned.id, Reboot::Hard, term).await,
        RepairStep::Delete => cloud.delete_instance(&planned.id, term).await,
    };
    if conclude(&mut noted, &ordered)
        && let Err(error) = memory.note(repair.member, noted, term).await
    {
        warn!(server = planned.id, %error, "the outcome is not noted; the step comes again");
    }
    Ok(ordered?)
}

/// Whether the server is still the same Node, or none. All Nodes are looked at: it may have become one under any name.
fn unchanged(seen: Option<&Node>, instance: &Instance, nodes: &[Node]) -> Result<(), ApplyError> {
    let Some(seen) = seen else {
        let is_one = |node: &Node| may_be(node, instance) || has_name(node, instance);
        return if nodes.iter().any(is_one) { Err(ApplyError::Changed("the server became a Node")) } else { Ok(()) };
    };
    let now = nodes.iter().find(|node| node.name == seen.name).ok_or(ApplyError::Changed("the Node went away"))?;
    if now.uid != seen.uid || now.server != seen.server || now.unready_since != seen.unready_since {
        return Err(ApplyError::Changed("the Node changed"));
    }
    if now.paused || now.cordoned {
        return Err(ApplyError::Changed("somebody took the Node in hand"));
    }
    if nodes.iter().any(|node| node.name != seen.name && may_be(node, instance)) {
        return Err(ApplyError::Changed("the server became another Node"));
    }
    Ok(())
}

/// Whether the answer says more about the order than that it was begun.
fn conclude(noted: &mut NodeRepairStatus, ordered: &Result<(), ProviderError>) -> bool {
    match ordered {
        Ok(()) => (noted.outcome, noted.refusals) = (RepairOutcome::Ordered, 0),
        Err(error) if error.maybe_applied() => return false,
        Err(error) => {
            noted.outcome = RepairOutcome::Refused;
            noted.refusals = noted.refusals.saturating_add(1);
            noted.refusal = Some(cut(&error.to_string()));
        }
    }
    true
}

fn cut(words: &str) -> String {
    words.chars().take(LONGEST).collect()
}

fn unlisted(error: &NodesError) -> ProviderError {
    ProviderError::new(ErrorKind::Unavailable, error.to_string())
}

#[cfg(test)]
#[path = "tests/apply.rs"]
mod tests;
