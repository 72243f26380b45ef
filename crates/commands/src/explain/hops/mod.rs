//! The way of a Service's traffic, hop by hop: what each is, and what is wrong with it. Pure.

mod address;
mod cloudsigma;
mod endpoints;
mod ovn;
mod remedy;

use groundcrew_api::names::{annotation, class, condition, finalizer};
use k8s_openapi::api::core::v1::Service;

use super::facts::{Facts, annotation as annotated, condition as told, ports};
use crate::finding::Finding;
use crate::leases::Leadership;

/// Who answers for a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provider {
    Ovn,
    CloudSigma,
    /// kube-dc's own manager, on OVN.
    KubeDc,
}

/// Every hop, in the order in which to look for the fault.
pub(crate) fn hops(facts: &Facts) -> Vec<Finding> {
    let service = match &facts.service {
        Ok(Some(service)) => service,
        Ok(None) => {
            let next = format!("kubectl get services -n {}", facts.namespace);
            return vec![Finding::bad("service", format!("there is no Service {}", facts.key()), next)];
        }
        Err(why) => {
            let next = "look at the kubeconfig, and at the rights of its user";
            return vec![Finding::unknown("service", why.to_string(), next)];
        }
    };
    let mut hops = vec![itself(service)];
    let (class, provider) = class_hop(facts, service);
    hops.push(class);
    let Some(provider) = provider else { return hops };
    hops.push(controller(facts, service, provider));
    hops.extend(flapping(service));
    hops.push(address::published(service));
    match provider {
        Provider::Ovn => {
            hops.extend(address::eips(facts, service));
            hops.extend(ovn::hops(facts, service, ovn::Rows::Marked));
        }
        Provider::KubeDc => {
            hops.extend(address::eips(facts, service));
            hops.extend(ovn::hops(facts, service, ovn::Rows::Named));
        }
        Provider::CloudSigma => hops.extend(cloudsigma::hops(facts, service)),
    }
    hops
}

/// Whether it is a Service that anybody would serve.
fn itself(service: &Service) -> Finding {
    const NAME: &str = "service";
    let spec = service.spec.as_ref();
    let kind = spec.and_then(|spec| spec.type_.as_deref()).unwrap_or("ClusterIP");
    if service.metadata.deletion_timestamp.is_some() {
        let left = service.metadata.finalizers.as_deref().unwrap_or_default().join(", ");
        let found = format!("it is being deleted, and waits for the finalizers {left}");
        return Finding::bad(NAME, found, "look whether the controllers of these finalizers run");
    }
    if kind != "LoadBalancer" {
        let found = format!("its type is {kind}: nobody gives it an address outside");
        return Finding::bad(NAME, found, "set spec.type to LoadBalancer");
    }
    if annotated(service.metadata.annotations.as_ref(), annotation::PAUSED) == Some("true") {
        let found = format!("it is paused by the annotation {}: nothing about it is put right", annotation::PAUSED);
        return Finding::bad(NAME, found, format!("take the annotation {} away", annotation::PAUSED));
    }
    let ports: Vec<_> = ports(service).iter().map(|port| format!("{}/{}", port.number, port.protocol.word())).collect();
    Finding::good(NAME, format!("type LoadBalancer, {}", ports.join(", ")))
}

/// Whose it is.
fn class_hop(facts: &Facts, service: &Service) -> (Finding, Option<Provider>) {
    const NAME: &str = "class";
    let asked = service.spec.as_ref().and_then(|spec| spec.load_balancer_class.as_deref());
    let claimed = annotated(service.metadata.annotations.as_ref(), annotation::CLAIMED_BY);
    let by_kube_dc =
        service.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == finalizer::KUBE_DC_SERVICE);
    let provider = match asked.or(claimed) {
        Some(class::OVN) => Some(Provider::Ovn),
        Some(class::CLOUDSIGMA) => Some(Provider::CloudSigma),
        // A class of the operator's own naming. Which cloud it is is told by what is there.
        Some(other) if claimed == Some(other) => {
            let floats = facts.floating.as_ref().is_ok_and(|all| !all.is_empty());
            Some(if floats { Provider::CloudSigma } else { Provider::Ovn })
        }
        _ if by_kube_dc => Some(Provider::KubeDc),
        _ => None,
    };
    let finding = match (provider, asked, claimed) {
        (Some(Provider::KubeDc), ..) => Finding::good(NAME, "served by kube-dc's manager"),
        (Some(_), Some(class), _) => Finding::good(NAME, class),
        (Some(_), None, claimed) => Finding::good(NAME, format!("none; claimed by {}", claimed.unwrap_or_default())),
        (None, Some(class), _) => Finding::bad(
            NAME,
            format!("no controller has claimed the class {class}"),
            format!(
                "run a controller with --class {class}; or make the Service again with loadBalancerClass {} or {}",
                class::OVN,
                class::CLOUDSIGMA
            ),
        ),
        (None, None, _) => Finding::bad(
            NAME,
            "it has no loadBalancerClass, and no controller has claimed it",
            format!(
                "make it again with loadBalancerClass {} or {}, or start the controller with --take-classless",
                class::OVN,
                class::CLOUDSIGMA
            ),
        ),
    };
    (finding, provider)
}

/// Whether somebody works on it.
fn controller(facts: &Facts, service: &Service, provider: Provider) -> Finding {
    const NAME: &str = "controller";
    let lease = match provider {
        Provider::Ovn => "groundcrew-ovn-lb",
        Provider::CloudSigma => "groundcrew-cloudsigma-ccm",
        Provider::KubeDc => {
            return Finding::note(NAME, "kube-dc's manager: look at its pod for whether it runs");
        }
    };
    let leases = match &facts.leases {
        Ok(leases) => leases.iter().filter(|each| each.metadata.name.as_deref() == Some(lease)).collect::<Vec<_>>(),
        Err(why) => return Finding::unknown(NAME, why.to_string(), "ask as a user who may list Leases"),
    };
    let ages: Vec<_> = leases.iter().map(|lease| Leadership::of(lease, facts.now)).collect();
    if let Some(Leadership::Held { by, age }) = ages.iter().find(|age| matches!(age, Leadership::Held { .. })) {
        return Finding::good(NAME, format!("{by} leads, and has said so {} s ago", age.as_secs()));
    }
    let log = format!("look at the pods of the Deployment {lease}, and into their logs");
    match ages.first() {
        Some(Leadership::Late { by, age }) => {
            let found = format!("nobody leads: {by} was the last, and has been silent for {} s", age.as_secs());
            Finding::bad(NAME, found, log)
        }
        Some(_) => Finding::bad(NAME, "nobody leads: the last leader ended in order", log),
        None if claimed(service) => {
            Finding::note(NAME, format!("there is no Lease {lease}: it runs without election, or not any more"))
        }
        None => Finding::bad(
            NAME,
            format!("nobody has claimed the Service, and there is no Lease {lease}"),
            "install the controller, or look at why its pods do not start",
        ),
    }
}

/// Whether a controller of ours has put its finalizer on it.
fn claimed(service: &Service) -> bool {
    service.metadata.finalizers.iter().flatten().any(|each| each == finalizer::LOAD_BALANCER_CLEANUP)
}

/// Whether it is held back because another writer does not rest.
fn flapping(service: &Service) -> Option<Finding> {
    let condition = told(service, condition::SERVICE_DRIFT_FLAPPING).filter(|condition| condition.status == "True")?;
    let next = "find the other writer, which the message names, and stop it";
    Some(Finding::bad("drift", condition.message.clone(), next))
}
