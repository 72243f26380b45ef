//! The router and the switch of each namespace that kube-ovn says something about.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::networks::Networks;

/// The router and the switch of a namespace, as far as kube-ovn says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) router: Option<Arc<str>>,
    pub(crate) switch: Option<Arc<str>>,
}

/// Asked for every Service at every look, and changed rarely.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places(Arc<RwLock<BTreeMap<Box<str>, Place>>>);

impl Places {
    pub(crate) fn of(&self, namespace: &str) -> Place {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(namespace).cloned().unwrap_or_default()
    }

    /// Takes what the networks say now. They are locked meanwhile: of two watches at work, the one that has seen less must
    /// not be the last to say it.
    pub(super) fn follow(&self, namespace: &str, networks: &Networks) {
        let place = networks.place(namespace);
        let mut places = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if place == Place::default() {
            places.remove(namespace);
        } else if places.get(namespace) != Some(&place) {
            places.insert(namespace.into(), place);
        }
    }
}
