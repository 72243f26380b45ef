//! Carries a plan out. The only module that changes the cloud.

use std::time::Duration;

use groundcrew_api::node_repair::RepairStep;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{Instances, Port, Ports, ProviderError, Reboot, SecurityGroups};
use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tracing::{info, warn};

use super::ladder::Repair;
use super::memory::Memory;
use super::nodes::Node;
use super::plan::{Plan, Step};

/// For a write to the API server.
const DEADLINE: Duration = Duration::from_secs(4);

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    /// The cloud or the API server refused, or did not answer.
    #[error(transparent)]
    Refused(#[from] ProviderError),
    /// It is not any more as it was when the plan was made.
    #[error("{0} meanwhile")]
    Changed(&'static str),
    /// It was written, and is not there.
    #[error("the port does not have the group after the write")]
    Undone,
}

/// How each step ended, in their order. What failed is planned again from a fresh look, never retried blindly.
pub(crate) type Applied = Vec<Result<(), ApplyError>>;

/// One failure does not stop the rest.
pub(crate) async fn apply<C>(plan: &Plan<'_>, cloud: &C, client: &Client, memory: &mut Memory, term: &Term) -> Applied
where
    C: Instances + Ports + SecurityGroups,
{
    for id in &plan.forget {
        if let Err(error) = memory.forget(id, term).await {
            warn!(server = id, %error, "the last repair is not forgotten yet");
        }
    }
    let mut applied = Vec::new();
    for step in &plan.steps {
        let done = match step {
            Step::AddRule { group, rule } => {
                cloud.add_rule(group, rule, term).await.map(drop).map_err(ApplyError::Refused)
            }
            Step::AddGroup { port, group, .. } => add_group(cloud, port, group, term).await,
            Step::Label { member, tags, metadata } => {
                cloud.mark_instance(&member.instance.id, tags, metadata, term).await.map_err(ApplyError::Refused)
            }
            Step::Show { node, condition, trouble } => show(client, node, condition, trouble.as_deref(), term).await,
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

async fn add_group<C: Ports>(cloud: &C, port: &Port, group: &str, term: &Term) -> Result<(), ApplyError> {
    let mut groups = port.groups.clone().unwrap_or_default();
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

/// The time of the condition is that of the change: nobody beats as a heart here.
async fn show(
    client: &Client,
    node: &Node,
    condition: &str,
    trouble: Option<&str>,
    term: &Term,
) -> Result<(), ApplyError> {
    let (status, reason, message) = match trouble {
        Some(trouble) => ("True", "SeenOnRouter", trouble),
        None => ("False", "AsItShouldBe", ""),
    };
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

/// Looks once more, notes the step, takes it.
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
    let nodes: Api<v1::Node> = Api::all(client.clone());
    let name = repair.member.node.map_or(&planned.name, |node| &node.name);
    let node = nodes.get_opt(name).await.map_err(|error| ProviderError::from_kube("read the Node", &error))?;
    match (node.map(Node::from), repair.member.node) {
        (Some(_), None) => return Err(ApplyError::Changed("the server became a Node")),
        (Some(now), Some(seen)) if now.uid != seen.uid || now.paused || now.unready_since != seen.unready_since => {
            return Err(ApplyError::Changed("the Node changed"));
        }
        (None, Some(_)) => return Err(ApplyError::Changed("the Node went away")),
        _ => {}
    }
    memory.note(repair, Timestamp::now(), term).await?;
    match repair.step {
        RepairStep::SoftReboot => cloud.reboot(&planned.id, Reboot::Soft, term).await?,
        RepairStep::HardReboot => cloud.reboot(&planned.id, Reboot::Hard, term).await?,
        RepairStep::Delete => cloud.delete_instance(&planned.id, term).await?,
    }
    Ok(())
}
