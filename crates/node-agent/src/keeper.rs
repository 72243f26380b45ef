//! One address, from the first wish to the last trace: carries out what [`next`] says.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use groundcrew_api::floating_ip::{FloatingIP, NatPort};
use groundcrew_core::events::{Events, Severity};
use groundcrew_core::leader::Moment;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::authority::Authority;
use crate::guard::Guard;
use crate::hands;
use crate::hold::{Act, PATIENCE, Standing, Wish, next};
use crate::metrics::Metrics;
use crate::nat::Nat;
use crate::network::{Network, Unable, Uplink};
use crate::pace::Pace;
use crate::platform::{Platform, PlatformError};
use crate::timing::Timings;
use crate::wish::{Said, mac, patch, refusal, version, wish};

/// How long another host gets to answer the question whether it has the address.
const PROBE: Duration = Duration::from_millis(200);
/// One write of a status.
const WRITE: Duration = Duration::from_secs(2);
/// Pause after a write that the API server did not take.
const RETRY: Duration = Duration::from_millis(250);

/// What the keepers of all addresses have in common.
pub(crate) struct Shared<P> {
    pub(crate) platform: Arc<P>,
    pub(crate) api: Api<FloatingIP>,
    pub(crate) node: String,
    /// Unique to this process.
    pub(crate) run: String,
    /// Makes every claim differ from the one before: the API server takes an equal one for no change, and then it
    /// would not stop a write that was planned before it.
    pub(crate) claims: AtomicU64,
    pub(crate) timings: Timings,
    pub(crate) authority: watch::Receiver<Authority>,
    pub(crate) network: watch::Receiver<Arc<Network>>,
    pub(crate) guard: Guard<P>,
    pub(crate) nat: Nat<P>,
    pub(crate) pace: Pace,
    pub(crate) metrics: Metrics,
    pub(crate) events: Events,
    pub(crate) stop: CancellationToken,
}

pub(crate) struct Keeper<P> {
    shared: Arc<Shared<P>>,
    address: IpAddr,
    name: String,
    /// The object as the watch has it; `None` when it is gone.
    told: watch::Receiver<Option<Arc<FloatingIP>>>,
    /// The newest of what the watch and our own writes returned.
    latest: Option<Arc<FloatingIP>>,
    standing: Standing,
    /// The interface that the address is on.
    on: Option<u32>,
}

impl<P: Platform> Keeper<P> {
    pub(crate) fn new(shared: Arc<Shared<P>>, address: IpAddr, told: watch::Receiver<Option<Arc<FloatingIP>>>) -> Self {
        let name = FloatingIP::name_of(address);
        Self { shared, address, name, told, latest: None, standing: Standing::default(), on: None }
    }

    /// Until the object is gone, or the process stops; nothing is on an interface then.
    #[tracing::instrument(name = "address", skip_all, fields(address = %self.address))]
    pub(crate) async fn run(mut self) {
        let shared = self.shared.clone();
        let (mut authority, mut network) = (shared.authority.clone(), shared.network.clone());
        let mut told = self.told.clone();
        loop {
            // Marked as seen before they are read, so that a change in between wakes us.
            let read = told.borrow_and_update().clone();
            self.hear(read);
            authority.mark_unchanged();
            network.mark_unchanged();
            let uplink = self.uplink();
            let act = self.next(uplink.is_ok());
            let Act::Wait { until } = act else {
                self.perform(act, uplink).await;
                continue;
            };
            if let Err(unable) = uplink {
                self.explain(&unable);
            }
            // Also where it was meant to come and did not.
            let ports = if self.on.is_some() { self.ports() } else { &[] };
            if let Err(error) = shared.nat.serve(self.address, ports).await {
                warn!(%error, "the balancing is as it was before");
            }
            let gone = told.borrow().is_none();
            if until.is_none() && (shared.stop.is_cancelled() || gone) {
                return;
            }
            let pause = until.map_or(Duration::MAX, |until| shared.platform.now().until(until));
            tokio::select! {
                changed = told.changed() => if changed.is_err() { return self.leave().await },
                _ = authority.changed() => {}
                _ = network.changed() => {}
                () = shared.stop.cancelled(), if !shared.stop.is_cancelled() => {}
                () = sleep(pause.max(Duration::from_millis(1))) => {}
            }
        }
    }

    fn hear(&mut self, read: Option<Arc<FloatingIP>>) {
        let newer = |read: &FloatingIP| self.latest.as_ref().is_none_or(|latest| version(latest) <= version(read));
        if read.as_ref().is_none_or(|read| newer(read)) {
            self.latest = read;
        }
    }

    fn uplink(&self) -> Result<Uplink, Unable> {
        let mac = self.latest.as_ref().and_then(|object| mac(object));
        self.shared.network.borrow().uplink(self.address.is_ipv6(), mac)
    }

    fn next(&self, able: bool) -> Act {
        let stopping = self.shared.stop.is_cancelled();
        let wish = self.latest.as_ref().map(|object| wish(object, &self.shared.node));
        let wish = wish.map(|wish| Wish { wanted: wish.wanted && !stopping, ..wish });
        // Elsewhere than where it should be is as good as not there.
        let elsewhere = self.on.is_some_and(|on| !self.uplink().is_ok_and(|uplink| uplink.link.index == on));
        let authority = *self.shared.authority.borrow();
        let now = self.shared.platform.now();
        next(wish, able && !elsewhere, &authority, &self.standing, self.shared.timings, now)
    }

    /// Why the node that should have the address does not even claim it.
    fn explain(&self, unable: &Unable) {
        if let Some(object) = self.latest.as_ref().filter(|object| wish(object, &self.shared.node).wanted) {
            let about = object.object_ref(&());
            self.shared.events.tell(about, Severity::Warning, unable.reason(), unable.to_string());
        }
    }

    /// Where the object asks for it, the packet filter does what a service proxy would.
    fn ports(&self) -> &[NatPort] {
        self.latest.as_ref().map_or(&[][..], |object| &object.spec.nat)
    }

    async fn perform(&mut self, act: Act, uplink: Result<Uplink, Unable>) {
        match (act, uplink) {
            (Act::Hide, _) => self.hide().await,
            (Act::Release, Err(unable)) => self.release(unable.reason(), unable.to_string()).await,
            (Act::Release, Ok(_)) => self.release("Released", "the address is gone from the node".into()).await,
            (Act::Refuse, Err(unable)) => self.refuse(&unable).await,
            (Act::Claim { term, clear }, _) => self.claim(term, clear).await,
            (Act::Probe, Ok(uplink)) => self.probe(&uplink).await,
            (Act::Show { .. }, Ok(uplink)) => self.show(&uplink).await,
            (Act::Announce, Ok(uplink)) => self.announce(&uplink).await,
            (Act::Report, Ok(uplink)) => {
                let message = format!("on {} of {}", uplink.link.name, self.shared.node);
                self.standing.reported = self.say(Said { ready: true, reason: "Held", message }).await;
            }
            (Act::Refuse | Act::Probe | Act::Show { .. } | Act::Announce | Act::Report | Act::Wait { .. }, _) => {}
        }
    }

    async fn hide(&mut self) {
        let Some(link) = self.on else {
            self.standing = Standing::default();
            return;
        };
        if let Err(error) = self.shared.platform.hide(self.address, link) {
            warn!(%error, "trying again");
            return sleep(Duration::from_millis(100)).await;
        }
        info!("address taken from the interface");
        self.shared.metrics.held.dec();
        (self.standing, self.on) = (Standing::default(), None);
        // Together: the next holder waits for this.
        let (revoked, forgotten, left) = tokio::join!(
            self.shared.guard.revoke(self.address),
            self.shared.platform.forget_udp(self.address, None),
            self.shared.nat.serve(self.address, &[]),
        );
        for done in [revoked, forgotten, left] {
            if let Err(error) = done {
                warn!(%error, "the address is gone, but not every trace of it");
            }
        }
    }

    /// The object is unknown from now on.
    async fn leave(&mut self) {
        while self.on.is_some() {
            self.hide().await;
        }
    }

    async fn claim(&mut self, term: u64, clear: bool) {
        let Some(serial) = self.latest.as_ref().map(|object| object.spec.serial) else { return };
        let count = self.shared.claims.fetch_add(1, Ordering::Relaxed);
        let message = format!("{} takes the address (claim {}-{count})", self.shared.node, self.shared.run);
        if self.say(Said { ready: false, reason: "Claimed", message }).await {
            self.standing = Standing { claim: Some((term, serial)), clear, ..Standing::default() };
        }
    }

    async fn release(&mut self, reason: &'static str, message: String) {
        if self.write(None, &Said { ready: false, reason, message }).await {
            self.standing = Standing::default();
        }
    }

    /// Whoever held it last stays named: this says nothing about whether it let go.
    async fn refuse(&mut self, unable: &Unable) {
        let Some(object) = self.latest.clone() else { return };
        let said = Said { ready: false, reason: unable.reason(), message: unable.to_string() };
        if self.send(refusal(&object, &said, Timestamp::now())).await {
            self.standing.refused = Some(object.spec.serial);
        }
    }

    async fn probe(&mut self, uplink: &Uplink) {
        let (link, mac) = (uplink.link.index, uplink.link.mac);
        match self.shared.platform.probe(self.address, link, mac, PROBE).await {
            Ok(None) => self.standing.clear = true,
            Ok(Some(other)) => {
                self.shared.metrics.duplicates.inc();
                self.refused("AddressInUse", format!("a host with the hardware address {other} answers for it")).await;
            }
            Err(error) => self.refused("ProbeFailed", error.to_string()).await,
        }
    }

    async fn show(&mut self, uplink: &Uplink) {
        let (shared, link) = (self.shared.clone(), uplink.link.index);
        let new = self.standing.shown.is_none();
        if new {
            let term = shared.authority.borrow().term;
            if let Err(error) = shared.guard.permit(self.address, &uplink.link.name, term).await {
                return self.refused("FilterFailed", error.to_string()).await;
            }
            if let Err(error) = shared.nat.serve(self.address, self.ports()).await {
                return self.refused("FilterFailed", error.to_string()).await;
            }
        }
        match hands::show(&*shared.platform, &shared.authority, shared.timings, self.address, link, new) {
            Ok(Some(until)) => {
                self.standing.shown = Some(until);
                self.on = Some(link);
                if new {
                    shared.metrics.held.inc();
                    info!(interface = uplink.link.name, "address put on the interface");
                }
            }
            // Too late. What was there before is gone too, or on its way.
            Ok(None) if new => {}
            Ok(None) => self.hide().await,
            Err(error) => {
                let reason = match error {
                    PlatformError::Foreign(..) => "AddressForeign",
                    _ => "KernelRefused",
                };
                self.refused(reason, error.to_string()).await;
            }
        }
    }

    async fn announce(&mut self, uplink: &Uplink) {
        let shared = self.shared.clone();
        let first = self.standing.announced.is_none();
        let told = hands::announce(&*shared.platform, &shared.authority, &shared.pace, self.address, uplink);
        if let Err(error) = &told {
            warn!(%error, "not announced; trying again soon");
        }
        let times = self.standing.announced.map_or(0, |(times, _)| times);
        let times = times.saturating_add(usize::from(matches!(told, Ok(true))));
        self.standing.announced = Some((times, shared.platform.now()));
        if first && let Err(error) = shared.platform.forget_udp(self.address, None).await {
            warn!(%error, "old UDP flows may go to the wrong backend");
        }
    }

    /// Tells why the address is not served although it is ours, and lets some time pass.
    async fn refused(&mut self, reason: &'static str, message: String) {
        warn!(reason, why = message, "address not served");
        if let Some(object) = &self.latest {
            self.shared.events.tell(object.object_ref(&()), Severity::Warning, reason, message.clone());
        }
        self.standing.not_before = Some(self.shared.platform.now() + PATIENCE);
        self.standing.reported = false;
        self.say(Said { ready: false, reason, message }).await;
    }

    /// A status with us as the holder.
    async fn say(&mut self, said: Said) -> bool {
        let shared = self.shared.clone();
        self.write(Some(&shared.node), &said).await
    }

    /// Whether the status is so now. Where somebody else was quicker, what they wrote is read.
    async fn write(&mut self, holder: Option<&str>, said: &Said) -> bool {
        let Some(object) = self.latest.clone() else { return false };
        self.send(patch(&object, holder, said, Timestamp::now())).await
    }

    async fn send(&mut self, patch: Option<Value>) -> bool {
        let Some(patch) = patch else { return true };
        let (api, params) = (&self.shared.api, PatchParams::default());
        let written = timeout(WRITE, api.patch_status(&self.name, &params, &Patch::Merge(patch))).await;
        match written {
            Ok(Ok(object)) => {
                self.latest = Some(Arc::new(object));
                return true;
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 || status.code == 404 => {
                if let Ok(Ok(Some(read))) = timeout(WRITE, api.get_opt(&self.name)).await {
                    self.latest = Some(Arc::new(read));
                    return false;
                }
                // Gone: the watch will say so too.
            }
            Ok(Err(error)) => warn!(%error, "status not written; trying again"),
            Err(_) => warn!("no answer to the write of the status; trying again"),
        }
        let soon: Moment = self.shared.platform.now() + RETRY;
        self.standing.not_before = self.standing.not_before.max(Some(soon));
        false
    }
}
