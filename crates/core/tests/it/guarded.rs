//! One object that does not parse, among others that do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use groundcrew_core::watch::{Checked, Guarded, Sink, follow};
use groundcrew_testkit::eventually;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Api, CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::harness::{Lab, SOON};
use crate::trouble::events;

const UNREADABLE: &str = r#"groundcrew_unreadable_objects{resource="widgets"}"#;

#[derive(CustomResource, JsonSchema, Debug, Clone, Serialize, Deserialize)]
#[kube(group = "test.example", version = "v1", kind = "Widget", namespaced)]
struct WidgetSpec {
    size: u32,
}

/// Sizes by name; unreadable objects keep theirs over a list.
#[derive(Clone, Default)]
struct Sizes {
    known: Arc<Mutex<BTreeMap<String, u32>>>,
    listed: Vec<String>,
}

impl Sink<Widget> for Sizes {
    fn apply(&mut self, object: Widget) {
        self.known.lock().unwrap().insert(object.name_any(), object.spec.size);
    }
    fn delete(&mut self, object: Widget) {
        self.known.lock().unwrap().remove(&object.name_any());
    }
    fn list_begins(&mut self) {
        self.listed.clear();
    }
    fn listed(&mut self, object: Widget) {
        self.listed.push(object.name_any());
        self.apply(object);
    }
    fn list_complete(&mut self) {
        let listed = &self.listed;
        self.known.lock().unwrap().retain(|name, _| listed.contains(name));
    }
    fn unreadable(&mut self, _: Option<&str>, name: &str) {
        self.listed.push(name.to_owned());
    }
}

#[tokio::test]
async fn an_object_that_does_not_parse_is_told_and_stops_nobody() {
    let lab = Lab::new("guarded").await;
    // The server's schema takes anything: an older or a foreign definition under our name looks like this.
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.test.example" },
        "spec": {
            "group": "test.example", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    });
    let crds: Api<CustomResourceDefinition> = Api::all(lab.client.clone());
    crds.patch("widgets.test.example", &PatchParams::apply("test"), &Patch::Apply(definition)).await.unwrap();
    let resource = kube::api::ApiResource::erase::<Widget>(&());
    let anything: Api<DynamicObject> = Api::namespaced_with(lab.client.clone(), &lab.namespace, &resource);
    let put = async |name: &str, size: serde_json::Value| {
        let widget = json!({ "apiVersion": "test.example/v1", "kind": "Widget", "metadata": { "name": name }, "spec": { "size": size } });
        anything.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(widget)).await
    };
    eventually("the definition is served", SOON, async || put("good", json!(1)).await).await.unwrap();
    put("bad", json!("large")).await.unwrap();

    let sizes = Sizes::default();
    let known = sizes.known.clone();
    let (client, namespace) = (lab.client.clone(), lab.namespace.clone());
    let controller = lab
        .start_with(&["--no-leader-election"], async move |runtime| {
            let api: Api<Checked<Widget>> = Api::namespaced(client, &namespace);
            let guarded = Guarded::new(sizes, "widgets", &runtime)?;
            runtime.ready.wait_for("widgets", "");
            let mut role = runtime.role.clone();
            let (ready, stop) = (runtime.ready.clone(), runtime.tasks.stop().clone());
            runtime.tasks.spawn("widgets", async move {
                // Only a leader tells, so the list comes after the election.
                let _ = role.wait_for(|role| role.term().is_some()).await;
                follow(api, "widgets", guarded, ready, stop).await;
            });
            Ok(())
        })
        .await;

    let until = async |what: &str, want: &[(&str, u32)]| {
        let want: BTreeMap<_, _> = want.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
        eventually(what, SOON, async || {
            let known = known.lock().unwrap().clone();
            if known == want { Ok(()) } else { Err(format!("{known:?}")) }
        })
        .await
        .unwrap();
    };
    let until_unreadable = async |want: f64| {
        eventually(&format!("{want} are unreadable"), SOON, async || {
            let count = controller.metric(UNREADABLE).await;
            if (count - want).abs() < 0.5 { Ok(()) } else { Err(count) }
        })
        .await
        .unwrap();
    };
    until("the good one is known", &[("good", 1)]).await;
    until_unreadable(1.0).await;
    let told = eventually("the Event is there", SOON, async || events(&lab, "bad").await.pop().ok_or("no Event"));
    let (reason, note) = told.await.unwrap();
    assert_eq!(reason, "Unreadable");
    assert!(note.contains("invalid type: string \"large\", expected u32"), "{note}");

    put("bad", json!(7)).await.unwrap();
    put("good", json!("small")).await.unwrap();
    until("mended, and the other keeps what was known of it", &[("bad", 7), ("good", 1)]).await;
    // Both are known like this between the two events, too: then none is unreadable.
    until_unreadable(1.0).await;
    anything.delete("good", &DeleteParams::default()).await.unwrap();
    until_unreadable(0.0).await;
    controller.stop().await;
}
