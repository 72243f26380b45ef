//! All `FloatingIP`s as the watch has them, and a keeper for each that concerns this node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_core::watch::Sink;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::hold::Claim;
use crate::keeper::{Keeper, Shared};
use crate::platform::Platform;
use crate::wish::{address, version, wish};

type Told = watch::Sender<Option<Arc<FloatingIP>>>;

pub(crate) struct Book<P> {
    shared: Arc<Shared<P>>,
    keepers: TaskTracker,
    /// The objects, each with the way to its keeper if it has one.
    known: BTreeMap<IpAddr, (Arc<FloatingIP>, Option<Told>)>,
    /// Those of a list that is under way.
    listed: BTreeSet<IpAddr>,
    /// All addresses, for the packet filter.
    floating: watch::Sender<BTreeSet<IpAddr>>,
}

impl<P: Platform> Book<P> {
    pub(crate) fn new(shared: Arc<Shared<P>>, keepers: TaskTracker, floating: watch::Sender<BTreeSet<IpAddr>>) -> Self {
        Self { shared, keepers, known: BTreeMap::new(), listed: BTreeSet::new(), floating }
    }

    fn learn(&mut self, object: FloatingIP) -> Option<IpAddr> {
        let address = address(&object)?;
        let object = Arc::new(object);
        let before = self.known.remove(&address);
        let newest = match &before {
            Some((known, _)) if version(&object) < version(known) => known.clone(),
            _ => object,
        };
        let told = match before.and_then(|(_, told)| told) {
            // A keeper that has ended has let go of everything.
            Some(told) if told.send(Some(newest.clone())).is_ok() => Some(told),
            _ => self.concerns_us(&newest).then(|| self.keep(address, newest.clone())),
        };
        self.known.insert(address, (newest, told));
        Some(address)
    }

    fn concerns_us(&self, object: &FloatingIP) -> bool {
        let wish = wish(object, &self.shared.node);
        wish.wanted || wish.claim == Claim::Ours
    }

    fn keep(&self, address: IpAddr, object: Arc<FloatingIP>) -> Told {
        let (told, hears) = watch::channel(Some(object));
        self.keepers.spawn(Keeper::new(self.shared.clone(), address, hears).run());
        told
    }

    fn forget(&mut self, address: IpAddr) {
        if let Some((_, Some(told))) = self.known.remove(&address) {
            told.send_replace(None);
        }
    }

    fn show_floating(&self) {
        let now: BTreeSet<_> = self.known.keys().copied().collect();
        self.floating.send_if_modified(|floating| {
            let changed = *floating != now;
            *floating = now;
            changed
        });
    }
}

impl<P: Platform> Sink<FloatingIP> for Book<P> {
    fn apply(&mut self, object: FloatingIP) {
        self.learn(object);
        self.show_floating();
    }

    fn delete(&mut self, object: FloatingIP) {
        if let Some(address) = address(&object) {
            self.forget(address);
        }
        self.show_floating();
    }

    fn list_begins(&mut self) {
        self.listed.clear();
    }

    fn listed(&mut self, object: FloatingIP) {
        let learnt = self.learn(object);
        self.listed.extend(learnt);
    }

    fn list_complete(&mut self) {
        let gone: Vec<_> = self.known.keys().filter(|address| !self.listed.contains(address)).copied().collect();
        for address in gone {
            self.forget(address);
        }
        self.show_floating();
    }

    // One that cannot be read stays as it was, also when a list no longer shows it as we know it.
    fn unreadable(&mut self, _: Option<&str>, name: &str) {
        let known = self.known.keys().find(|address| FloatingIP::name_of(**address) == name).copied();
        self.listed.extend(known);
    }

    fn deleted_unread(&mut self, _: Option<&str>, name: &str) {
        let known = self.known.keys().find(|address| FloatingIP::name_of(**address) == name).copied();
        if let Some(address) = known {
            self.forget(address);
        }
        self.show_floating();
    }
}
