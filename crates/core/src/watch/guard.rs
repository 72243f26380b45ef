//! Custom resources that do not parse: told, counted, and no obstacle to the others.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::core::ObjectMeta;
use kube::core::error_boundary::InvalidObject;
use prometheus::IntGauge;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
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

/// An object of a list or a watch, or why it does not parse.
///
/// As kube's `DeserializeGuard`, without its tree of every object and a copy of that tree, which ten thousand `EIp`s pass
/// through at each start. It reads JSON and nothing else.
#[derive(Debug, Clone)]
pub struct Checked<K>(pub Result<K, InvalidObject>);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Checked<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Named {
            #[serde(default)]
            metadata: ObjectMeta,
        }

        let text = Box::<RawValue>::deserialize(deserializer)?;
        match serde_json::from_str(text.get()) {
            Ok(object) => Ok(Self(Ok(object))),
            Err(error) => {
                let Named { metadata } = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
                Ok(Self(Err(InvalidObject { error: without_place(error.to_string()), metadata })))
            }
        }
    }
}

/// Nobody sees the text that lines and columns are counted in.
fn without_place(mut error: String) -> String {
    if let Some(place) = error.rfind(" at line ") {
        error.truncate(place);
    }
    error
}

impl<K: Resource> Resource for Checked<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|invalid| &invalid.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|invalid| &mut invalid.metadata, K::meta_mut)
    }
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

impl<K, S> Sink<Checked<K>> for Guarded<S>
where
    K: Resource<DynamicType = ()> + Send,
    S: Sink<K>,
{
    fn apply(&mut self, object: Checked<K>) {
        match object.0 {
            Ok(object) => {
                self.readable(&object);
                self.sink.apply(object);
            }
            Err(invalid) => self.complain::<K>(invalid),
        }
    }

    fn delete(&mut self, object: Checked<K>) {
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

    fn listed(&mut self, object: Checked<K>) {
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;
    use kube::core::{ObjectList, WatchEvent};
    use serde_json::json;

    use super::*;

    #[test]
    fn one_that_does_not_parse_is_named_and_the_others_of_its_list_are_read() {
        let item = |name: &str, data: serde_json::Value| json!({ "metadata": { "name": name }, "data": data });
        let list = json!({
            "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {},
            "items": [item("good", json!({ "a": "b" })), item("odd", json!("text")), item("fine", json!({}))],
        });
        let list: ObjectList<Checked<ConfigMap>> = serde_json::from_str(&list.to_string()).unwrap();
        let read: Vec<_> = list.iter().map(|checked| (checked.name_any(), checked.0.is_ok())).collect();
        assert_eq!(read, [("good".to_owned(), true), ("odd".to_owned(), false), ("fine".to_owned(), true)]);
        let error = list.items[1].0.as_ref().unwrap_err().error.clone();
        assert_eq!(error, "invalid type: string \"text\", expected a map");
        assert_eq!(list.items[0].0.as_ref().unwrap().data, Some([("a".to_owned(), "b".to_owned())].into()));
    }

    #[test]
    fn an_event_of_a_watch_is_read_as_one_of_a_list() {
        let event = r#"{"type":"MODIFIED","object":{"metadata":{"name":"odd","namespace":"shop"},"data":7}}"#;
        let event: WatchEvent<Checked<ConfigMap>> = serde_json::from_str(event).unwrap();
        let WatchEvent::Modified(checked) = event else { panic!("{event:?}") };
        assert_eq!((checked.name_any(), checked.namespace()), ("odd".to_owned(), Some("shop".to_owned())));
        assert!(checked.0.is_err());
    }
}
