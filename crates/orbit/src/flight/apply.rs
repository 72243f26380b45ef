//! Carries a plan out. The only module that changes the cloud.

use std::time::Duration;

use groundcrew_api::node_repair::{NodeRepairStatus, RepairStep};
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{ErrorKind, Instances, Port, Ports, ProviderError, Reboot, SecurityGroups};
use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tracing::{info, warn};

use super::ladder::Repair;
use super::memory::Memory;
use super::nodes::Node;
use super::plan::{Plan, Step};

/// For a call to the API server.
const DEADLINE: Duration = Duration::from_secs(4);
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

/// Looks once more, notes the step, takes it. A step that was refused is not noted: the next one would follow on nothing.
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
    let node = in_time(nodes.get_opt(name)).await?;
    match (node.map(Node::from), repair.member.node) {
        (Some(_), None) => return Err(ApplyError::Changed("the server became a Node")),
        (Some(now), Some(seen)) if now.uid != seen.uid || now.paused || now.unready_since != seen.unready_since => {
            return Err(ApplyError::Changed("the Node changed"));
        }
        (None, Some(_)) => return Err(ApplyError::Changed("the Node went away")),
        _ => {}
    }
    let why = repair.why.to_string().chars().take(LONGEST).collect();
    let noted = NodeRepairStatus { step: repair.step, at: Time(Timestamp::now()), why };
    let before = memory.note(repair.member, noted.clone(), term).await?;
    let ordered = match repair.step {
        RepairStep::SoftReboot => cloud.reboot(&planned.id, Reboot::Soft, term).await,
        RepairStep::HardReboot => cloud.reboot(&planned.id, Reboot::Hard, term).await,
        RepairStep::Delete => cloud.delete_instance(&planned.id, term).await,
    };
    if let Err(error) = &ordered {
        let left = left_of(noted, before, error);
        if let Err(error) = memory.correct(&planned.id, left, term).await {
            warn!(server = planned.id, %error, "a step that failed stays noted as taken");
        }
    }
    Ok(ordered?)
}

async fn in_time<T>(read: impl Future<Output = kube::Result<T>>) -> Result<T, ProviderError> {
    match tokio::time::timeout(DEADLINE, read).await {
        Ok(read) => read.map_err(|error| ProviderError::from_kube("read the Node", &error)),
        Err(_) => Err(ProviderError::new(ErrorKind::Unavailable, "read the Node: no answer")),
    }
}

/// What stays noted of a step that failed.
fn left_of(
    noted: NodeRepairStatus,
    before: Option<NodeRepairStatus>,
    error: &ProviderError,
) -> Option<NodeRepairStatus> {
    match noted.step {
        _ if !error.maybe_applied() => before,
        // Its cool-down counts, in case it was taken. But a delete must follow on a reboot that is known to have been.
        RepairStep::HardReboot => Some(NodeRepairStatus { step: RepairStep::SoftReboot, ..noted }),
        RepairStep::SoftReboot | RepairStep::Delete => Some(noted),
    }
}

#[cfg(test)]
mod tests {
    use RepairStep::{Delete, HardReboot, SoftReboot};

    use super::*;

    fn status(step: RepairStep, at: i64) -> NodeRepairStatus {
        NodeRepairStatus { step, at: Time(Timestamp::from_second(at).unwrap()), why: String::new() }
    }

    #[test]
    fn a_step_that_was_refused_leaves_what_was_noted_before_it() {
        let refused = ProviderError::new(ErrorKind::Conflict, "locked");
        assert_eq!(left_of(status(SoftReboot, 9), None, &refused), None);
        let before = Some(status(SoftReboot, 1));
        assert_eq!(left_of(status(HardReboot, 9), before.clone(), &refused), before);
    }

    #[test]
    fn a_step_whose_answer_was_lost_has_its_cool_down_and_is_no_reason_to_delete() {
        let lost = ProviderError::new(ErrorKind::Unavailable, "503").with_maybe_applied(true);
        assert_eq!(left_of(status(SoftReboot, 9), None, &lost), Some(status(SoftReboot, 9)));
        assert_eq!(left_of(status(HardReboot, 9), None, &lost), Some(status(SoftReboot, 9)));
        let before = Some(status(HardReboot, 1));
        assert_eq!(left_of(status(Delete, 9), before, &lost), Some(status(Delete, 9)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_never_answers_does_not_hold_up_the_pass() {
        let silent = in_time(std::future::pending::<kube::Result<()>>()).await.unwrap_err();
        assert_eq!((silent.kind(), silent.to_string().as_str()), (ErrorKind::Unavailable, "read the Node: no answer"));
    }
}
