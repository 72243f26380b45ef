//! The address, and where it came from.

use std::net::IpAddr;

use groundcrew_api::eip::{EIp, EIpOwner};
use groundcrew_api::names::condition;
use groundcrew_api::names::label;
use k8s_openapi::api::core::v1::Service;

use super::super::facts::{Facts, addresses, condition as told};
use super::remedy::remedy;
use crate::finding::Finding;

/// Whether it has one, or why not.
pub(super) fn published(service: &Service) -> Finding {
    const NAME: &str = "address";
    let addresses = addresses(service);
    if !addresses.is_empty() {
        return Finding::good(NAME, listed(&addresses));
    }
    match told(service, condition::SERVICE_READY) {
        Some(ready) if ready.status != "True" => {
            Finding::bad(NAME, format!("none: {} ({})", ready.message, ready.reason), remedy(&ready.reason))
        }
        _ => Finding::bad(
            NAME,
            "none, and the Service does not say why",
            "look into the controller's log: it has not come to this Service",
        ),
    }
}

/// What holds each address, and what that took it from.
pub(super) fn eips(facts: &Facts, service: &Service) -> Vec<Finding> {
    const NAME: &str = "eip";
    let all = match &facts.eips {
        Ok(all) => all,
        Err(why) => return vec![Finding::unknown(NAME, why.to_string(), "ask as a user who may list EIps")],
    };
    let addresses = addresses(service);
    if addresses.is_empty() {
        return vec![Finding::skipped(NAME, "there is no address")];
    }
    addresses
        .iter()
        .flat_map(|address| match all.iter().find(|eip| is_on(eip, *address)) {
            Some(eip) => vec![holder(service, eip, *address), source(facts, eip, *address)],
            None => vec![Finding::bad(
                NAME,
                format!("no EIp of this namespace holds {address}: nothing keeps it from others"),
                "look into the controller's log; it writes the EIp anew when it looks at the Service",
            )],
        })
        .collect()
}

fn is_on(eip: &EIp, address: IpAddr) -> bool {
    let told = eip.status.as_ref().and_then(|status| status.ip_address.as_deref());
    told.and_then(|told| told.parse().ok()) == Some(address)
}

fn name(eip: &EIp) -> &str {
    eip.metadata.name.as_deref().unwrap_or_default()
}

/// In the plural: `eip` is short for another kind of kube-ovn's.
fn describe(eip: &EIp) -> String {
    format!("kubectl describe eips {} -n {}", name(eip), eip.metadata.namespace.as_deref().unwrap_or_default())
}

fn holder(service: &Service, eip: &EIp, address: IpAddr) -> Finding {
    const NAME: &str = "eip";
    let (eip_name, status) = (name(eip), eip.status.clone().unwrap_or_default());
    if eip.metadata.deletion_timestamp.is_some() {
        let found = format!("EIp {eip_name}, which holds {address}, is being deleted");
        return Finding::bad(NAME, found, "find out who deleted it; it goes when nobody uses it any more");
    }
    if !status.ready {
        let why = status.conditions.iter().find(|each| each.type_ == condition::READY);
        let why = why.map_or_else(String::new, |why| format!(": {} ({})", why.message, why.reason));
        let next = describe(eip);
        return Finding::bad(NAME, format!("EIp {eip_name} is not ready{why}"), next);
    }
    let (uid, service_name) = (service.metadata.uid.as_deref(), service.metadata.name.as_deref().unwrap_or_default());
    let made_for = eip.metadata.labels.as_ref().and_then(|labels| labels.get(label::OWNER_UID)).map(String::as_str);
    let uses = |owner: &EIpOwner| owner.kind == EIpOwner::SERVICE_LB && owner.owner_ref == service_name;
    if !status.owners.iter().any(uses) && (made_for.is_none() || made_for != uid) {
        let found = format!("EIp {eip_name} holds {address}, but does not name this Service among its users");
        return Finding::bad(
            NAME,
            found,
            "look into the controller's log: it should write the Service into status.owners",
        );
    }
    Finding::good(NAME, format!("{eip_name} holds {address}"))
}

/// Where the EIp has it from.
fn source(facts: &Facts, eip: &EIp, address: IpAddr) -> Finding {
    const NAME: &str = "source";
    let from = eip.status.as_ref().map(|status| status.ovn_eip_ref.as_str()).unwrap_or_default();
    if from.is_empty() {
        let found = format!("EIp {} does not say where it has {address} from", name(eip));
        return Finding::bad(NAME, found, describe(eip));
    }
    if let Ok(pools) = &facts.pools
        && pools.iter().any(|pool| pool.metadata.name.as_deref() == Some(from))
    {
        return Finding::good(NAME, format!("{address} is from AddressPool {from}"));
    }
    match &facts.ovn_eips {
        Ok(all) => match all.iter().find(|each| each.metadata.name.as_deref() == Some(from)) {
            Some(ovn_eip) => {
                let status = ovn_eip.status.clone().unwrap_or_default();
                let has = [status.v4_ip, status.v6_ip].into_iter().flatten().any(|ip| ip.parse() == Ok(address));
                match (has, status.ready) {
                    (true, true) => Finding::good(NAME, format!("{address} is from OvnEip {from}")),
                    (true, false) => Finding::bad(
                        NAME,
                        format!("OvnEip {from} is not ready"),
                        "look whether kube-ovn-controller runs, and into its log",
                    ),
                    (false, _) => Finding::bad(
                        NAME,
                        format!("OvnEip {from} does not have {address}"),
                        format!("kubectl get ovn-eip {from} -o yaml; kube-ovn may give {address} to others"),
                    ),
                }
            }
            None => match &facts.pools {
                // A living address stays when its pool goes.
                Ok(_) => Finding::note(
                    NAME,
                    format!("{address} is from {from}, which is neither a pool nor an OvnEip any more"),
                ),
                Err(why) => Finding::unknown(NAME, why.to_string(), "ask as a user who may list AddressPools"),
            },
        },
        Err(why) => Finding::unknown(NAME, why.to_string(), "ask as a user who may read OvnEips"),
    }
}

fn listed(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
