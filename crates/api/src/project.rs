//! kube-dc's `Project`, as far as we read it.

use kube::core::ObjectMeta;
use serde::Deserialize;

/// A tenant's project. It lives in the namespace of its organization; what belongs to it lives in one of its own.
///
/// It can be read but not serialised: it is kube-dc's to write.
#[derive(Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Project {
    /// Standard metadata.
    pub metadata: ObjectMeta,
    /// How the project is connected.
    #[serde(default)]
    pub spec: ProjectSpec,
    /// What kube-dc made of it; nothing until it has.
    #[serde(default)]
    pub status: Option<ProjectStatus>,
}

/// How the project is connected.
#[derive(Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ProjectSpec {
    /// The external network that the project's own traffic leaves by.
    #[serde(default)]
    pub egress_network_type: Option<String>,
}

/// What kube-dc made of a project.
#[derive(Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ProjectStatus {
    /// The namespace that is the project's own.
    #[serde(default)]
    pub namespace: Option<String>,
}

impl Project {
    /// The namespace of what belongs to the project: as kube-dc says, and before it does, as it will.
    #[must_use]
    pub fn own_namespace(&self) -> Option<String> {
        let told = self.status.as_ref().and_then(|status| status.namespace.clone());
        let by_rule = || Some(format!("{}-{}", self.metadata.namespace.as_ref()?, self.metadata.name.as_ref()?));
        told.filter(|namespace| !namespace.is_empty()).or_else(by_rule)
    }
}

impl kube::Resource for Project {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        "kube-dc.com".into()
    }
    fn version((): &()) -> std::borrow::Cow<'_, str> {
        "v1".into()
    }
    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        "Project".into()
    }
    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        "projects".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
