//! Objects of one kind as the API server last told them, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use groundcrew_core::watch::Sink;
use kube::{Resource, ResourceExt};
use tokio::sync::watch;

/// Cheap to clone. Names are unique: the kind has no namespace, or only one is followed.
#[derive(Debug)]
pub(crate) struct Mirror<K> {
    objects: Arc<RwLock<BTreeMap<String, Arc<K>>>>,
    changed: watch::Sender<u64>,
}

impl<K> Clone for Mirror<K> {
    fn clone(&self) -> Self {
        Self { objects: self.objects.clone(), changed: self.changed.clone() }
    }
}

impl<K> Default for Mirror<K> {
    fn default() -> Self {
        Self { objects: Arc::default(), changed: watch::Sender::new(0) }
    }
}

impl<K> Mirror<K> {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Wakes at every change of any of them.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn sink<F: Fn(&K)>(&self, told: F) -> MirrorSink<K, F> {
        MirrorSink { mirror: self.clone(), told, listed: BTreeSet::new() }
    }
}

impl<K: Resource> Mirror<K> {
    /// What was created is known before the watch tells it.
    pub(crate) fn made(&self, object: K) {
        self.keep(object, true);
    }

    /// So is what a write was answered with. It brings back nobody who has gone since: no event would take him away again.
    pub(crate) fn wrote(&self, object: K) {
        self.keep(object, false);
    }

    /// An older one never replaces a newer one.
    fn keep(&self, object: K, unknown: bool) {
        let name = object.name_any();
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        if objects.get(&name).map_or(unknown, |known| version(known.as_ref()) < version(&object)) {
            objects.insert(name, Arc::new(object));
            drop(objects);
            self.changed.send_modify(|count| *count += 1);
        }
    }
}

/// Opaque in principle, a rising number in every API server there is; one that is not is newer than anything.
fn version(object: &impl Resource) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(u64::MAX)
}

pub(crate) struct MirrorSink<K, F> {
    mirror: Mirror<K>,
    /// Called with each object that is new, changed or gone.
    told: F,
    listed: BTreeSet<String>,
}

impl<K: Resource, F: Fn(&K)> MirrorSink<K, F> {
    fn put(&mut self, object: K) {
        let (name, object) = (object.name_any(), Arc::new(object));
        let mut objects = self.mirror.objects.write().unwrap_or_else(PoisonError::into_inner);
        objects.insert(name, object.clone());
        drop(objects);
        (self.told)(&object);
    }

    fn take(&mut self, name: &str) {
        let gone = self.mirror.objects.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        if let Some(gone) = gone {
            (self.told)(&gone);
        }
    }

    fn ring(&self) {
        self.mirror.changed.send_modify(|count| *count += 1);
    }
}

impl<K, F> Sink<K> for MirrorSink<K, F>
where
    K: Resource + Send + Sync,
    F: Fn(&K) + Send,
{
    fn apply(&mut self, object: K) {
        // The answer to a write of ours may have overtaken it.
        let known = self.mirror.get(&object.name_any());
        if known.is_none_or(|known| version(known.as_ref()) <= version(&object)) {
            self.put(object);
        }
        self.ring();
    }

    fn delete(&mut self, object: K) {
        self.take(&object.name_any());
        self.ring();
    }

    fn list_begins(&mut self) {
        self.listed.clear();
    }

    fn listed(&mut self, object: K) {
        self.listed.insert(object.name_any());
        self.put(object);
    }

    fn list_complete(&mut self) {
        let known: Vec<_> = {
            let objects = self.mirror.objects.read().unwrap_or_else(PoisonError::into_inner);
            objects.keys().filter(|name| !self.listed.contains(*name)).cloned().collect()
        };
        for name in known {
            self.take(&name);
        }
        self.ring();
    }

    fn unreadable(&mut self, _: Option<&str>, name: &str) {
        self.listed.insert(name.to_owned());
    }

    fn deleted_unread(&mut self, _: Option<&str>, name: &str) {
        self.take(name);
        self.ring();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn object(version: u64) -> ConfigMap {
        let object = json!({ "metadata": { "name": "a", "resourceVersion": version.to_string() } });
        serde_json::from_value(object).unwrap()
    }

    fn known(mirror: &Mirror<ConfigMap>) -> Option<String> {
        mirror.get("a")?.resource_version()
    }

    #[test]
    fn what_the_watch_tells_late_does_not_undo_what_a_write_was_answered_with() {
        let mirror = Mirror::default();
        let mut sink = mirror.sink(|_| {});
        mirror.made(object(3));
        sink.apply(object(2));
        assert_eq!(known(&mirror).as_deref(), Some("3"));
        sink.apply(object(4));
        mirror.wrote(object(3));
        assert_eq!(known(&mirror).as_deref(), Some("4"));
    }

    #[test]
    fn the_answer_to_a_write_brings_back_nobody_who_has_gone_since() {
        let mirror = Mirror::default();
        let mut sink = mirror.sink(|_| {});
        sink.apply(object(1));
        sink.delete(object(3));
        mirror.wrote(object(2));
        assert_eq!(known(&mirror), None);
    }
}
