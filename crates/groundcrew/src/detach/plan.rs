//! Which finalizers are ours to take off, and what else of ours is in the way of others. Pure.

use std::fmt;

use groundcrew_api::names::{annotation, finalizer, label};
use kube::core::ObjectMeta;
use serde_json::{Value, json};

/// The name of both halves of the block, and of who applies them.
pub(crate) const BLOCK: &str = "groundcrew-deorbit";
/// A second binding, where the namespace is protected in which the block is tried.
pub(crate) const PROBE: &str = "groundcrew-deorbit-probe";

/// Whose things are let go.
#[derive(Debug, Clone)]
pub(crate) struct Whose {
    /// The cluster in the marks.
    pub(crate) cluster: String,
    /// The classes that were served.
    pub(crate) classes: Vec<String>,
}

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Service,
    EIp,
    Deorbit,
}

/// A finalizer to take off, and with what patch: it fails where somebody was quicker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) patch: Value,
    leaving: bool,
    address: Option<String>,
}

/// A half of the block on new things that a Deorbit puts up and takes away at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    /// Without it the policy has no effect, so that it goes first.
    Binding,
    Policy,
}

/// One that is there. It is deleted only as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) half: Half,
    pub(crate) name: &'static str,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
}

/// An object that has a finalizer of ours by name, but is another's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    what: String,
    why: String,
}

/// What to do, and what is left alone.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) kept: Vec<Kept>,
}

impl Plan {
    /// How many things are let go.
    pub(crate) fn len(&self) -> usize {
        self.steps.len() + self.blocks.len()
    }

    /// Looks at a half of the block. A name alone is nobody's: whoever applied it wrote so.
    pub(crate) fn look_at_block(&mut self, half: Half, name: &'static str, meta: &ObjectMeta) {
        let managers = meta.managed_fields.iter().flatten().filter_map(|fields| fields.manager.as_deref());
        if managers.into_iter().any(|manager| manager == BLOCK) {
            self.blocks.push(Block { half, name, uid: meta.uid.clone(), version: meta.resource_version.clone() });
        } else {
            let why = "it is not of a Deorbit's making".to_owned();
            self.kept.push(Kept { what: format!("{half} {name}"), why });
        }
    }

    /// Looks at one object. Most have nothing of ours.
    pub(crate) fn look(&mut self, kind: Kind, meta: &ObjectMeta, address: Option<String>, whose: &Whose) {
        let wanted = match kind {
            Kind::Service => finalizer::LOAD_BALANCER_CLEANUP,
            Kind::EIp => finalizer::EIP,
            Kind::Deorbit => finalizer::DEORBIT,
        };
        if !meta.finalizers.iter().flatten().any(|finalizer| finalizer == wanted) {
            return;
        }
        let namespace = meta.namespace.clone().unwrap_or_default();
        let name = meta.name.clone().unwrap_or_default();
        let patch = match kind {
            Kind::Service => match meta.annotations.as_ref().and_then(|all| all.get(annotation::CLAIMED_BY)) {
                Some(class) if whose.classes.contains(class) => unclaim(meta),
                Some(class) => {
                    let why = format!("it is served by the class {class} (--class)");
                    return self.kept.push(Kept { what: format!("{kind} {namespace}/{name}"), why });
                }
                // Every load balancer controller uses this name.
                None => return,
            },
            Kind::EIp => match meta.labels.as_ref().and_then(|all| all.get(label::CLUSTER)) {
                Some(cluster) if *cluster != whose.cluster => {
                    let why = format!("it is the cluster {cluster}'s (--cluster-id)");
                    return self.kept.push(Kept { what: format!("{kind} {namespace}/{name}"), why });
                }
                _ => without(meta, wanted),
            },
            // Nobody else uses this name.
            Kind::Deorbit => without(meta, wanted),
        };
        let leaving = meta.deletion_timestamp.is_some();
        self.steps.push(Step { kind, namespace, name, patch, leaving, address });
    }
}

/// As the Service controller does it when it lets go of one.
fn unclaim(meta: &ObjectMeta) -> Value {
    json!({
        "metadata": {
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "annotations": { annotation::CLAIMED_BY: null },
            "$deleteFromPrimitiveList/finalizers": [finalizer::LOAD_BALANCER_CLEANUP],
        }
    })
}

fn without(meta: &ObjectMeta, ours: &str) -> Value {
    let kept: Vec<_> = meta.finalizers.iter().flatten().filter(|finalizer| *finalizer != ours).collect();
    json!({ "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": kept } })
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Service => "Service",
            Self::EIp => "EIp",
            Self::Deorbit => "Deorbit",
        })
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binding => "ValidatingAdmissionPolicyBinding",
            Self::Policy => "ValidatingAdmissionPolicy",
        })
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "- {} {}, which refuses new load balancers and volumes", self.half, self.name)
    }
}

impl Step {
    /// The object, as people name it.
    pub(crate) fn object(&self) -> String {
        match self.kind {
            Kind::Service | Kind::EIp => format!("{} {}/{}", self.kind, self.namespace, self.name),
            Kind::Deorbit => format!("{} {}", self.kind, self.name),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "- finalizer of {}", self.object())?;
        if self.kind == Kind::Deorbit {
            let going = if self.leaving { "is being deleted and goes at once" } else { "nobody carries on" };
            return write!(f, ", which {going}; what it has stopped stays stopped ({})", annotation::BEFORE_DEORBIT);
        }
        match (&self.address, self.leaving) {
            (Some(address), true) => write!(f, ", which is being deleted and goes at once; {address} stays outside"),
            (None, true) => f.write_str(", which is being deleted and goes at once"),
            (Some(address), false) => write!(f, ", which keeps {address}"),
            (None, false) => Ok(()),
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {} is left alone: {}", self.what, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whose() -> Whose {
        Whose { cluster: "c1".into(), classes: vec!["groundcrew.dev/ovn".into()] }
    }

    fn look(kind: Kind, meta: &Value) -> Plan {
        let mut plan = Plan::default();
        plan.look(kind, &serde_json::from_value(meta.clone()).unwrap(), Some("192.0.2.7".into()), &whose());
        plan
    }

    fn meta(finalizers: &[&str], annotations: &Value, labels: &Value) -> Value {
        json!({
            "namespace": "shop", "name": "web", "uid": "u1", "resourceVersion": "7",
            "finalizers": finalizers, "annotations": annotations, "labels": labels,
        })
    }

    #[test]
    fn a_service_of_ours_is_let_go_and_nothing_but_our_marks_changes() {
        let claimed = json!({ annotation::CLAIMED_BY: "groundcrew.dev/ovn" });
        let plan =
            look(Kind::Service, &meta(&["other/finalizer", finalizer::LOAD_BALANCER_CLEANUP], &claimed, &json!({})));
        let [step] = &plan.steps[..] else { panic!("{plan:?}") };
        assert_eq!(step.to_string(), "- finalizer of Service shop/web, which keeps 192.0.2.7");
        assert_eq!(
            step.patch["metadata"]["$deleteFromPrimitiveList/finalizers"],
            json!([finalizer::LOAD_BALANCER_CLEANUP])
        );
        assert_eq!(step.patch["metadata"]["resourceVersion"], "7");
        assert!(step.patch["status"].is_null() && step.patch["spec"].is_null());
    }

    #[test]
    fn a_service_of_another_controller_is_left_alone() {
        // The name of the finalizer is everybody's.
        let plan = look(Kind::Service, &meta(&[finalizer::LOAD_BALANCER_CLEANUP], &json!({}), &json!({})));
        assert!(plan.steps.is_empty() && plan.kept.is_empty());
        let claimed = json!({ annotation::CLAIMED_BY: "groundcrew.dev/cloudsigma" });
        let plan = look(Kind::Service, &meta(&[finalizer::LOAD_BALANCER_CLEANUP], &claimed, &json!({})));
        assert!(plan.steps.is_empty());
        assert_eq!(
            plan.kept[0].to_string(),
            "  Service shop/web is left alone: it is served by the class groundcrew.dev/cloudsigma (--class)"
        );
        // Claimed, but without the finalizer: nothing keeps it.
        let claimed = json!({ annotation::CLAIMED_BY: "groundcrew.dev/ovn" });
        assert!(look(Kind::Service, &meta(&["other/finalizer"], &claimed, &json!({}))).steps.is_empty());
    }

    #[test]
    fn an_eip_keeps_the_finalizers_of_others_and_that_of_another_cluster_is_left_alone() {
        let finalizers = ["eip.kube-dc.com/finalizer", finalizer::EIP];
        let plan = look(Kind::EIp, &meta(&finalizers, &json!({}), &json!({ label::CLUSTER: "c1" })));
        assert_eq!(plan.steps[0].patch["metadata"]["finalizers"], json!(["eip.kube-dc.com/finalizer"]));
        let plan = look(Kind::EIp, &meta(&finalizers, &json!({}), &json!({ label::CLUSTER: "c2" })));
        assert!(plan.steps.is_empty() && plan.kept.len() == 1);
        // Without a label nobody else can have put it there.
        assert_eq!(look(Kind::EIp, &meta(&finalizers, &json!({}), &json!({}))).steps.len(), 1);
    }

    #[test]
    fn what_is_being_deleted_is_said_to_leave_its_address_outside() {
        let mut leaving = meta(&[finalizer::EIP], &json!({}), &json!({ label::CLUSTER: "c1" }));
        leaving["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert!(look(Kind::EIp, &leaving).steps[0].to_string().ends_with("goes at once; 192.0.2.7 stays outside"));
    }

    #[test]
    fn a_deorbit_is_let_go_and_says_that_what_it_stopped_stays_stopped() {
        let plan =
            look(Kind::Deorbit, &json!({ "name": "end", "uid": "u1", "finalizers": [finalizer::DEORBIT, "x/y"] }));
        assert_eq!(plan.steps[0].patch["metadata"]["finalizers"], json!(["x/y"]));
        assert_eq!(
            plan.steps[0].to_string(),
            "- finalizer of Deorbit end, which nobody carries on; what it has stopped stays stopped \
             (groundcrew.dev/before-deorbit)"
        );
        assert!(look(Kind::Deorbit, &json!({ "name": "end", "finalizers": ["x/y"] })).steps.is_empty());
    }

    #[test]
    fn a_policy_of_this_name_that_another_made_is_left_alone() {
        let block = |manager: &str| {
            let meta = json!({ "name": BLOCK, "uid": "u1", "managedFields": [{ "manager": manager }] });
            let mut plan = Plan::default();
            plan.look_at_block(Half::Policy, BLOCK, &serde_json::from_value(meta).unwrap());
            plan
        };
        assert_eq!(block(BLOCK).blocks[0].uid.as_deref(), Some("u1"));
        let plan = block("kubectl-create");
        assert!(plan.blocks.is_empty());
        assert_eq!(
            plan.kept[0].to_string(),
            "  ValidatingAdmissionPolicy groundcrew-deorbit is left alone: it is not of a Deorbit's making"
        );
    }
}
