//! What the watches of kube-ovn's objects put into the catalog, and whom they wake.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use groundcrew_api::kube_ovn as api;
use groundcrew_core::watch::Sink;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use uuid::Uuid;

use super::KubeOvn;
use super::eips::{Eip, News};
use super::members::Member;
use super::networks::{Subnet, Vpc};
use crate::addresses::Addresses;

pub(crate) struct OvnEipSink {
    kube_ovn: Arc<KubeOvn>,
    addresses: Arc<Addresses>,
    /// Those that were there when the list began and have not been listed yet.
    unlisted: BTreeMap<Arc<str>, Uuid>,
}

impl OvnEipSink {
    pub(crate) fn new(kube_ovn: Arc<KubeOvn>, addresses: Arc<Addresses>) -> Self {
        Self { kube_ovn, addresses, unlisted: BTreeMap::new() }
    }

    fn spread(&self, news: News) {
        let News { owner, mut addresses, mut freed, connected } = news;
        let by_us = std::mem::take(&mut self.kube_ovn.lock().freed);
        freed |= !by_us.is_empty();
        addresses.extend(by_us);
        if let Some(owner) = owner {
            self.addresses.wake_owner(owner);
        }
        for address in addresses {
            self.addresses.wake_users(address);
        }
        if freed || connected {
            self.addresses.wake_waiting_for_address();
        }
    }

    fn remove(&self, name: &str, uid: Uuid) {
        let news = self.kube_ovn.lock().eips.remove(name, uid);
        self.spread(news);
    }
}

impl Sink<api::OvnEip> for OvnEipSink {
    fn apply(&mut self, object: api::OvnEip) {
        self.spread(self.kube_ovn.observe(&object));
        self.addresses.wake_children(&object.name_any());
    }

    fn delete(&mut self, object: api::OvnEip) {
        if let Some((name, eip)) = Eip::read(&object, &self.kube_ovn.cluster) {
            self.remove(&name, eip.uid);
        }
    }

    fn list_begins(&mut self) {
        self.unlisted = self.kube_ovn.lock().eips.uids();
    }

    fn listed(&mut self, object: api::OvnEip) {
        if let Some((name, eip)) = Eip::read(&object, &self.kube_ovn.cluster) {
            if self.unlisted.get(&name) == Some(&eip.uid) {
                self.unlisted.remove(&name);
            }
            self.apply(object);
        }
    }

    fn list_complete(&mut self) {
        for (name, uid) in std::mem::take(&mut self.unlisted) {
            self.remove(&name, uid);
        }
        // What we removed while nothing was watched is told by nobody else.
        self.spread(News::default());
    }

    fn unreadable(&mut self, _: Option<&str>, name: &str) {
        self.unlisted.remove(name);
    }

    fn deleted_unread(&mut self, _: Option<&str>, name: &str) {
        let uid = self.kube_ovn.lock().eips.get(name).map(|eip| eip.uid);
        if let Some(uid) = uid {
            self.remove(name, uid);
        }
    }
}

/// The Services of namespaces that have another place now look again; those without an address, too, as what changed may
/// be an external network.
fn spread(kube_ovn: &KubeOvn, addresses: &Addresses, concerned: Option<BTreeSet<Box<str>>>) {
    let Some(namespaces) = concerned else { return };
    for namespace in namespaces {
        kube_ovn.places.follow(&namespace, &kube_ovn.lock().networks);
        kube_ovn.look_at_routes(&namespace);
        addresses.wake_project(&namespace);
    }
    addresses.wake_waiting_for_address();
}

macro_rules! sink {
    ($(#[$doc:meta])* $sink:ident, $object:ty, $compact:ident, $put:ident, $remove:ident, $names:ident) => {
        $(#[$doc])*
        pub(crate) struct $sink {
            kube_ovn: Arc<KubeOvn>,
            addresses: Arc<Addresses>,
            unlisted: BTreeSet<Arc<str>>,
        }

        impl $sink {
            pub(crate) fn new(kube_ovn: Arc<KubeOvn>, addresses: Arc<Addresses>) -> Self {
                Self { kube_ovn, addresses, unlisted: BTreeSet::new() }
            }

            fn remove(&self, name: &str) {
                let concerned = self.kube_ovn.lock().networks.$remove(name);
                spread(&self.kube_ovn, &self.addresses, concerned);
            }
        }

        impl Sink<$object> for $sink {
            fn apply(&mut self, object: $object) {
                let concerned = self.kube_ovn.lock().networks.$put($compact::new(&object));
                spread(&self.kube_ovn, &self.addresses, concerned);
            }

            fn delete(&mut self, object: $object) {
                self.remove(&object.name_any());
            }

            fn list_begins(&mut self) {
                self.unlisted = self.kube_ovn.lock().networks.$names();
            }

            fn listed(&mut self, object: $object) {
                self.unlisted.remove(object.name_any().as_str());
                self.apply(object);
            }

            fn list_complete(&mut self) {
                for name in std::mem::take(&mut self.unlisted) {
                    self.remove(&name);
                }
            }

            fn unreadable(&mut self, _: Option<&str>, name: &str) {
                self.unlisted.remove(name);
            }

            fn deleted_unread(&mut self, _: Option<&str>, name: &str) {
                self.remove(name);
            }
        }
    };
}

sink!(
    /// Subnets: the projects' own switches, and external networks.
    SubnetSink, api::Subnet, Subnet, put_subnet, remove_subnet, subnet_names
);
sink!(
    /// Vpcs: the projects' routers.
    VpcSink, api::Vpc, Vpc, put_vpc, remove_vpc, vpc_names
);
sink!(
    /// Namespaces, whose labels Subnets select by.
    NamespaceSink, Namespace, Member, put_namespace, remove_namespace, namespace_names
);
