use std::time::Duration;

use groundcrew_testkit::kube::{ControlPlane, Part, shared};
use groundcrew_testkit::proxy::Proxy;
use groundcrew_testkit::{Signal, eventually};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, PostParams, VersionMatch};
use kube::{Api, Client};
use serde_json::{Value, from_value, json};
use tokio::time::timeout;

const SOON: Duration = Duration::from_mins(1);
/// More than an API server that runs takes for a small list.
const HANGS: Duration = Duration::from_secs(2);

async fn create<K>(api: &Api<K>, object: Value) -> kube::Result<K>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    api.create(&PostParams::default(), &from_value(object).unwrap()).await
}

async fn count(client: &Client, namespace: &str) -> kube::Result<usize> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    Ok(maps.list(&ListParams::default()).await?.items.len())
}

fn code(result: kube::Result<usize>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn tests_share_a_control_plane_and_keep_apart_by_namespace() {
    let (one, other) = (shared().await.unwrap(), shared().await.unwrap());
    assert_eq!(one.address(), other.address());
    let (mine, yours) = (one.namespace("apart").await.unwrap(), one.namespace("apart").await.unwrap());
    assert_ne!(mine, yours);
    let client = one.client().await.unwrap();
    create(&Api::<ConfigMap>::namespaced(client.clone(), &mine), json!({"metadata": {"name": "a"}})).await.unwrap();
    assert_eq!((count(&client, &mine).await.unwrap(), count(&client, &yours).await.unwrap()), (1, 0));
}

#[tokio::test]
async fn nobody_may_do_what_rbac_does_not_grant() {
    let plane = shared().await.unwrap();
    let namespace = plane.namespace("rbac").await.unwrap();
    let account = plane.service_account(&namespace, "reader").await.unwrap().client().await.unwrap();
    let user = plane.user("jane", Some("readers")).unwrap().client().await.unwrap();
    assert_eq!(code(count(&account, &namespace).await), 403);
    assert_eq!(code(count(&user, &namespace).await), 403);

    let admin = plane.client().await.unwrap();
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    create(&Api::<Role>::namespaced(admin.clone(), &namespace), json!({"metadata": {"name": "r"}, "rules": rules}))
        .await
        .unwrap();
    let binding = json!({
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [
            {"kind": "ServiceAccount", "name": "reader", "namespace": namespace},
            {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "readers"},
        ],
    });
    create(&Api::<RoleBinding>::namespaced(admin, &namespace), binding).await.unwrap();
    for client in [account, user] {
        eventually("RBAC has seen the binding", SOON, async || count(&client, &namespace).await).await.unwrap();
        assert_eq!(code(count(&client, "default").await), 403);
    }
}

#[tokio::test]
async fn a_proxy_comes_between_a_client_and_the_api_server() {
    let plane = shared().await.unwrap();
    let proxy = Proxy::before(plane.address()).await.unwrap();
    let client = plane.admin().through(proxy.address()).unwrap().client().await.unwrap();
    count(&client, "default").await.unwrap();
    proxy.partition();
    timeout(HANGS, count(&client, "default")).await.unwrap_err();
    proxy.heal();
    eventually("it answers again", SOON, async || count(&client, "default").await).await.unwrap();
}

#[tokio::test]
async fn parts_hang_die_and_come_back_with_their_data_and_without_their_past_if_told_so() {
    let mut plane = ControlPlane::start().await.unwrap();
    let namespace = plane.namespace("fault").await.unwrap();
    let client = plane.client().await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let past = create(&maps, json!({"metadata": {"name": "a"}})).await.unwrap().metadata.resource_version.unwrap();
    // The revision to which etcd compacts can still be read, so that the past must be older.
    create(&maps, json!({"metadata": {"name": "b"}})).await.unwrap();

    plane.signal(Part::ApiServer, Signal::SIGSTOP).unwrap();
    timeout(HANGS, count(&client, &namespace)).await.unwrap_err();
    plane.signal(Part::ApiServer, Signal::SIGCONT).unwrap();
    assert_eq!(count(&client, &namespace).await.unwrap(), 2);

    plane.stop(Part::Etcd, Signal::SIGKILL).await.unwrap();
    plane.stop(Part::ApiServer, Signal::SIGKILL).await.unwrap();
    count(&client, &namespace).await.unwrap_err();
    plane.restart(Part::Etcd).await.unwrap();
    plane.compact().await.unwrap();
    plane.restart(Part::ApiServer).await.unwrap();
    assert_eq!(count(&client, &namespace).await.unwrap(), 2);
    let then = ListParams::default().at(&past).matching(VersionMatch::Exact);
    let forgotten = maps.list(&then).await.map(|list| list.items.len());
    assert_eq!(code(forgotten), 410, "compacted while the API server, which has a memory of its own, was away");
}

#[tokio::test]
async fn controllers_run_when_asked_for() {
    let mut plane = ControlPlane::start().await.unwrap();
    let name = plane.namespace("doomed").await.unwrap();
    let namespaces = Api::<Namespace>::all(plane.client().await.unwrap());
    namespaces.delete(&name, &DeleteParams::default()).await.unwrap();
    let unfinished = namespaces.get(&name).await.unwrap();
    assert!(unfinished.metadata.deletion_timestamp.is_some());

    plane.start_controller_manager(&["namespace-controller"]).await.unwrap();
    eventually("the namespace controller finishes the deletion", SOON, async || {
        let left = namespaces.get_opt(&name).await?;
        anyhow::ensure!(left.is_none(), "still there");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_saved_control_plane_starts_again_with_its_objects() {
    let control_plane = ControlPlane::start().await.unwrap();
    let namespace = control_plane.namespace("kept").await.unwrap();
    let scratch = groundcrew_testkit::Scratch::new("saved").unwrap();
    let saved = scratch.join("data");
    control_plane.save(&saved).await.unwrap();

    for _ in 0..2 {
        let control_plane = ControlPlane::start_from(&saved).await.unwrap();
        let namespaces: Api<Namespace> = Api::all(control_plane.client().await.unwrap());
        namespaces.get(&namespace).await.unwrap();
        // What is done to one copy does not reach the next.
        control_plane.namespace("passing").await.unwrap();
    }
}
