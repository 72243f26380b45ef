//! The external network that each kube-dc project leaves by.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use groundcrew_api::project::Project;
use groundcrew_core::watch::Sink;

use crate::addresses::Addresses;

/// A Project's namespace, which is its organization's, and its name.
type Key = (Box<str>, Box<str>);

#[derive(Debug, Default)]
struct Index {
    namespaces: BTreeMap<Key, Box<str>>,
    /// By the project's own namespace. Two Projects can claim one; the answer is always the same then.
    egress: BTreeMap<Box<str>, BTreeMap<Key, Option<Box<str>>>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Projects(Arc<RwLock<Index>>);

impl Projects {
    /// The network type of the project that this namespace is the own one of.
    pub(crate) fn egress_of(&self, namespace: &str) -> Option<Box<str>> {
        let index = self.0.read().unwrap_or_else(PoisonError::into_inner);
        index.egress.get(namespace)?.values().next()?.clone()
    }

    /// The namespace that may have another type now.
    fn put(&self, project: &Project) -> Option<Box<str>> {
        let namespace: Box<str> = project.own_namespace()?.into();
        let key = key(project);
        let egress = project.spec.egress_network_type.as_deref().filter(|kind| !kind.is_empty()).map(Into::into);
        let mut index = self.0.write().unwrap_or_else(PoisonError::into_inner);
        index.remove(&key);
        index.namespaces.insert(key.clone(), namespace.clone());
        index.egress.entry(namespace.clone()).or_default().insert(key, egress);
        Some(namespace)
    }

    fn remove(&self, key: &Key) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    fn keys(&self) -> BTreeSet<Key> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).namespaces.keys().cloned().collect()
    }
}

impl Index {
    fn remove(&mut self, key: &Key) {
        let Some(namespace) = self.namespaces.remove(key) else { return };
        if let Some(projects) = self.egress.get_mut(&namespace) {
            projects.remove(key);
            if projects.is_empty() {
                self.egress.remove(&namespace);
            }
        }
    }
}

fn key(project: &Project) -> Key {
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
    (text(&project.metadata.namespace), text(&project.metadata.name))
}

pub(crate) struct ProjectSink {
    projects: Projects,
    addresses: Arc<Addresses>,
    unlisted: BTreeSet<Key>,
}

impl ProjectSink {
    pub(crate) fn new(projects: Projects, addresses: Arc<Addresses>) -> Self {
        Self { projects, addresses, unlisted: BTreeSet::new() }
    }
}

impl Sink<Project> for ProjectSink {
    fn apply(&mut self, project: Project) {
        if self.projects.put(&project).is_some() {
            // Only who has no address yet asks for the type.
            self.addresses.wake_waiting_for_address();
        }
    }

    fn delete(&mut self, project: Project) {
        self.projects.remove(&key(&project));
    }

    fn list_begins(&mut self) {
        self.unlisted = self.projects.keys();
    }

    fn listed(&mut self, project: Project) {
        self.unlisted.remove(&key(&project));
        self.apply(project);
    }

    fn list_complete(&mut self) {
        for key in std::mem::take(&mut self.unlisted) {
            self.projects.remove(&key);
        }
    }

    fn unreadable(&mut self, namespace: Option<&str>, name: &str) {
        self.unlisted.remove(&(namespace.unwrap_or_default().into(), name.into()));
    }

    fn deleted_unread(&mut self, namespace: Option<&str>, name: &str) {
        self.projects.remove(&(namespace.unwrap_or_default().into(), name.into()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn project(org: &str, name: &str, egress: &str, namespace: Option<&str>) -> Project {
        let status = namespace.map(|namespace| json!({ "namespace": namespace }));
        serde_json::from_value(json!({
            "metadata": { "namespace": org, "name": name },
            "spec": { "cidrBlock": "10.1.0.0/16", "egressNetworkType": egress },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_project_is_found_by_its_own_namespace_told_or_derived() {
        let projects = Projects::default();
        projects.put(&project("acme", "dev", "cloud", None));
        assert_eq!(projects.egress_of("acme-dev").as_deref(), Some("cloud"));
        projects.put(&project("acme", "dev", "cloud", Some("other")));
        assert_eq!(projects.egress_of("acme-dev"), None);
        assert_eq!(projects.egress_of("other").as_deref(), Some("cloud"));
        projects.remove(&("acme".into(), "dev".into()));
        assert_eq!(projects.egress_of("other"), None);
    }

    #[test]
    fn of_two_projects_that_claim_one_namespace_the_same_one_always_wins() {
        let (a, b) = (project("a", "b-c", "cloud", None), project("a-b", "c", "public", None));
        for order in [[&a, &b], [&b, &a]] {
            let projects = Projects::default();
            for project in order {
                projects.put(project);
            }
            assert_eq!(projects.egress_of("a-b-c").as_deref(), Some("cloud"));
        }
    }
}
