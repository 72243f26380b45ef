//! Whether a controller may do what it does.

use futures::stream::{self, StreamExt};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::cluster::{Seen, read};
use crate::finding::Finding;

/// A controller whose rights are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Controller {
    OvnLb,
    LbWatcher,
    CloudsigmaCcm,
    NodeAgent,
    Routegc,
    Flight,
    NetProbe,
    Deorbit,
}

/// What is asked for: verbs on a resource of a group, everywhere or in the controller's own namespace.
#[derive(Clone, Copy)]
struct Right {
    verbs: &'static [&'static str],
    group: &'static str,
    resource: &'static str,
    own: bool,
    lease: Option<&'static str>,
    /// The only object that a role need name.
    name: Option<&'static str>,
    /// The flag with which it is done without.
    unless: Option<&'static str>,
}

const fn right(verbs: &'static [&'static str], group: &'static str, resource: &'static str) -> Right {
    Right { verbs, group, resource, own: false, lease: None, name: None, unless: None }
}

/// On one object.
const fn named(name: &'static str, right: Right) -> Right {
    Right { name: Some(name), ..right }
}

/// Not where the controller was told this.
const fn unless(flag: &'static str, right: Right) -> Right {
    Right { unless: Some(flag), ..right }
}

/// In its own namespace only.
const fn own(right: Right) -> Right {
    Right { own: true, ..right }
}

/// On Leases of its own namespace.
const fn leases(verbs: &'static [&'static str]) -> Right {
    own(right(verbs, "coordination.k8s.io", "leases"))
}

/// To be elected by this Lease.
const fn leader(lease: &'static str) -> Right {
    Right { lease: Some(lease), ..leases(&["get", "create", "update"]) }
}

const EVENTS: Right = right(&["create"], "events.k8s.io", "events");
const SERVICES: Right = right(&["get", "list", "watch", "patch"], "", "services");
const SERVICE_STATUS: Right = right(&["patch"], "", "services/status");
const SLICES: Right = right(&["list", "watch"], "discovery.k8s.io", "endpointslices");

const OVN_LB: &[Right] = &[
    SERVICES,
    SERVICE_STATUS,
    SLICES,
    EVENTS,
    leader("groundcrew-ovn-lb"),
    right(&["list", "watch"], "", "nodes"),
    right(&["get", "list", "watch", "create", "patch", "delete"], "kube-dc.com", "eips"),
    right(&["patch"], "kube-dc.com", "eips/status"),
    right(&["list", "watch"], "groundcrew.dev", "addresspools"),
    right(&["patch"], "groundcrew.dev", "addresspools/status"),
];
const LB_WATCHER: &[Right] = &[
    right(&["list", "watch"], "", "services"),
    unless("--report-only", right(&["patch"], "", "services")),
    SLICES,
    EVENTS,
    leader("groundcrew-lb-watcher"),
];
/// Of cloudsigma-ccm: it serves no Services.
const NODES_ONLY: &str = "--disable-lb-ip-pool";
const CLOUDSIGMA_CCM: &[Right] = &[
    unless(NODES_ONLY, SERVICES),
    unless(NODES_ONLY, SERVICE_STATUS),
    unless(NODES_ONLY, SLICES),
    EVENTS,
    leader("groundcrew-cloudsigma-ccm"),
    right(&["list", "watch", "patch", "delete"], "", "nodes"),
    right(&["patch"], "", "nodes/status"),
    right(&["list", "watch"], "groundcrew.dev", "floatingips"),
    unless(NODES_ONLY, right(&["get", "create", "patch", "delete"], "groundcrew.dev", "floatingips")),
    unless(NODES_ONLY, leases(&["list", "watch"])),
];
const NODE_AGENT: &[Right] = &[
    right(&["get", "list", "watch"], "groundcrew.dev", "floatingips"),
    right(&["patch"], "groundcrew.dev", "floatingips/status"),
    right(&["get"], "", "nodes"),
    EVENTS,
    leases(&["get", "list", "create", "update"]),
];
const ROUTEGC: &[Right] = &[right(&["list"], "", "nodes"), EVENTS, leader("groundcrew-routegc")];
const FLIGHT: &[Right] = &[
    right(&["list", "watch"], "", "nodes"),
    right(&["patch"], "", "nodes/status"),
    right(&["list", "create", "delete"], "groundcrew.dev", "noderepairs"),
    right(&["update"], "groundcrew.dev", "noderepairs/status"),
    EVENTS,
    leader("groundcrew-flight"),
];
const NET_PROBE: &[Right] = &[own(SLICES), leases(&["create", "patch"])];
/// It applies its policy, so that the name is known when it is created.
const BLOCK: &[&str] = &["create", "patch", "delete"];
const DEORBIT: &[Right] = &[
    right(&["get", "list", "watch", "patch"], "groundcrew.dev", "deorbits"),
    right(&["update"], "groundcrew.dev", "deorbits/status"),
    named("kube-system", right(&["get"], "", "namespaces")),
    named("groundcrew-deorbit", right(BLOCK, "admissionregistration.k8s.io", "validatingadmissionpolicies")),
    named("groundcrew-deorbit", right(BLOCK, "admissionregistration.k8s.io", "validatingadmissionpolicybindings")),
    right(&["list", "patch"], "apps", "deployments"),
    right(&["list", "patch"], "apps", "statefulsets"),
    right(&["list", "patch"], "apps", "replicasets"),
    right(&["list", "patch"], "batch", "jobs"),
    right(&["list", "patch"], "batch", "cronjobs"),
    right(&["list", "delete"], "", "pods"),
    right(&["list", "delete"], "", "persistentvolumeclaims"),
    right(&["list", "patch", "delete"], "networking.k8s.io", "ingresses"),
    right(&["list", "delete"], "gateway.networking.k8s.io", "gateways"),
    right(&["list", "patch", "delete"], "", "services"),
    right(&["list", "patch", "delete"], "", "persistentvolumes"),
    right(&["list", "patch", "delete"], "storage.k8s.io", "volumeattachments"),
    right(&["list"], "storage.k8s.io", "storageclasses"),
    right(&["list", "patch", "delete"], "snapshot.storage.k8s.io", "volumesnapshots"),
    right(&["list", "patch", "delete"], "snapshot.storage.k8s.io", "volumesnapshotcontents"),
    own(right(&["create", "patch"], "", "configmaps")),
    EVENTS,
    leader("groundcrew-deorbit"),
];

impl Controller {
    fn rights(self) -> &'static [Right] {
        match self {
            Self::OvnLb => OVN_LB,
            Self::LbWatcher => LB_WATCHER,
            Self::CloudsigmaCcm => CLOUDSIGMA_CCM,
            Self::NodeAgent => NODE_AGENT,
            Self::Routegc => ROUTEGC,
            Self::Flight => FLIGHT,
            Self::NetProbe => NET_PROBE,
            Self::Deorbit => DEORBIT,
        }
    }

    /// The definitions that it works with, as the chart installs them.
    pub(super) fn definitions(self) -> &'static [&'static str] {
        match self {
            Self::OvnLb => &["addresspools.groundcrew.dev", "eips.kube-dc.com"],
            Self::CloudsigmaCcm | Self::NodeAgent => &["floatingips.groundcrew.dev"],
            Self::Flight => &["noderepairs.groundcrew.dev"],
            Self::Deorbit => &["deorbits.groundcrew.dev"],
            Self::LbWatcher | Self::Routegc | Self::NetProbe => &[],
        }
    }

    fn finding(self) -> &'static str {
        match self {
            Self::OvnLb => "rights of ovn-lb",
            Self::LbWatcher => "rights of lb-watcher",
            Self::CloudsigmaCcm => "rights of cloudsigma-ccm",
            Self::NodeAgent => "rights of node-agent",
            Self::Routegc => "rights of routegc",
            Self::Flight => "rights of flight",
            Self::NetProbe => "rights of net-probe",
            Self::Deorbit => "rights of deorbit",
        }
    }

    fn of_lease(lease: &Lease) -> Option<Self> {
        match lease.metadata.name.as_deref()? {
            "groundcrew-ovn-lb" => Some(Self::OvnLb),
            "groundcrew-lb-watcher" => Some(Self::LbWatcher),
            "groundcrew-cloudsigma-ccm" => Some(Self::CloudsigmaCcm),
            "groundcrew-routegc" => Some(Self::Routegc),
            "groundcrew-flight" => Some(Self::Flight),
            "groundcrew-deorbit" => Some(Self::Deorbit),
            _ => None,
        }
    }
}

/// Those that were named, else those that have a Lease.
pub(super) fn asked(named: &[Controller], leases: &Seen<Vec<Lease>>) -> Vec<Controller> {
    let mut asked: Vec<_> = match named {
        [] => leases.iter().flatten().filter_map(Controller::of_lease).collect(),
        named => named.to_vec(),
    };
    asked.sort();
    asked.dedup();
    asked
}

pub(super) async fn look(
    client: &Client,
    controllers: &[Controller],
    user: Option<&str>,
    namespace: &str,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for controller in controllers {
        findings.push(of(client, *controller, user, namespace).await);
    }
    findings
}

async fn of(client: &Client, controller: Controller, user: Option<&str>, namespace: &str) -> Finding {
    let name = controller.finding();
    let questions = controller.rights().iter().flat_map(|right| right.verbs.iter().map(move |verb| (right, *verb)));
    // A few at a time: each is a request, and the API server limits those of one user.
    let answers: Vec<_> = stream::iter(questions)
        .map(|(right, verb)| async move { (right, verb, may(client, right, verb, user, namespace).await) })
        .buffered(4)
        .collect()
        .await;
    let (mut missing, mut excuses) = (Vec::new(), Vec::new());
    for (right, verb, may) in &answers {
        match may {
            Ok(true) => {}
            Ok(false) => {
                missing.push(format!("{verb} {}", full(right)));
                excuses.push(right.unless);
            }
            Err(why) => return Finding::unknown(name, why.to_string(), "ask as a user who may create access reviews"),
        }
    }
    let who = user.unwrap_or("you");
    if missing.is_empty() {
        return Finding::good(name, format!("{who} may do all {} things", answers.len()));
    }
    let found = format!("{who} may not: {}", missing.join(", "));
    // All of them for one reason: the chart gives no more to one that is told so.
    if let Some(flag) = excuses[0].filter(|flag| excuses.iter().all(|excuse| *excuse == Some(flag))) {
        let next =
            format!("nothing if the controller has {flag}, which needs none of these; else add them to its role");
        return Finding::note(name, found).with_next(next);
    }
    let next = match user {
        Some(_) => "install the chart's rights for it (rbac.create), or add these to its role",
        None => "ask for the controller's own account: --service-account NAMESPACE/NAME",
    };
    Finding::bad(name, found, next)
}

fn full(right: &Right) -> String {
    if right.group.is_empty() { right.resource.to_owned() } else { format!("{}.{}", right.resource, right.group) }
}

async fn may(client: &Client, right: &Right, verb: &str, user: Option<&str>, namespace: &str) -> Seen<bool> {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (right.resource, None),
    };
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(right.group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource,
        namespace: right.own.then(|| namespace.to_owned()),
        // A role may name the one Lease; only create, list and watch cannot be allowed by name.
        name: right.lease.filter(|_| matches!(verb, "get" | "update")).or(right.name).map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let params = PostParams::default();
    let status = if let Some(user) = user {
        let spec = SubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            user: Some(user.to_owned()),
            groups: Some(groups(user)),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(client.clone());
        read("rights", api.create(&params, &review)).await?.status
    } else {
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        read("rights", api.create(&params, &review)).await?.status
    };
    Ok(status.is_some_and(|status| status.allowed))
}

/// A review does not add the groups that every ServiceAccount is in.
fn groups(user: &str) -> Vec<String> {
    let mut groups = vec!["system:authenticated".to_owned(), "system:serviceaccounts".to_owned()];
    let namespace = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split(':').next());
    groups.extend(namespace.map(|namespace| format!("system:serviceaccounts:{namespace}")));
    groups
}
