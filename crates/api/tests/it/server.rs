//! The definitions and their rules on a real kube-apiserver, whose CEL is the one that counts.

use std::time::Duration;

use groundcrew_api::address_pool::{AddressCounts, AddressPool};
use groundcrew_api::crds;
use groundcrew_api::eip::{EIp, EIpOwner, EIpSpec, EIpStatus, OwnershipType};
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_testkit::eventually;
use groundcrew_testkit::kube::shared;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, CustomResourceExt, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::address_pool::{BAD, EXCLUDED_FORM, GOOD, pool};
use crate::floating_ip::{FORM, UNICAST, fip};

const SOON: Duration = Duration::from_mins(3);
const MANAGER: &str = "groundcrew-test";

/// A client of a server that serves our kinds. The definitions are applied once per test binary, without force: a conflict
/// would mean that two of them claim one name.
async fn client() -> Client {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let client = shared().await.unwrap().client().await.unwrap();
    INSTALLED
        .get_or_init(async || {
            let api = Api::<CustomResourceDefinition>::all(client.clone());
            for crd in crds() {
                let name = crd.name_any();
                api.patch(&name, &PatchParams::apply(MANAGER), &Patch::Apply(&crd)).await.unwrap();
                eventually(&format!("{name} is established and sound"), SOON, async || sound(&api.get(&name).await?))
                    .await
                    .unwrap();
                // The server writes that down before it goes by it.
                let version = &crd.spec.versions[0].name;
                let objects = format!("/apis/{}/{version}/{}", crd.spec.group, crd.spec.names.plural);
                eventually(&format!("{name} is served"), SOON, async || {
                    client.request_text(http::Request::get(objects.as_str()).body(vec![]).unwrap()).await
                })
                .await
                .unwrap();
            }
        })
        .await;
    client
}

/// Established, and without the condition by which the server complains of a schema that is not structural.
fn sound(crd: &CustomResourceDefinition) -> anyhow::Result<()> {
    let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    if let Some(complaint) = conditions.iter().find(|c| c.type_ == "NonStructuralSchema" && c.status == "True") {
        panic!("{}: {:?}", crd.name_any(), complaint.message);
    }
    anyhow::ensure!(conditions.iter().any(|c| c.type_ == "Established" && c.status == "True"), "{conditions:?}");
    Ok(())
}

/// Objects go in as JSON, as from a manifest: our types could not even say some of what users write.
fn raw<K: CustomResourceExt>(client: Client, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource: ApiResource = K::api_resource();
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

/// What the server says to an object that is only tried, or nothing.
async fn refusal(api: &Api<DynamicObject>, object: &Value) -> Option<String> {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&dry_run, &object).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) if status.code == 422 => Some(status.message),
        Err(other) => panic!("{other}"),
    }
}

/// Between the two, older versions of Kubernetes name the type of what was refused.
fn says(told: &str, object: &str, path: &str, message: &str) -> bool {
    told.starts_with(&format!("{object} is invalid: {path}: Invalid value: ")) && told.ends_with(message)
}

/// What `kubectl get` prints: the server renders the columns.
async fn printed(client: &Client, path: String) -> Vec<(String, Value)> {
    let request = http::Request::get(path).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = client.request(request.body(vec![]).unwrap()).await.unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let cells = table["rows"][0]["cells"].as_array().unwrap().iter().cloned();
    columns
        .zip(cells)
        .filter(|(column, _)| column["type"] != "date" && column["priority"] == 0)
        .map(|(column, cell)| (column["name"].as_str().unwrap().to_owned(), cell))
        .collect()
}

fn row<const N: usize>(cells: [(&str, Value); N]) -> Vec<(String, Value)> {
    cells.map(|(name, cell)| (name.to_owned(), cell)).into()
}

#[tokio::test]
async fn the_server_agrees_with_every_line_of_a_pool() {
    let pools = raw::<AddressPool>(client().await, None);
    assert_eq!(refusal(&pools, &pool(&json!({"addresses": GOOD, "excluded": GOOD}))).await, None);
    for (line, message) in BAD {
        let told = refusal(&pools, &pool(&json!({"addresses": ["203.0.113.0/28", line]}))).await;
        let expected = format!(
            r#"AddressPool.groundcrew.dev "public" is invalid: spec.addresses[1]: Invalid value: "{line}": {message}"#
        );
        assert_eq!(told, Some(expected));
    }
}

#[tokio::test]
async fn the_server_refuses_other_mistakes_in_a_pool_in_words_that_help() {
    let pools = raw::<AddressPool>(client().await, None);
    let one = json!(["203.0.113.0/28"]);
    let excluded = format!(r#"spec.excluded[0]: Invalid value: "nonsense": {EXCLUDED_FORM}"#);
    for (spec, message) in [
        (json!({}), "spec.addresses: Required value"),
        (json!({"addresses": []}), "must have at least one CIDR or range"),
        (json!({"addresses": ["::/64", "::/64"]}), r#"spec.addresses[1]: Duplicate value: "::/64""#),
        (json!({"addresses": one, "excluded": ["nonsense"]}), &excluded),
        (
            json!({"addresses": one, "namespaces": ["Shalb_Demo"]}),
            r#"spec.namespaces[0]: Invalid value: "Shalb_Demo": "#,
        ),
    ] {
        let told = refusal(&pools, &pool(&spec)).await.unwrap_or_default();
        assert!(told.contains(message), "{spec}: {told}");
    }
}

#[tokio::test]
async fn a_pool_keeps_its_counts_and_conditions() {
    let client = client().await;
    let pools = Api::<AddressPool>::all(client.clone());
    let mut wanted = pool(&json!({
        "addresses": ["203.0.113.0/28", "2001:db8::/64"],
        "excluded": ["203.0.113.1"],
        "namespaces": ["shalb-demo"],
        "priority": 10,
        "disabled": true,
    }));
    wanted["metadata"]["name"] = json!("kept");
    let made = pools.create(&PostParams::default(), &serde_json::from_value(wanted).unwrap()).await.unwrap();
    assert_eq!((made.spec.priority, made.spec.disabled), (10, true));

    let status = json!({"status": {
        "ipv4": {"used": 1, "free": 14},
        "ipv6": {"used": 0, "free": i64::MAX},
        "conditions": [{
            "type": "Overlap",
            "status": "False",
            "reason": "NoOverlap",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    }});
    let kept = pools.patch_status("kept", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let status = kept.status.unwrap();
    assert_eq!(status.ipv4, Some(AddressCounts { used: 1, free: 14 }));
    assert_eq!(status.ipv6, Some(AddressCounts { used: 0, free: i64::MAX }));
    assert_eq!(status.conditions[0].type_, "Overlap");
    assert_eq!(
        printed(&client, AddressPool::url_path(&(), None) + "/kept").await,
        row([
            ("Name", json!("kept")),
            ("Priority", json!(10)),
            ("Disabled", json!(true)),
            ("V4 Used", json!(1)),
            ("V4 Free", json!(14)),
            ("V6 Used", json!(0)),
            ("V6 Free", json!(i64::MAX)),
            ("Overlap", json!("False")),
        ])
    );
}

/// Those of kube-dc's documents, and one without a spec, which its definition allows.
#[tokio::test]
async fn kube_dc_manifests_are_taken_as_they_are() {
    let client = client().await;
    let namespace = shared().await.unwrap().namespace("manifests").await.unwrap();
    let api = raw::<EIp>(client.clone(), Some(&namespace));
    for (name, manifest) in [
        ("bare", "apiVersion: kube-dc.com/v1\nkind: EIp\nmetadata: {name: bare}\n"),
        ("ssh-arti", "apiVersion: kube-dc.com/v1\nkind: EIp\nmetadata: {name: ssh-arti}\nspec: {}\n"),
        ("web", "apiVersion: kube-dc.com/v1\nkind: EIp\nmetadata: {name: web}\nspec:\n  externalNetworkType: public\n"),
        (
            "default-gw",
            "apiVersion: kube-dc.com/v1\nkind: EIp\nmetadata: {name: default-gw}\nspec:\n  childRef: shalb-demo-ext-public\n",
        ),
    ] {
        let manifest: Value = serde_saphyr::from_str(manifest).unwrap();
        let object: DynamicObject = serde_json::from_value(manifest.clone()).unwrap();
        let stored = api.create(&PostParams::default(), &object).await.unwrap();
        assert_eq!(stored.data.get("spec"), manifest.get("spec"), "{name} comes back as it was written");
    }
    // A single one that our type cannot read would fail the list.
    let read = Api::<EIp>::namespaced(client, &namespace).list(&ListParams::default()).await.unwrap();
    assert_eq!(read.items.len(), 4);
}

#[tokio::test]
async fn the_server_refuses_to_move_an_eip() {
    let namespace = shared().await.unwrap().namespace("immutable").await.unwrap();
    let api = raw::<EIp>(client().await, Some(&namespace));
    let object = |name: &str, spec: Value| -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "kube-dc.com/v1", "kind": "EIp", "metadata": {"name": name}, "spec": spec,
        }))
        .unwrap()
    };
    api.create(&PostParams::default(), &object("typed", json!({"externalNetworkType": "public"}))).await.unwrap();
    api.create(&PostParams::default(), &object("plain", json!({}))).await.unwrap();

    let edit =
        async |name: &str, patch: Value| match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => None,
            Err(kube::Error::Api(status)) => Some(status.message),
            Err(other) => panic!("{other}"),
        };
    for (name, patch, path) in [
        ("typed", json!({"spec": {"externalNetworkType": "cloud"}}), "spec.externalNetworkType"),
        ("typed", json!({"spec": {"externalNetworkType": null}}), "spec.externalNetworkType"),
        ("typed", json!({"spec": null}), "spec.externalNetworkType"),
        ("plain", json!({"spec": {"externalNetworkType": "public"}}), "spec.externalNetworkType"),
        ("plain", json!({"spec": {"childRef": "another-projects-eip"}}), "spec.childRef"),
    ] {
        let told = edit(name, patch.clone()).await.unwrap_or_default();
        let message = format!("{} is immutable", path.trim_start_matches("spec."));
        assert!(says(&told, &format!(r#"EIp.kube-dc.com "{name}""#), path, &message), "{patch}: {told}");
    }
    assert_eq!(edit("typed", json!({"metadata": {"labels": {"team": "web"}}})).await, None);
    assert_eq!(edit("plain", json!({"spec": null})).await, None);
}

#[tokio::test]
async fn the_server_refuses_an_eip_with_two_sources() {
    let namespace = shared().await.unwrap().namespace("sources").await.unwrap();
    let api = raw::<EIp>(client().await, Some(&namespace));
    let told = refusal(
        &api,
        &json!({
            "apiVersion": "kube-dc.com/v1",
            "kind": "EIp",
            "metadata": {"name": "both"},
            "spec": {"externalNetworkType": "public", "childRef": "shalb-demo-ext-public"},
        }),
    )
    .await
    .unwrap();
    let message = "externalNetworkType and childRef cannot be set at the same time";
    assert!(says(&told, r#"EIp.kube-dc.com "both""#, "spec", message), "{told}");
}

/// What `kubectl get eip -o jsonpath='{.status.ovnEIpRef}'` of the seed's walk-through reads.
#[tokio::test]
async fn an_eip_status_is_kept_with_the_keys_that_commands_ask_for() {
    let client = client().await;
    let namespace = shared().await.unwrap().namespace("status").await.unwrap();
    let eips = Api::<EIp>::namespaced(client.clone(), &namespace);
    eips.create(&PostParams::default(), &EIp::new("slb-etcd-lb-x7k2p", EIpSpec::default())).await.unwrap();

    let status = EIpStatus {
        ip_address: Some("168.119.17.55".into()),
        ovn_eip_ref: "eip-slb-etcd-lb-x7k2p".into(),
        ownership_type: OwnershipType::Shared,
        owners: vec![EIpOwner { kind: EIpOwner::SERVICE_LB.into(), owner_ref: "etcd-lb".into() }],
        delete_released: Some(true),
        ready: true,
        conditions: vec![],
    };
    let patch = Patch::Merge(json!({"status": status}));
    let kept = eips.patch_status("slb-etcd-lb-x7k2p", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(kept.status, Some(status));
    assert_eq!(
        printed(&client, EIp::url_path(&(), Some(&namespace)) + "/slb-etcd-lb-x7k2p").await,
        row([
            ("Name", json!("slb-etcd-lb-x7k2p")),
            ("External IP", json!("168.119.17.55")),
            ("Ready", json!(true)),
            ("Ownership", json!("Shared")),
        ])
    );
    let raw = raw::<EIp>(client, Some(&namespace)).get("slb-etcd-lb-x7k2p").await.unwrap();
    assert_eq!(raw.data["status"]["ovnEIpRef"], "eip-slb-etcd-lb-x7k2p");
    assert_eq!(raw.data["status"]["owners"], json!([{"type": "ServiceLb", "ownerRef": "etcd-lb"}]));

    let unknown = Patch::Merge(json!({"status": {"ownershipType": "Borrowed"}}));
    let told = eips.patch_status("slb-etcd-lb-x7k2p", &PatchParams::default(), &unknown).await.unwrap_err();
    assert!(told.to_string().contains(r#"supported values: "Released", "Shared", "Exclusive""#), "{told}");
}

#[tokio::test]
async fn the_server_guards_the_address_and_the_serial_of_a_floating_ip() {
    let fips = raw::<FloatingIP>(client().await, None);
    for (address, message) in [("2001:DB8::7", FORM), ("127.0.0.1", UNICAST)] {
        let name = address.to_lowercase().replace(':', "-");
        let told = refusal(&fips, &fip(&name, &json!({"address": address, "serial": 1}))).await.unwrap();
        let (path, message) = message.split_once(": ").unwrap();
        assert!(told.contains(&format!("{path}: Invalid value: \"{address}\": {message}")), "{told}");
    }
    let told = refusal(&fips, &fip("web", &json!({"address": "203.0.113.7", "serial": 1}))).await.unwrap();
    assert!(told.ends_with("the name must be the address, with dashes for colons: so no address has two objects"));

    for address in ["203.0.113.7", "2001:db8::7"] {
        let name = FloatingIP::name_of(address.parse().unwrap());
        let object = fip(&name, &json!({"address": address, "serial": 4, "holder": "a"}));
        fips.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        let edit = async |spec: Value| {
            let edited = fips.patch(&name, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await;
            edited.err().map(|error| error.to_string())
        };
        let told = edit(json!({"holder": "b"})).await.unwrap();
        assert!(told.contains("serial must rise when holder changes"), "{told}");
        let told = edit(json!({"address": "203.0.113.8"})).await.unwrap();
        assert!(told.contains("address is immutable"), "{told}");
        assert_eq!(edit(json!({"holder": "b", "serial": 5, "evicted": "a"})).await, None);
    }
}
