//! What a cluster leaves in OVN and among the addresses when it goes.
//!
//! Nothing of the controller's memory is used: it may have been dead for long, or still be running. What is removed is
//! looked at once more, and the leader's epoch is a guard here as well, though it is not moved: whoever leads goes on.

use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_api::eip::{EIp, EIpOwner};
use groundcrew_api::kube_ovn::OvnEip;
use groundcrew_api::names::{annotation, class, finalizer, label};
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{
    ErrorKind, Leftover, LeftoverClass, LeftoverKind, Leftovers, Listing, Named, Owner, Presence, ProviderError, User,
};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Resource};
use ovsdb_client::{Condition, Config, Op, Replica, Uuid, Value};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::addresses::own_addresses;
use crate::commit;
use crate::marks;
use crate::plan::{GROUP_TABLE, TABLE};
use crate::view::View;

const ROW: LeftoverKind = LeftoverKind { name: "ovn-load-balancer", class: LeftoverClass::LoadBalancer };
const GROUP: LeftoverKind = LeftoverKind { name: "ovn-port-group", class: LeftoverClass::SecurityGroup };
const OVN_EIP: LeftoverKind = LeftoverKind { name: "ovn-eip", class: LeftoverClass::FloatingIp };
const EIP: LeftoverKind = LeftoverKind { name: "eip", class: LeftoverClass::FloatingIp };
const PAGE: u32 = 250;

/// The leftovers of one cluster in OVN, and its `EIp`s and `OvnEip`s.
pub struct OvnLeftovers {
    view: View,
    client: Client,
    cluster: Arc<str>,
    deadline: Duration,
}

impl OvnLeftovers {
    /// Connects to OVN.
    #[must_use]
    pub fn new(northbound: Config, client: Client, cluster: Arc<str>, deadline: Duration) -> Self {
        Self { view: View { replica: Replica::open(northbound) }, client, cluster, deadline }
    }

    fn rows(&self) -> Result<Vec<Leftover>, ProviderError> {
        let nb = self.view.now()?;
        let rows = nb.load_balancers.iter().filter_map(|(uuid, row)| {
            let owner = marks::owner(&row.external_ids, &self.cluster)?;
            Some(Leftover {
                kind: ROW,
                id: uuid.to_string(),
                name: row.name.to_string(),
                about: format!("made for Service {owner}"),
                gib: None,
                users: vec![User::Service(owner.key)],
                created: None,
                doubt: None,
                kept: false,
                command: format!("ovn-nbctl lb-del {uuid}"),
            })
        });
        let groups = nb.port_groups.iter().filter_map(|(uuid, group)| {
            let owner = marks::owner(&group.external_ids, &self.cluster)?;
            Some(Leftover {
                kind: GROUP,
                id: uuid.to_string(),
                name: group.name.to_string(),
                about: format!("source ranges of Service {owner}"),
                gib: None,
                users: vec![User::Service(owner.key)],
                created: None,
                doubt: None,
                kept: false,
                command: format!("ovn-nbctl pg-del {}", group.name),
            })
        });
        Ok(rows.chain(groups).collect())
    }

    /// The objects of one kind that carry our label; a kind that is not installed has none.
    async fn labelled<K>(&self, what: &str) -> Result<Vec<K>, ProviderError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(PAGE).labels(&format!("{}={}", label::CLUSTER, self.cluster));
        let mut found = Vec::new();
        loop {
            let page = match self.ask(&format!("cannot list {what}"), api.list(&params)).await {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
                page => page?,
            };
            found.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// One question to Kubernetes.
    async fn ask<T>(
        &self,
        tried: &str,
        question: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ProviderError> {
        match timeout(self.deadline, question).await {
            Ok(answer) => answer.map_err(|error| ProviderError::from_kube(tried, &error)),
            Err(_) => Err(ProviderError::new(ErrorKind::Unavailable, format!("{tried}: no answer in time"))),
        }
    }

    async fn remove_row(&self, leftover: &Leftover, term: &Term) -> Result<(), ProviderError> {
        let invalid = || ProviderError::new(ErrorKind::Invalid, format!("{} is no row of OVN", leftover.id));
        let uuid: Uuid = leftover.id.parse().map_err(|_| invalid())?;
        let (owner, guard) = {
            let nb = self.view.now()?;
            let found = match leftover.kind {
                GROUP => nb.port_groups.get(uuid).map(|group| &group.external_ids),
                _ => nb.load_balancers.get(uuid).map(|row| &row.external_ids),
            };
            let Some(external_ids) = found else { return Ok(()) };
            let owner = marks::owner(external_ids, &self.cluster).ok_or_else(|| not_ours(leftover))?;
            (owner, commit::present_epoch(&nb, &self.cluster)?)
        };
        self.check_unused(leftover, &owner).await?;
        let ours = Condition::includes("external_ids", Value::map([(marks::CLUSTER, &*self.cluster)]));
        let table = if leftover.kind == GROUP { GROUP_TABLE } else { TABLE };
        let delete = Op::delete(table, [Condition::uuid(uuid), ours]);
        let operations: Vec<_> = guard.into_iter().chain([delete]).collect();
        let write = self.view.replica.client().transact(&operations, Instant::now() + self.deadline);
        let tried = format!("cannot remove {} {}", leftover.kind.name, leftover.name);
        let written = term.write(self.deadline, write).await.map(drop);
        written.map_err(|error| ProviderError::new(ErrorKind::Unavailable, format!("{tried}: {error}")))
    }

    /// Refuses what a living Service has.
    async fn check_unused(&self, leftover: &Leftover, owner: &Owner) -> Result<(), ProviderError> {
        let uid = self.living(&owner.key).await?;
        if uid == Some(owner.uid.to_string()) { Err(in_use(leftover, &owner.key)) } else { Ok(()) }
    }

    /// The uid of the Service that has this name now. One that is being deleted waits for its end, and for nothing else.
    async fn living(&self, key: &ServiceKey) -> Result<Option<String>, ProviderError> {
        let api: Api<Service> = Api::namespaced(self.client.clone(), &key.namespace);
        let found = self.ask(&format!("cannot read Service {key}"), api.get_metadata_opt(&key.name)).await?;
        Ok(found
            .filter(|service| service.metadata.deletion_timestamp.is_none())
            .and_then(|service| service.metadata.uid))
    }

    /// Refuses an address that OVN still answers on: the next one who gets it would not. A load balancer of somebody who shared
    /// it counts, too.
    fn check_unserved(
        &self,
        leftover: &Leftover,
        owner: &Owner,
        addresses: &[impl AsRef<str>],
    ) -> Result<(), ProviderError> {
        let nb = self.view.now()?;
        let addresses: Vec<IpAddr> = addresses.iter().filter_map(|address| address.as_ref().parse().ok()).collect();
        let mut rows = nb.load_balancers.iter().filter(|(_, row)| {
            let is_its = marks::owner(&row.external_ids, &self.cluster).is_some_and(|of| of.key == owner.key);
            is_its || own_addresses(row, &self.cluster).any(|(address, _)| addresses.contains(&address))
        });
        match rows.next() {
            None => Ok(()),
            Some((_, row)) => {
                let message =
                    format!("{} {}: load balancer {} is still there", leftover.kind.name, leftover.name, row.name);
                Err(ProviderError::new(ErrorKind::Conflict, message).with_reason("InUse"))
            }
        }
    }

    /// An `EIp` has the names of its users only, so that a namesake of one counts for it.
    async fn check_users(&self, leftover: &Leftover, eip: &EIp) -> Result<(), ProviderError> {
        let namespace = eip.metadata.namespace.as_deref().unwrap_or_default();
        for user in eip.status.iter().flat_map(|status| &status.owners) {
            let key = ServiceKey::new(namespace, user.owner_ref.as_str());
            if user.kind != EIpOwner::SERVICE_LB || self.living(&key).await?.is_some() {
                return Err(in_use(leftover, &key));
            }
        }
        Ok(())
    }

    async fn remove_eip(&self, leftover: &Leftover, term: &Term) -> Result<(), ProviderError> {
        let (namespace, name) = leftover.id.split_once('/').unwrap_or_default();
        let api: Api<EIp> = Api::namespaced(self.client.clone(), namespace);
        let tried = format!("cannot remove EIp {}", leftover.id);
        let Some(eip) = self.ask(&tried, api.get_opt(name)).await? else { return Ok(()) };
        let owner = owner(&eip.metadata, &self.cluster).ok_or_else(|| not_ours(leftover))?;
        self.check_unused(leftover, &owner).await?;
        self.check_users(leftover, &eip).await?;
        let address = eip.status.as_ref().and_then(|status| status.ip_address.as_deref());
        self.check_unserved(leftover, &owner, address.as_slice())?;
        self.delete(&api, &eip.metadata, &tried, term).await
    }

    /// kube-ovn gives the address to the next one as soon as its deletion begins, so that it goes only when nobody
    /// answers on it any more.
    async fn remove_ovn_eip(&self, leftover: &Leftover, term: &Term) -> Result<(), ProviderError> {
        let api: Api<OvnEip> = Api::all(self.client.clone());
        let tried = format!("cannot remove OvnEip {}", leftover.id);
        let Some(found) = self.ask(&tried, api.get_opt(&leftover.id)).await? else { return Ok(()) };
        let owner = owner(&found.metadata, &self.cluster).ok_or_else(|| not_ours(leftover))?;
        self.check_unused(leftover, &owner).await?;
        let status = found.status.iter();
        let addresses: Vec<_> = status.flat_map(|status| status.v4_ip.iter().chain(&status.v6_ip)).collect();
        self.check_unserved(leftover, &owner, &addresses)?;
        for eip in self.labelled::<EIp>("EIps").await? {
            if eip.status.as_ref().is_some_and(|status| status.ovn_eip_ref == leftover.id) {
                self.check_users(leftover, &eip).await?;
            }
        }
        self.delete(&api, &found.metadata, &tried, term).await
    }

    /// Deletes the object in the state in which it was found unused, and takes our finalizer from it.
    async fn delete<K>(&self, api: &Api<K>, meta: &ObjectMeta, tried: &str, term: &Term) -> Result<(), ProviderError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let name = meta.name.as_deref().unwrap_or_default();
        let known = Preconditions { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() };
        let params = DeleteParams { preconditions: Some(known), ..DeleteParams::default() };
        let refused = |error| ProviderError::from_kube(tried, &error);
        let delete = async {
            match api.delete(name, &params).await {
                Ok(answer) => Ok(answer.left()),
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
                Err(error) => Err(refused(error)),
            }
        };
        let Some(left) = term.write(self.deadline, delete).await? else { return Ok(()) };
        let finalizers = left.meta().finalizers.iter().flatten();
        let (ours, kept): (Vec<_>, Vec<_>) = finalizers.partition(|f| **f == *finalizer::EIP);
        if ours.is_empty() {
            return Ok(());
        }
        let version = &left.meta().resource_version;
        let patch = json!({ "metadata": { "uid": meta.uid, "resourceVersion": version, "finalizers": kept } });
        let let_go = async {
            match api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                Err(error) => Err(refused(error)),
            }
        };
        Ok(term.write(self.deadline, let_go).await?)
    }
}

impl Leftovers for OvnLeftovers {
    fn kinds(&self) -> &'static [LeftoverKind] {
        // The rules after what they guard.
        &[ROW, GROUP, OVN_EIP, EIP]
    }

    fn classes(&self) -> &'static [&'static str] {
        &[class::OVN]
    }

    async fn find(&self) -> Result<Listing<Leftover>, ProviderError> {
        // The first view may still be on its way.
        let _ = timeout(self.deadline, self.view.replica.synced()).await;
        let mut items = self.rows()?;
        for OvnEip { metadata, .. } in self.labelled::<OvnEip>("OvnEips").await? {
            let (Some(owner), Some(name)) = (owner(&metadata, &self.cluster), metadata.name) else { continue };
            let command = format!("kubectl delete ovn-eip {name}");
            let about = format!("made for Service {owner}");
            items.push(Leftover {
                kind: OVN_EIP,
                id: name.clone(),
                name,
                about,
                gib: None,
                users: vec![User::Service(owner.key)],
                created: None,
                doubt: None,
                kept: false,
                command,
            });
        }
        for eip in self.labelled::<EIp>("EIps").await? {
            let EIp { metadata, status, .. } = eip;
            let (Some(owner), Some(name)) = (owner(&metadata, &self.cluster), metadata.name) else { continue };
            let address = status.and_then(|status| status.ip_address).unwrap_or_else(|| "no address".into());
            items.push(Leftover {
                kind: EIP,
                id: format!("{}/{name}", owner.key.namespace),
                about: format!("{address}, made for Service {owner}"),
                gib: None,
                doubt: None,
                kept: false,
                command: format!("kubectl -n {} delete eips {name}", owner.key.namespace),
                users: vec![User::Service(owner.key)],
                created: None,
                name,
            });
        }
        Ok(Listing::complete(items))
    }

    async fn presence(&self, named: &Named) -> Result<Presence, ProviderError> {
        let Named::LoadBalancer { class: Some(served_by), service, .. } = named else { return Ok(Presence::Unknown) };
        if served_by != class::OVN {
            return Ok(Presence::Unknown);
        }
        let user = User::Service(service.clone());
        let there = self.find().await?.items.iter().any(|leftover| leftover.users.contains(&user));
        Ok(if there { Presence::There } else { Presence::Gone })
    }

    async fn remove(&self, leftover: &Leftover, term: &Term) -> Result<(), ProviderError> {
        match leftover.kind {
            ROW | GROUP => self.remove_row(leftover, term).await,
            OVN_EIP => self.remove_ovn_eip(leftover, term).await,
            EIP => self.remove_eip(leftover, term).await,
            kind => Err(ProviderError::new(ErrorKind::Invalid, format!("{} is none of OVN's kinds", kind.name))),
        }
    }
}

/// The Service that our marks name. What a tenant made himself has none, and is his.
fn owner(meta: &ObjectMeta, cluster: &str) -> Option<Owner> {
    let labels = meta.labels.as_ref()?;
    if labels.get(label::CLUSTER).is_none_or(|of| of != cluster) {
        return None;
    }
    let (namespace, name) = meta.annotations.as_ref()?.get(annotation::OWNER)?.split_once('/')?;
    // A tenant speaks for his own namespace only.
    if meta.namespace.as_deref().is_some_and(|of| of != namespace) {
        return None;
    }
    let uid = labels.get(label::OWNER_UID)?.parse().ok()?;
    Some(Owner { key: ServiceKey::new(namespace, name), uid })
}

fn in_use(leftover: &Leftover, service: &ServiceKey) -> ProviderError {
    let message = format!("{} {} is in use: delete Service {service} first", leftover.kind.name, leftover.name);
    ProviderError::new(ErrorKind::Conflict, message).with_reason("InUse")
}

fn not_ours(leftover: &Leftover) -> ProviderError {
    let message = format!("{} {} does not carry this cluster's mark any more", leftover.kind.name, leftover.name);
    ProviderError::new(ErrorKind::Denied, message)
}
