//! `groundcrew status`: who leads, and which Services wait for what.

use std::fmt::Write;

use groundcrew_api::names::{annotation, class, condition};
use groundcrew_core::runtime::StartError;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Serialize;

use crate::cluster::{ClusterArgs, Seen, read, server_time};
use crate::leases::{Leadership, controllers};
use crate::output::{Answer, Output, columns, data};
use crate::ovn::{Northbound, OvnArgs, everything};

/// Services are read in pages, so that ten thousand of them do not come as one answer.
const PAGE: u32 = 500;

/// Flags of `groundcrew status`.
#[derive(Debug, Clone, clap::Args)]
pub struct StatusArgs {
    /// How the answer is printed
    #[arg(long, short, env = "GROUNDCREW_OUTPUT", value_name = "FORMAT", default_value = "table")]
    output: Output,

    #[command(flatten)]
    ovn: OvnArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    controllers: Vec<Controller>,
    /// How the connection to OVN stands, if it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    ovn: Option<String>,
    /// How many Services have an address of ours.
    served: usize,
    waiting: Vec<Waiting>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Controller {
    name: String,
    namespace: String,
    leader: Option<String>,
    /// Since when it has been silent, if it should not be.
    silent_seconds: Option<i64>,
    transitions: i32,
}

/// A Service that has no address, or has one that does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Waiting {
    service: String,
    age_seconds: i64,
    reason: String,
    message: String,
}

/// Everything at a glance. Exits with 1 where a controller has no leader or a Service waits.
pub async fn status(args: &StatusArgs) -> Result<Answer, StartError> {
    let client = args.cluster.client().await?;
    let now = server_time(&client).await?;
    let leases = controllers(&client, args.cluster.lease_namespace.as_deref()).await?;
    let ovn = match args.ovn.northbound::<Northbound>() {
        Some(replica) => Some(match everything(&replica).await {
            Ok(_) => format!("connected: {}", replica.client().state()),
            Err(why) => why.to_string(),
        }),
        None => None,
    };
    let (served, waiting) = services(&client, now).await?;
    let status =
        Status { controllers: leases.iter().map(|lease| controller(lease, now)).collect(), ovn, served, waiting };
    let broken = !status.waiting.is_empty() || status.controllers.iter().any(|each| each.leader.is_none());
    let text = if args.output == Output::Table { table(&status) } else { data(&status, args.output) };
    Ok(Answer { text, code: broken.into() })
}

fn controller(lease: &Lease, now: Timestamp) -> Controller {
    let (leader, silent) = match Leadership::of(lease, now) {
        Leadership::Held { by, .. } => (Some(by), None),
        Leadership::Late { age, .. } => (None, Some(age.as_secs())),
        Leadership::Free => (None, None),
    };
    let name = lease.metadata.name.as_deref().unwrap_or_default();
    Controller {
        name: name.strip_prefix("groundcrew-").unwrap_or(name).to_owned(),
        namespace: lease.metadata.namespace.clone().unwrap_or_default(),
        leader,
        silent_seconds: silent,
        transitions: lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default(),
    }
}

/// How many of ours are served, and those that wait.
async fn services(client: &Client, now: Timestamp) -> Seen<(usize, Vec<Waiting>)> {
    let api: Api<Service> = Api::all(client.clone());
    let (mut served, mut waiting, mut params) = (0, Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = read("Services", api.list(&params)).await?;
        for service in page.items.iter().filter(|service| is_ours(service)) {
            match wait(service, now) {
                Some(line) => waiting.push(line),
                None => served += 1,
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok((served, waiting)),
        }
    }
}

fn is_ours(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    let named = matches!(spec.load_balancer_class.as_deref(), Some(class::OVN | class::CLOUDSIGMA));
    let claimed = service.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(annotation::CLAIMED_BY));
    spec.type_.as_deref() == Some("LoadBalancer") && (named || claimed)
}

/// Why it waits; `None` if it is served.
fn wait(service: &Service, now: Timestamp) -> Option<Waiting> {
    let status = service.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let told = |kind, state| conditions.iter().find(|each| each.type_ == kind && each.status == state);
    let trouble = told(condition::SERVICE_READY, "False").or_else(|| told(condition::SERVICE_DRIFT_FLAPPING, "True"));
    let published = status.load_balancer.and_then(|balancer| balancer.ingress).is_some_and(|all| !all.is_empty());
    if published && trouble.is_none() {
        return None;
    }
    let (reason, message) = trouble.map_or_else(
        || ("Pending".to_owned(), "no controller has come to it yet".to_owned()),
        |told| (told.reason.clone(), told.message.clone()),
    );
    let meta = &service.metadata;
    let age = meta.creation_timestamp.as_ref().map_or(SignedDuration::ZERO, |made| now.duration_since(made.0));
    Some(Waiting {
        service: format!(
            "{}/{}",
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default()
        ),
        age_seconds: age.as_secs().max(0),
        reason,
        message,
    })
}

fn table(status: &Status) -> String {
    let mut text = String::new();
    if status.controllers.is_empty() {
        text.push_str("no controller has a Lease: none is installed, or they run without election\n");
    } else {
        let cells = status.controllers.iter().map(|each| {
            let leader = match (&each.leader, each.silent_seconds) {
                (Some(leader), _) => leader.clone(),
                (None, Some(seconds)) => format!("NOBODY, silent for {seconds} s"),
                (None, None) => "NOBODY".to_owned(),
            };
            [each.name.clone(), each.namespace.clone(), leader, each.transitions.to_string()]
        });
        text.push_str(&columns(&["CONTROLLER", "NAMESPACE", "LEADER", "CHANGES"], cells));
    }
    if let Some(ovn) = &status.ovn {
        text.push_str("\nOVN: ");
        text.push_str(ovn);
        text.push('\n');
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n{} Services served, {} waiting", status.served, status.waiting.len());
    if !status.waiting.is_empty() {
        let cells = status.waiting.iter().map(|each| {
            [each.service.clone(), format!("{} s", each.age_seconds), each.reason.clone(), each.message.clone()]
        });
        text.push('\n');
        text.push_str(&columns(&["SERVICE", "AGE", "REASON", "MESSAGE"], cells));
        text.push_str("\nnext: groundcrew explain service NAMESPACE/NAME\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(status: &Value) -> Service {
        serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "shop", "creationTimestamp": "2026-01-01T11:59:00Z" },
            "spec": { "type": "LoadBalancer", "loadBalancerClass": "groundcrew.dev/ovn" },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_service_waits_until_it_has_an_address_that_answers() {
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        let ingress = json!({ "ingress": [{ "ip": "192.0.2.7" }] });
        let failed = json!([{
            "type": "groundcrew.dev/Ready", "status": "False", "reason": "PoolEmpty", "message": "pool public is empty",
            "lastTransitionTime": "2026-01-01T11:59:00Z",
        }]);
        assert_eq!(wait(&service(&json!({ "loadBalancer": ingress })), now), None);
        let pending = wait(&service(&json!({})), now).unwrap();
        assert_eq!((&*pending.reason, pending.age_seconds), ("Pending", 60));
        let told = wait(&service(&json!({ "loadBalancer": ingress, "conditions": failed })), now).unwrap();
        assert_eq!((&*told.service, &*told.reason), ("shop/web", "PoolEmpty"));
    }

    #[test]
    fn services_of_other_clouds_are_none_of_ours() {
        let mut other = service(&json!({}));
        assert!(is_ours(&other));
        other.spec.as_mut().unwrap().load_balancer_class = Some("example.com/other".into());
        assert!(!is_ours(&other));
    }
}
