//! Reads the facts. Nothing is written.

use std::time::Duration;

use groundcrew_api::address_pool::AddressPool;
use groundcrew_api::eip::EIp;
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_api::kube_ovn::OvnEip;
use groundcrew_api::names::label;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use ovsdb_client::Replica;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::ExplainArgs;
use super::facts::{Facts, addresses};
use crate::cluster::{Seen, list, read_opt, server_time};
use crate::leases::controllers;
use crate::ovn::{Northbound, Southbound, everything};

/// Longer than a healthy `ovn-northd` takes for one change.
const NORTHD: Duration = Duration::from_secs(3);

pub(super) async fn gather(client: &Client, args: &ExplainArgs, namespace: &str, name: &str) -> Facts {
    // Without the server's clock ours has to do: only ages depend on it.
    let now = server_time(client).await.unwrap_or_else(|_| Timestamp::now());
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = read_opt(&format!("Service {namespace}/{name}"), services.get(name)).await;
    let published = service.iter().flatten().flat_map(addresses).collect::<Vec<_>>();
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
    let leases: Api<Lease> = match &args.cluster.lease_namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let any = ListParams::default();
    let of_agents = ListParams::default().labels(label::AGENT_NODE);
    let eips: Api<EIp> = Api::namespaced(client.clone(), namespace);
    let pools: Api<AddressPool> = Api::all(client.clone());
    let (slices, leases, agents, eips, pools, (northbound, northd_behind), southbound) = futures::join!(
        list("EndpointSlices", &slices, &of_service),
        controllers(client, args.cluster.lease_namespace.as_deref()),
        list("Leases", &leases, &of_agents),
        list("EIps", &eips, &any),
        list("AddressPools", &pools, &any),
        northbound(args.ovn.northbound()),
        southbound(args.ovn.southbound()),
    );
    let names = eips.iter().flatten().filter_map(|eip| eip.status.as_ref());
    let names = names.map(|status| status.ovn_eip_ref.clone()).filter(|name| !name.is_empty());
    let ovn_eips: Seen<Vec<OvnEip>> = get_all("OvnEip", client, names).await;
    let floating: Seen<Vec<FloatingIP>> =
        get_all("FloatingIP", client, published.iter().map(|address| FloatingIP::name_of(*address))).await;
    let holders = floating.iter().flatten().filter_map(|floating| floating.spec.holder.clone());
    let nodes: Seen<Vec<Node>> = get_all("Node", client, holders).await;
    Facts {
        now,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        service,
        slices,
        leases,
        eips,
        pools,
        ovn_eips,
        floating,
        agents,
        nodes,
        northbound,
        northd_behind,
        southbound,
    }
}

/// Those of these names that are there.
async fn get_all<K>(what: &str, client: &Client, names: impl Iterator<Item = String>) -> Seen<Vec<K>>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let mut all = Vec::new();
    for name in names {
        all.extend(read_opt(&format!("{what} {name}"), api.get(&name)).await?);
    }
    Ok(all)
}

/// The database, and whether `ovn-northd` does not take what is written.
async fn northbound(replica: Option<Replica<Northbound>>) -> (Option<Seen<Northbound>>, bool) {
    let Some(replica) = replica else { return (None, false) };
    let first = match everything(&replica).await {
        Ok(first) => first,
        Err(why) => return (Some(Err(why)), false),
    };
    let asked = first.global.iter().map(|(_, row)| row.nb_cfg).max().unwrap_or_default();
    let caught_up = |nb: &Northbound| nb.global.iter().all(|(_, row)| row.sb_cfg >= asked);
    let mut changes = replica.changes_in(&["NB_Global"]);
    let catching_up = async {
        while !caught_up(&replica.snapshot()) {
            changes.next().await;
        }
    };
    let behind = timeout(NORTHD, catching_up).await.is_err();
    (Some(Ok(Northbound::clone(&first))), behind)
}

async fn southbound(replica: Option<Replica<Southbound>>) -> Option<Seen<Southbound>> {
    let seen = everything(&replica?).await;
    Some(seen.map(|snapshot| Southbound::clone(&snapshot)))
}
