//! Custom resources that do not parse: told, counted, and no obstacle to the others.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::core::{DeserializeGuard, error_boundary::InvalidObject};
use prometheus::IntGauge;
use tokio::sync::watch;
use tracing::warn;

use super::Sink;
use crate::events::{Events, Severity};
use crate::leader::Role;
use crate::metrics::{self, Register};
use crate::runtime::Runtime;

/// Describes the metric of guarded watches.
pub fn describe(register: &dyn Register) -> prometheus::Result<()> {
    metrics::unreadable(register, "").map(drop)
}

/// Hands what parses on to `sink`. What does not keeps the state in which it was last known: a typo in a living object
/// must not look like its deletion.
pub struct Guarded<S> {
    sink: S,
    events: Events,
    role: watch::Receiver<Role>,
    count: IntGauge,
    unreadable: BTreeMap<(Option<String>, Option<String>), String>,
}

impl<S> Guarded<S> {
    /// `plural` is the resource's name, in the metric and nowhere else.
    pub fn new(sink: S, plural: &str, runtime: &Runtime) -> prometheus::Result<Self> {
        let count = metrics::unreadable(&runtime.registry, plural)?;
        let (events, role) = (runtime.events.clone(), runtime.role.clone());
        Ok(Self { sink, events, role, count, unreadable: BTreeMap::new() })
    }

    fn complain<K>(&mut self, invalid: InvalidObject)
    where
        K: Resource<DynamicType = ()>,
        S: Sink<K>,
    {
        let InvalidObject { error, metadata } = invalid;
        let (namespace, name) = (metadata.namespace, metadata.name);
        let key = (namespace.clone(), name.clone());
        self.sink.unreadable(namespace.as_deref(), name.as_deref().unwrap_or_default());
        if self.unreadable.get(&key) != Some(&error) {
            warn!(kind = &*K::kind(&()), namespace, name, error, "cannot be read; left as it was");
        }
        if self.role.borrow().term().is_some() {
            let about = ObjectReference {
                api_version: Some(K::api_version(&()).into_owned()),
                kind: Some(K::kind(&()).into_owned()),
                namespace,
                name,
                uid: metadata.uid,
                ..ObjectReference::default()
            };
            self.events.tell(
                about,
                Severity::Warning,
                "Unreadable",
                format!("cannot be read, so it is left as it was: {error}"),
            );
        }
        self.unreadable.insert(key, error);
        self.show();
    }

    fn readable<K: Resource>(&mut self, object: &K) {
        let meta = object.meta();
        if !self.unreadable.is_empty() {
            self.unreadable.remove(&(meta.namespace.clone(), meta.name.clone()));
            self.show();
        }
    }

    fn show(&self) {
        self.count.set(self.unreadable.len().try_into().unwrap_or(i64::MAX));
    }
}

impl<K, S> Sink<DeserializeGuard<K>> for Guarded<S>
where
    K: Resource<DynamicType = ()> + Send,
    S: Sink<K>,
{
    fn apply(&mut self, object: DeserializeGuard<K>) {
        match object.0 {
            Ok(object) => {
                self.readable(&object);
                self.sink.apply(object);
            }
            Err(invalid) => self.complain::<K>(invalid),
        }
    }

    fn delete(&mut self, object: DeserializeGuard<K>) {
        match object.0 {
            Ok(object) => {
                self.readable(&object);
                self.sink.delete(object);
            }
            Err(invalid) => {
                let InvalidObject { metadata, .. } = invalid;
                self.sink.deleted_unread(metadata.namespace.as_deref(), metadata.name.as_deref().unwrap_or_default());
                self.unreadable.remove(&(metadata.namespace, metadata.name));
                self.show();
            }
        }
    }

    fn list_begins(&mut self) {
        self.unreadable.clear();
        self.sink.list_begins();
    }

    fn listed(&mut self, object: DeserializeGuard<K>) {
        match object.0 {
            Ok(object) => self.sink.listed(object),
            Err(invalid) => self.complain::<K>(invalid),
        }
    }

    fn list_complete(&mut self) {
        self.show();
        self.sink.list_complete();
    }
}
