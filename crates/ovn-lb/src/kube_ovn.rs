//! Addresses from kube-ovn: an `OvnEip` of an external Subnet behind each `EIp`.
//!
//! ```text
//! OvnEip, Subnet, Vpc --watch--> catalog --decide--> make, drop or touch an OvnEip --> kube-ovn --> OvnEip is ready
//! ```
//!
//! Nobody waits for kube-ovn inside a reconcile: each look takes the next step and returns, and what kube-ovn does wakes the
//! Service again. kube-ovn never says that it failed, so after a few seconds the likely reason is worked out from here.

mod decide;
mod discover;
mod eips;
mod janitor;
mod members;
mod networks;
mod places;
mod rooms;
mod routes;
#[cfg(test)]
mod tests;
mod watch;
mod why;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use groundcrew_api::kube_ovn::{OvnEip, OvnEipApply, OvnEipApplySpec, OvnEipType};
use groundcrew_api::names::{annotation, eip, label};
use groundcrew_core::events::{Events, Severity, reference};
use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::{Caveat, ErrorKind, Owner, ProviderError};
use groundcrew_core::watch::Checked;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ObjectMeta, Request};
use kube::{Api, Client, Resource};
use serde_json::json;
use tokio::sync::Notify;
use tracing::{info, warn};
use uuid::Uuid;

use crate::addresses::{EipKey, Family, Made, Need, eip_reference};
use crate::error::Error;
use crate::view::View;
use decide::{Catalog, Keep, Next, Wish};
use eips::{Eip, News};
use routes::Routes;
#[cfg(test)]
use why::Why;

pub use discover::AddressSource;
pub(crate) use discover::discover;
pub(crate) use places::Places;
pub(crate) use rooms::Rooms;
pub(crate) use routes::write_routes;
pub(crate) use watch::{NamespaceSink, OvnEipSink, SubnetSink, VpcSink};

const PAGE: u32 = 250;
/// Steps of one look: drop what does not fit, make what does, and once more of each after a conflict.
const MOST_STEPS: usize = 4;
const FIELD_MANAGER: &str = "groundcrew";

/// What may be written beside `OvnEip`s of our own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Whether what kube-dc made for `EIp`s that are ours now is ours, too.
    pub(crate) take_over: bool,
    /// Whether return routes are written into Vpcs.
    pub(crate) write_routes: bool,
}

pub(crate) struct KubeOvn {
    client: Client,
    cluster: Arc<str>,
    deadline: Duration,
    events: Events,
    view: View,
    catalog: Mutex<Catalog>,
    places: Places,
    routes: Routes,
    /// Something of ours waits for kube-ovn.
    unsettled: Notify,
}

/// An `OvnEip` that is being made. However that ends, it does not count as such any more.
struct Asking<'a> {
    kube_ovn: &'a KubeOvn,
    name: String,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.kube_ovn.lock().asked.remove(&self.name);
    }
}

impl KubeOvn {
    pub(crate) fn new(
        client: Client,
        cluster: Arc<str>,
        deadline: Duration,
        events: Events,
        view: View,
        rules: Rules,
    ) -> Self {
        let Rules { take_over, write_routes } = rules;
        let catalog = Mutex::new(Catalog { take_over, ..Catalog::default() });
        let (places, routes, unsettled) = (Places::default(), Routes::new(write_routes, take_over), Notify::new());
        Self { client, cluster, deadline, events, view, catalog, places, routes, unsettled }
    }

    /// Reads every `OvnEip` anew: a watch may lag behind the last writes of whoever led before, and an address that is
    /// there already must be found before another is asked for.
    pub(crate) async fn begin(&self) -> Result<(), Error> {
        let api: Api<Checked<OvnEip>> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(PAGE);
        let mut unlisted = {
            let mut catalog = self.lock();
            catalog.eips.list_begins();
            catalog.eips.uids()
        };
        loop {
            let page = self.answer("list OvnEips", api.list(&params)).await?;
            let mut catalog = self.lock();
            for guarded in page.items {
                unlisted.remove(guarded.meta().name.as_deref().unwrap_or_default());
                if let Some((name, eip)) = guarded.0.ok().and_then(|object| Eip::read(&object, &self.cluster)) {
                    catalog.eips.put(name, eip, Moment::now());
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        let mut catalog = self.lock();
        for (name, uid) in unlisted {
            catalog.eips.remove(&name, uid);
        }
        catalog.eips.list_ends();
        drop(catalog);
        self.unsettled.notify_one();
        Ok(())
    }

    /// An address for whoever needs one, and the `OvnEip` that holds it. An error means: not yet, or not at all. Of what he
    /// has, `needed` has an address that an `EIp` says.
    pub(crate) async fn assign(
        &self,
        owner: &Owner,
        need: &Need,
        needed: &BTreeSet<Arc<str>>,
        term: &Term,
    ) -> Result<(Arc<str>, IpAddr), Error> {
        for _ in 0..MOST_STEPS {
            let (next, _asking) = self.step(owner, need, needed);
            match next {
                Next::Use { name, address } => return Ok((name, address)),
                Next::Make(wish) => self.make(&wish, owner, term).await?,
                Next::Drop(name) => self.release(&name, term).await?,
                Next::Wait { name, left } => return Err(Error::OvnEipPending { name: name.to_string(), left }),
                Next::Refuse(error) => return Err(error),
            }
        }
        Err(Error::Lost)
    }

    /// The family of an address that may be of either: IPv4 wherever a network has any.
    pub(crate) fn family(&self, namespace: &str, network_type: Option<&str>) -> Family {
        self.lock().family(namespace, network_type)
    }

    /// The next step; where that is to make one, it counts from now on and not only when it is there.
    fn step(&self, owner: &Owner, need: &Need, needed: &BTreeSet<Arc<str>>) -> (Next, Option<Asking<'_>>) {
        let ports = self.ports(&owner.key.namespace);
        let mut catalog = self.lock();
        let next = catalog.next(owner, need, needed, &ports, Moment::now());
        let wish = if let Next::Make(wish) = &next { Some(wish) } else { None };
        let asking = wish.map(|wish| {
            let place = (wish.subnet.clone(), owner.key.namespace.clone());
            catalog.asked.insert(wish.name.clone(), place);
            Asking { kube_ovn: self, name: wish.name.clone() }
        });
        (next, asking)
    }

    /// The addresses of the gateway ports of a namespace's router, as far as OVN can be seen.
    fn ports(&self, namespace: &str) -> Vec<IpAddr> {
        let (Some(router), Ok(nb)) = (self.places.of(namespace).router, self.view.now()) else { return Vec::new() };
        nb.outside(&router).into_iter().flatten().map(|network| network.addr()).collect()
    }

    /// Sees to it that an address in use is this owner's at kube-ovn; returns the `OvnEip` that holds it. What goes wrong
    /// is told and no obstacle: the Service is served meanwhile.
    pub(crate) async fn keep(&self, made: &Made, term: &Term) -> Option<Arc<str>> {
        let Made { owner, address, .. } = made;
        let keep = self.lock().keep(made, Moment::now());
        match keep {
            Keep::Safe(name) => return Some(name),
            Keep::Make(wish) => {
                let note =
                    format!("{address} is in use here and no OvnEip holds it any more; asking kube-ovn for it again");
                warn!(service = %owner, %address, ovn_eip = wish.name, "no OvnEip holds an address in use; making one");
                self.tell(made, "AddressUnreserved", note);
                if let Err(error) = self.make(&wish, owner, term).await {
                    warn!(service = %owner, %address, %error, "the address is not reserved at kube-ovn");
                }
            }
            Keep::Adopt(name) => match self.adopt(&name, owner, term).await {
                Ok(()) => return Some(name),
                Err(error) => warn!(%owner, %address, ovn_eip = &*name, %error, "the OvnEip does not get our marks"),
            },
            // Who uses it says so in its status, and an Event is made of that.
            Keep::Asked(_) | Keep::Unsafe(_) | Keep::Elsewhere => {}
        }
        None
    }

    /// What goes with its `EIp` is found by our marks: puts them on it where they are missing.
    pub(crate) async fn reclaim(&self, made: &Made, term: &Term) -> Result<(), Error> {
        let keep = self.lock().keep(made, Moment::now());
        if let Keep::Adopt(name) = keep { self.adopt(&name, &made.owner, term).await } else { Ok(()) }
    }

    /// Whether nothing is to be written for an address in use.
    pub(crate) fn is_kept(&self, made: &Made) -> bool {
        match self.lock().keep(made, Moment::now()) {
            Keep::Safe(name) => name == made.reference,
            Keep::Make(_) | Keep::Adopt(_) => false,
            Keep::Asked(_) | Keep::Unsafe(_) | Keep::Elsewhere => true,
        }
    }

    /// Whether this is how an `EIp` refers to an `OvnEip`, be it there or gone, and not to a pool.
    pub(crate) fn may_be_from(&self, reference: &str) -> bool {
        reference.starts_with(eip::SERVICE_PREFIX) || self.lock().eips.get(reference).is_some()
    }

    /// Those that were made for this uid and are not on their way out.
    pub(crate) fn of(&self, uid: Uuid) -> Vec<Arc<str>> {
        let catalog = self.lock();
        catalog.eips.of(uid).filter(|(_, known)| !known.eip.leaving).map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn addresses(&self, name: &str) -> Vec<IpAddr> {
        self.lock().eips.get(name).into_iter().flat_map(Eip::addresses).collect()
    }

    /// The one of ours that holds this address for somebody of this namespace.
    pub(crate) fn holder_of_ours(&self, namespace: &str, address: IpAddr) -> Option<Arc<str>> {
        let catalog = self.lock();
        let is_ours = |eip: &Eip| eip.owner.as_ref().is_some_and(|owner| *owner.key.namespace == *namespace);
        catalog.eips.holders(address).find(|(_, eip)| is_ours(eip)).map(|(name, _)| name.clone())
    }

    /// Everything that this cluster made and that is not on its way out: to go is all that is left for the rest.
    pub(crate) fn ours(&self) -> Vec<(Arc<str>, Owner)> {
        let catalog = self.lock();
        let staying = catalog.eips.ours().filter(|(name, _)| catalog.eips.get(name).is_some_and(|eip| !eip.leaving));
        staying.map(|(name, owner)| (name.clone(), owner.clone())).collect()
    }

    /// The address of an `OvnEip` that an `EIp` of this namespace names as its child.
    pub(crate) fn child(&self, namespace: &str, name: &str) -> Result<IpAddr, Error> {
        self.lock().child(namespace, name)
    }

    /// What a user should know about an address in use.
    pub(crate) fn caveat(&self, made: &Made) -> Option<Caveat> {
        let catalog = self.lock();
        if made.is_child {
            let (name, namespace) = (&*made.reference, &*made.owner.key.namespace);
            if catalog.child(namespace, name).is_ok_and(|address| address == made.address) {
                return None;
            }
            let message = format!("OvnEip {name} does not hold {} any more", made.address);
            return Some(Caveat { reason: "AddressUnreserved", message, stops: false });
        }
        match catalog.keep(made, Moment::now()) {
            // That an EIp is not ready is not worth a word for so short a time.
            Keep::Asked(_) if made.of_tenant => None,
            Keep::Asked(why) | Keep::Unsafe(why) => {
                Some(Caveat { reason: why.reason, message: why.message, stops: false })
            }
            Keep::Safe(_) | Keep::Adopt(_) | Keep::Make(_) | Keep::Elsewhere => None,
        }
    }

    /// Whether replies from one of these addresses need a way of their own.
    pub(crate) fn leaves_elsewhere(&self, namespace: &str, egress: Option<&str>, addresses: &[IpAddr]) -> bool {
        self.lock().leaves_elsewhere(namespace, egress, addresses)
    }

    /// What is missing for these backends to answer on these addresses.
    pub(crate) fn missing_routes(
        &self,
        namespace: &str,
        egress: Option<&str>,
        addresses: &[IpAddr],
        backends: &BTreeSet<IpAddr>,
    ) -> Vec<Caveat> {
        let catalog = self.lock();
        let vpc = catalog.networks.vpc_of(namespace).map(|vpc| &*vpc.name);
        self.routes
            .with_obstacle(vpc, |obstacle| catalog.missing_routes(namespace, egress, addresses, backends, obstacle))
    }

    /// A Service is served on these addresses by these backends from now on; on none, if there are none.
    pub(crate) fn note_routes(
        &self,
        owner: &Owner,
        egress: Option<&str>,
        addresses: &[IpAddr],
        backends: &BTreeSet<IpAddr>,
    ) {
        let needs = self.lock().needs(&owner.key.namespace, egress, addresses, backends);
        self.routes.note(owner, needs);
    }

    pub(crate) fn release_routes(&self, owner: &Owner) {
        self.routes.release(owner);
    }

    /// A term begins: what these Services need is not known until they are looked at.
    pub(crate) fn begin_routes(&self, unheard: &[&Owner]) {
        let catalog = self.lock();
        let vpc = |owner: &Owner| Some(catalog.networks.vpc_of(&owner.key.namespace)?.name.clone());
        self.routes.begin(unheard.iter().filter_map(|owner| vpc(owner).map(|vpc| (*owner, vpc))));
        let vpcs = catalog.networks.routed_by(&self.cluster);
        drop(catalog);
        for vpc in &vpcs {
            self.routes.look(vpc);
        }
    }

    /// The Vpc of a namespace has changed.
    fn look_at_routes(&self, namespace: &str) {
        let vpc = self.lock().networks.vpc_of(namespace).map(|vpc| (vpc.name.clone(), vpc.is_routed_by(&self.cluster)));
        if let Some((vpc, has_ours)) = vpc
            && (has_ours || self.routes.concern(&vpc))
        {
            self.routes.look(&vpc);
        }
    }

    /// Where kube-ovn says that the pods of each namespace live.
    pub(crate) fn places(&self) -> Places {
        self.places.clone()
    }

    /// Makes one. Not by server-side apply, which would put our mark on somebody else's object of that name.
    async fn make(&self, wish: &Wish, owner: &Owner, term: &Term) -> Result<(), Error> {
        let tried = format!("make OvnEip {}", wish.name);
        let object = object(wish, owner, &self.cluster);
        let body = serde_json::to_vec(&object).map_err(|error| unavailable(&tried, &error.to_string()))?;
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let request = Request::new(OvnEip::url_path(&(), None)).create(&params, body);
        let mut request = request.map_err(|error| unavailable(&tried, &error.to_string()))?;
        request.extensions_mut().insert("create");
        let write = async {
            match self.client.request::<OvnEip>(request).await {
                Ok(object) => Ok(Some(object)),
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
                Err(error) => Err(ProviderError::from_kube(&format!("cannot {tried}"), &error)),
            }
        };
        match term.write(self.deadline, write).await.map_err(ProviderError::from)? {
            Some(object) => {
                info!(ovn_eip = wish.name, subnet = &*wish.subnet, service = %owner, "asked kube-ovn for an address");
                self.learn(&object);
            }
            None => self.refresh(&wish.name).await?,
        }
        Ok(())
    }

    /// Puts our marks on one that lacks them, as it is known. kube-ovn does not look at them.
    async fn adopt(&self, name: &str, owner: &Owner, term: &Term) -> Result<(), Error> {
        let api: Api<OvnEip> = Api::all(self.client.clone());
        let Some(version) = self.lock().eips.get(name).map(|eip| eip.version.clone()) else { return Err(Error::Lost) };
        let mut patch = json!({ "metadata": marks(owner, &self.cluster) });
        patch["metadata"]["resourceVersion"] = json!(version);
        let write = async {
            match api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(object) => Ok(Some(object)),
                Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(None),
                Err(error) => Err(ProviderError::from_kube(&format!("cannot mark OvnEip {name}"), &error)),
            }
        };
        match term.write(self.deadline, write).await.map_err(ProviderError::from)? {
            Some(object) => {
                info!(ovn_eip = name, %owner, "put our marks on it");
                self.learn(&object);
                Ok(())
            }
            None => self.refresh(name).await.and(Err(Error::Lost)),
        }
    }

    /// Deletes one of ours, exactly as it is known. Gone, or not ours any more, is fine.
    pub(crate) async fn release(&self, name: &str, term: &Term) -> Result<(), Error> {
        let api: Api<OvnEip> = Api::all(self.client.clone());
        for _ in 0..MOST_STEPS {
            let Some(eip) = self.lock().eips.get(name).cloned() else { return Ok(()) };
            if eip.leaving || eip.owner.is_none() {
                return Ok(());
            }
            let known = Preconditions { uid: Some(eip.uid.to_string()), resource_version: Some(eip.version.into()) };
            let params = DeleteParams { preconditions: Some(known), ..DeleteParams::default() };
            let remove = async {
                match api.delete(name, &params).await {
                    Ok(left) => Ok(Some(left.left())),
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Some(None)),
                    Err(kube::Error::Api(status)) if status.is_conflict() => Ok(None),
                    Err(error) => Err(ProviderError::from_kube(&format!("cannot delete OvnEip {name}"), &error)),
                }
            };
            match term.write(self.deadline, remove).await.map_err(ProviderError::from)? {
                Some(Some(object)) if object.metadata.finalizers.iter().flatten().next().is_some() => {
                    self.learn(&object);
                    return Ok(());
                }
                Some(_) => {
                    self.lock().remove(name, eip.uid);
                    return Ok(());
                }
                // kube-ovn writes to it, too.
                None => self.refresh(name).await?,
            }
        }
        Err(Error::Lost)
    }

    /// Looks at what is there instead of what was expected.
    async fn refresh(&self, name: &str) -> Result<(), Error> {
        let api: Api<OvnEip> = Api::all(self.client.clone());
        let known = self.lock().eips.get(name).map(|eip| eip.uid);
        match self.answer(&format!("read OvnEip {name}"), api.get_opt(name)).await? {
            Some(object) => self.learn(&object),
            None => {
                if let Some(uid) = known {
                    self.lock().remove(name, uid);
                }
            }
        }
        Ok(())
    }

    /// Takes what one of our own calls was answered with. The watch tells the same later, which is no news then.
    fn learn(&self, object: &OvnEip) {
        let news = self.observe(object);
        self.lock().note_freed(news);
    }

    fn observe(&self, object: &OvnEip) -> News {
        let Some((name, eip)) = Eip::read(object, &self.cluster) else { return News::default() };
        let news = self.lock().eips.put(name, eip, Moment::now());
        self.unsettled.notify_one();
        news
    }

    async fn answer<T>(&self, tried: &str, call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
        match tokio::time::timeout(self.deadline, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(ProviderError::from_kube(&format!("cannot {tried}"), &error).into()),
            Err(_) => Err(unavailable(tried, "no answer in time")),
        }
    }

    fn tell(&self, made: &Made, reason: &'static str, note: String) {
        let Owner { key, uid } = &made.owner;
        let about = if made.of_tenant {
            eip_reference(&EipKey::new(Some(&key.namespace), Some(&key.name)), Some(*uid))
        } else {
            reference::<Service>(Some(key.namespace.clone()), &key.name, Some(uid.to_string()))
        };
        self.events.tell(about, Severity::Warning, reason, note);
    }

    fn lock(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn object(wish: &Wish, owner: &Owner, cluster: &str) -> OvnEipApply {
    let metadata = ObjectMeta { name: Some(wish.name.clone()), ..marks(owner, cluster) };
    let (external_subnet, v4_ip) = (wish.subnet.to_string(), wish.address.map(|address| address.to_string()));
    OvnEipApply::new(metadata, OvnEipApplySpec { external_subnet, kind: OvnEipType::Nat, v4_ip })
}

/// The marks that make one ours.
fn marks(owner: &Owner, cluster: &str) -> ObjectMeta {
    let labels =
        [(label::CLUSTER.to_owned(), cluster.to_owned()), (label::OWNER_UID.to_owned(), owner.uid.to_string())];
    ObjectMeta {
        labels: Some(labels.into()),
        annotations: Some([(annotation::OWNER.to_owned(), owner.key.to_string())].into()),
        ..ObjectMeta::default()
    }
}

fn unavailable(tried: &str, why: &str) -> Error {
    ProviderError::new(ErrorKind::Unavailable, format!("cannot {tried}: {why}")).into()
}
