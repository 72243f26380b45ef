//! `FloatingIP` objects: what this controller writes, and what the nodes say.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_api::floating_ip::{FloatingIP, FloatingIPSpec, NatPort};
use groundcrew_api::names::{condition, label};
use groundcrew_core::leader::{Term, WriteError};
use groundcrew_core::provider::{ErrorKind, Owner, ProviderError};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::error::Error;
use crate::marks::Claim;
use crate::mirror::Mirror;

/// On a `FloatingIP`: the server that was let use the address last. Its Node may go before it does.
const SERVER: &str = groundcrew_api::names::annotation::CLOUDSIGMA_SERVER;

#[derive(Clone)]
pub(crate) struct Floating {
    api: Api<FloatingIP>,
    pub(crate) mirror: Mirror<FloatingIP>,
    cluster: Arc<str>,
    deadline: Duration,
}

/// A node that is to hold an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) node: &'a str,
    pub(crate) server: &'a str,
    /// Of the NIC; without it the one of the default route.
    pub(crate) mac: Option<&'a str>,
}

/// What a node says about an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// Nobody was chosen yet.
    NoHolder,
    /// The chosen node holds it and has announced it.
    Confirmed,
    /// The chosen node has not said so; what was said last.
    Awaited { node: String, said: String },
}

impl Floating {
    pub(crate) fn new(client: Client, cluster: Arc<str>, deadline: Duration) -> Self {
        Self { api: Api::all(client), mirror: Mirror::default(), cluster, deadline }
    }

    pub(crate) fn get(&self, address: IpAddr) -> Option<Arc<FloatingIP>> {
        self.mirror.get(&FloatingIP::name_of(address))
    }

    /// Those that this cluster's controller made.
    pub(crate) fn ours(&self) -> Vec<(IpAddr, Arc<FloatingIP>)> {
        let all = self.mirror.all().into_iter().filter(|object| self.is_ours(object));
        all.filter_map(|object| Some((object.spec.address.parse().ok()?, object))).collect()
    }

    /// Whether this cluster's controller made it. Any other is left alone.
    pub(crate) fn is_ours(&self, object: &FloatingIP) -> bool {
        object.labels().get(label::CLUSTER).map(String::as_str) == Some(&*self.cluster)
    }

    /// Whether it is as it should be, and made for one of those who share the address.
    pub(crate) fn suits(&self, address: IpAddr, claim: &Claim, nat: Option<&[NatPort]>) -> bool {
        let Some(object) = self.get(address) else { return false };
        self.is_ours(&object)
            && nat.is_none_or(|nat| object.spec.nat == nat)
            && self::owner(&object).is_some_and(|owner| claim.owners.contains_key(&owner.uid))
    }

    /// Makes it, or brings it to what this owner wants. Who holds it is not decided here. Without `nat` what nodes do by
    /// themselves stays as it is.
    pub(crate) async fn ensure(
        &self,
        address: IpAddr,
        owner: &Owner,
        nat: Option<&[NatPort]>,
        term: &Term,
    ) -> Result<(), Error> {
        let name = FloatingIP::name_of(address);
        let Some(object) = self.read(address).await? else {
            let spec = FloatingIPSpec {
                address: address.to_string(),
                serial: 1,
                owner: Some(owner.key.to_string()),
                nat: nat.unwrap_or_default().to_vec(),
                ..FloatingIPSpec::default()
            };
            let mut object = FloatingIP::new(&name, spec);
            object.metadata.labels = Some(BTreeMap::from([
                (label::CLUSTER.to_owned(), self.cluster.to_string()),
                (label::OWNER_UID.to_owned(), owner.uid.to_string()),
            ]));
            let tried = format!("cannot create FloatingIP {name}");
            let made = self.write(term, &tried, self.api.create(&PostParams::default(), &object)).await?;
            self.mirror.made(made);
            return Ok(());
        };
        if !self.is_ours(&object) {
            return Err(Error::NotOurs { name });
        }
        let labels = json!({ label::OWNER_UID: owner.uid.to_string() });
        let mut spec = json!({ "owner": owner.key.to_string() });
        if let Some(nat) = nat {
            spec["nat"] = json!(nat);
        }
        self.patch(&object, json!({ "metadata": { "labels": labels }, "spec": spec }), term).await
    }

    /// Chooses another holder, or none, and says whose claim no longer counts. Only in the state in which it was decided.
    pub(crate) async fn assign(
        &self,
        object: &FloatingIP,
        place: Option<Place<'_>>,
        evicted: Option<&str>,
        term: &Term,
    ) -> Result<(), Error> {
        let (holder, mac) = (place.map(|place| place.node), place.and_then(|place| place.mac));
        let changed = object.spec.holder.as_deref() != holder;
        let serial = object.spec.serial + i64::from(changed);
        // An earlier eviction ends when its node is chosen again.
        let evicted = evicted.or(object.spec.evicted.as_deref().filter(|evicted| Some(*evicted) != holder));
        let spec = json!({ "holder": holder, "evicted": evicted, "mac": mac, "serial": serial });
        let mut patch = json!({ "spec": spec });
        if let Some(place) = place {
            patch["metadata"]["annotations"] = json!({ SERVER: place.server });
        }
        self.patch(object, patch, term).await
    }

    /// As the API server has it now.
    pub(crate) async fn read(&self, address: IpAddr) -> Result<Option<FloatingIP>, Error> {
        let name = FloatingIP::name_of(address);
        let tried = format!("cannot read FloatingIP {name}");
        match tokio::time::timeout(self.deadline, self.api.get_opt(&name)).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(Error::Kube(ProviderError::from_kube(&tried, &error))),
            Err(_) => {
                Err(Error::Kube(ProviderError::new(ErrorKind::Unavailable, format!("{tried}: no answer in time"))))
            }
        }
    }

    pub(crate) async fn delete(&self, object: &FloatingIP, term: &Term) -> Result<(), Error> {
        let name = object.name_any();
        let known = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
        let params = DeleteParams { preconditions: Some(known), ..DeleteParams::default() };
        let delete = async {
            match self.api.delete(&name, &params).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                done => done.map(drop),
            }
        };
        self.write(term, &format!("cannot delete FloatingIP {name}"), delete).await
    }

    async fn patch(&self, object: &FloatingIP, mut patch: Value, term: &Term) -> Result<(), Error> {
        let name = object.name_any();
        patch["metadata"]["resourceVersion"] = object.resource_version().into();
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let tried = format!("cannot change FloatingIP {name}");
        let written = self.write(term, &tried, self.api.patch(&name, &params, &patch)).await?;
        self.mirror.wrote(written);
        Ok(())
    }

    async fn write<T>(
        &self,
        term: &Term,
        tried: &str,
        write: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        let write = async { write.await.map_err(|error| ProviderError::from_kube(tried, &error)) };
        let written: Result<T, WriteError<ProviderError>> = term.write(self.deadline, write).await;
        written.map_err(|error| Error::Kube(error.into()))
    }
}

/// What the nodes say about it.
pub(crate) fn word(object: &FloatingIP) -> Word {
    let Some(node) = &object.spec.holder else { return Word::NoHolder };
    let status = object.status.as_ref();
    let ready = status.and_then(|status| status.conditions.iter().find(|c| c.type_ == condition::READY));
    let answered = status.is_some_and(|status| status.serial == object.spec.serial);
    let holder = status.and_then(|status| status.holder.as_ref());
    if answered && holder == Some(node) && ready.is_some_and(|ready| ready.status == "True") {
        return Word::Confirmed;
    }
    let said = match (ready, holder) {
        (_, Some(other)) if other != node => format!("node {other} has not let go of it"),
        (Some(ready), _) if answered => format!("it says: {} ({})", ready.message, ready.reason),
        _ => String::new(),
    };
    Word::Awaited { node: node.clone(), said }
}

/// What the chosen node says of an address that another host has, or that is its own.
pub(crate) fn unusable(object: &FloatingIP) -> Option<&str> {
    let status = object.status.as_ref().filter(|status| status.serial == object.spec.serial)?;
    let ready = status.conditions.iter().find(|c| c.type_ == condition::READY && c.status == "False")?;
    matches!(ready.reason.as_str(), "AddressForeign" | "AddressInUse").then_some(&*ready.message)
}

/// The node that may still answer for it.
pub(crate) fn claimed(object: &FloatingIP) -> Option<&str> {
    let holder = object.status.as_ref()?.holder.as_deref()?;
    (object.spec.evicted.as_deref() != Some(holder)).then_some(holder)
}

/// The server that was let use it last.
pub(crate) fn server(object: &FloatingIP) -> Option<&str> {
    object.annotations().get(SERVER).map(String::as_str)
}

/// Whom it was made for.
pub(crate) fn owner(object: &FloatingIP) -> Option<Owner> {
    let (namespace, name) = object.spec.owner.as_deref()?.split_once('/')?;
    let uid = Uuid::parse_str(object.labels().get(label::OWNER_UID)?).ok()?;
    Some(Owner { key: groundcrew_core::key::ServiceKey::new(namespace, name), uid })
}
