//! What is left, and why: every line of it is something that somebody pays for or waits for.

use groundcrew_api::deorbit::{DeorbitSpec, DeorbitStatus, ReportLine, StageName, StageState};
use groundcrew_core::provider::Leftover;

use super::apply::Failures;
use super::cloud::Sight;
use super::judge::Verdict;
use super::objects::Object;
use super::plan::{Kind, View};

/// What an operator reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Everything, what is kept last.
    pub lines: Vec<ReportLine>,
}

impl Report {
    /// How many things are left that nobody asked to keep.
    #[must_use]
    pub fn left(&self) -> usize {
        self.lines.iter().filter(|line| !line.kept).count()
    }

    /// From everything that was seen in one pass.
    #[must_use]
    pub fn new(view: &View<'_>, spec: &DeorbitSpec, status: &DeorbitStatus, failures: &Failures) -> Self {
        let mut lines = Vec::new();
        let targets = &view.targets;
        let mut objects = |stage: StageName, kind: Kind, objects: Vec<&Object>| {
            lines.extend(objects.into_iter().map(|object| line(status, failures, stage, kind, object)));
        };
        objects(StageName::Snapshots, Kind::Snapshot, targets.snapshots.clone());
        objects(StageName::Gateways, Kind::Gateway, targets.gateways.clone());
        objects(StageName::Gateways, Kind::Ingress, targets.ingresses.iter().map(|one| &one.object).collect());
        let services = targets.services.iter().map(|service| &service.object);
        objects(StageName::LoadBalancers, Kind::Service, services.collect());
        objects(StageName::Pods, Kind::Pod, targets.pods.iter().map(|pod| &pod.object).collect());
        objects(StageName::Claims, Kind::Claim, targets.claims.iter().map(|claim| &claim.object).collect());
        objects(StageName::Volumes, Kind::Volume, targets.volumes.iter().map(|volume| &volume.object).collect());
        objects(StageName::Cloud, Kind::Volume, targets.retained.iter().map(|volume| &volume.object).collect());
        let contents = targets.contents.iter().map(|content| &content.object);
        objects(StageName::Snapshots, Kind::Content, contents.collect());
        let attachments = targets.attachments.iter().map(|attachment| &attachment.object);
        objects(StageName::Volumes, Kind::Attachment, attachments.collect());
        lines.extend(targets.spared.iter().map(|spared| ReportLine {
            kind: spared.kind.into(),
            id: spared.key.clone(),
            name: spared.key.clone(),
            size: String::new(),
            reason: spared.why.clone(),
            command: command("delete", spared.kind, &spared.key),
            kept: spared.wanted,
        }));
        for (leftover, verdict) in view.judged() {
            let failed = failures.of(leftover.kind.name, &leftover.id);
            let (reason, kept) = match verdict {
                Verdict::Remove => {
                    let why = failed.map(ToOwned::to_owned).or_else(|| view.why_not(spec, &status.stages, leftover));
                    (why.unwrap_or_else(|| "it was ordered to go and is still there".into()), false)
                }
                Verdict::Await(why) | Verdict::Report(why) => (why.clone(), false),
                Verdict::Keep(why) => (why.clone(), true),
            };
            lines.push(outside(leftover, reason, kept));
        }
        lines.extend(view.sight.gaps.iter().map(|gap| unknown(gap)));
        lines.sort_by_key(|line| line.kept);
        Self { lines }
    }

    /// Where not even the cluster could be looked at: what the clouds show, and that nobody knows who needs it.
    #[must_use]
    pub fn blind(why: &str, sight: &Sight) -> Self {
        let mut lines = vec![unknown(why)];
        lines.extend(sight.items.iter().map(|leftover| {
            let reason = "Kubernetes could not be asked whether something still needs it";
            outside(leftover, reason.to_owned(), leftover.kept)
        }));
        lines.extend(sight.gaps.iter().map(|gap| unknown(gap)));
        lines.sort_by_key(|line| line.kept);
        Self { lines }
    }
}

/// Something that could not be seen.
fn unknown(why: &str) -> ReportLine {
    ReportLine {
        kind: "unknown".into(),
        id: String::new(),
        name: String::new(),
        size: String::new(),
        reason: why.to_owned(),
        command: String::new(),
        kept: false,
    }
}

fn outside(leftover: &Leftover, reason: String, kept: bool) -> ReportLine {
    ReportLine {
        kind: leftover.kind.name.into(),
        id: leftover.id.clone(),
        name: leftover.name.clone(),
        size: leftover.gib.map(|gib| format!("{gib} GiB")).unwrap_or_default(),
        reason: if leftover.about.is_empty() { reason } else { format!("{reason} ({})", leftover.about) },
        command: leftover.command.clone(),
        kept,
    }
}

fn line(status: &DeorbitStatus, failures: &Failures, stage: StageName, kind: Kind, object: &Object) -> ReportLine {
    let known = status.stages.iter().find(|known| known.name == stage);
    let reason = match (failures.of(kind.name(), &object.key()), known) {
        (Some(failed), _) => failed.to_owned(),
        (None, Some(known)) if known.state == StageState::GivenUp && !known.message.is_empty() => known.message.clone(),
        (None, None) => "to be deleted".to_owned(),
        _ if object.terminating.is_some() && !object.finalizers.is_empty() => {
            format!("waits for {}", object.finalizers.join(", "))
        }
        _ => "still there when the time was up".to_owned(),
    };
    let key = object.key();
    // One that is being deleted is not deleted any more by that.
    let command = if object.terminating.is_some() && !object.finalizers.is_empty() {
        let patch = "--type=merge -p '{\"metadata\":{\"finalizers\":null}}'";
        format!("{} {patch}", command("patch", kind.name(), &key))
    } else {
        command("delete", kind.name(), &key)
    };
    ReportLine {
        kind: kind.name().into(),
        id: key.clone(),
        name: key,
        size: String::new(),
        reason,
        command,
        kept: false,
    }
}

fn command(verb: &str, kind: &str, key: &str) -> String {
    // Others have Gateways, too, and kubectl takes those that come first.
    let kind = if kind == "Gateway" { "gateway.gateway.networking.k8s.io".into() } else { kind.to_ascii_lowercase() };
    match key.split_once('/') {
        Some((namespace, name)) => format!("kubectl -n {namespace} {verb} {kind} {name}"),
        None => format!("kubectl {verb} {kind} {key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_nobody_else_s_kind() {
        assert_eq!(command("delete", "Ingress", "shop/web"), "kubectl -n shop delete ingress web");
        assert_eq!(command("delete", "PersistentVolume", "pv"), "kubectl delete persistentvolume pv");
        let gateway = "kubectl -n shop delete gateway.gateway.networking.k8s.io front";
        assert_eq!(command("delete", "Gateway", "shop/front"), gateway, "and not Istio's");
    }
}
