//! Whatever fails, the end is honest and comes in time.

use std::sync::atomic::Ordering;

use groundcrew_api::deorbit::{Phase, StageName, StageState};
use groundcrew_orbit::deorbit::observe;
use groundcrew_testkit::ReservedPort;
use groundcrew_testkit::kube::Webhook;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Service};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use serde_json::{Value, from_value, json};

use crate::lab::Lab;
use crate::standins::{lease, unmake};

pub(crate) fn all(policy: &str) -> Value {
    json!({"volumes": policy, "snapshots": policy, "backups": policy, "loadBalancers": policy, "floatingIps": policy,
        "securityGroups": policy})
}

pub(crate) async fn with_a_dead_cloud_controller_it_refuses_or_removes_by_itself_as_it_was_told(lab: &Lab) {
    lab.served("web").await;
    lab.standins.stop(&lab.standins.balancers).await;
    lease(&lab.client, "cloud-controller-manager", false).await;
    // Its group is on the port of a Node, and a group that is in use does not go.
    let groups = lab.place.everything().await.remove("security-groups").unwrap();
    let group = groups.iter().find(|(_, group)| group["name"].as_str().unwrap().starts_with("lb-sg-")).unwrap().0;
    lab.place.port_in(group).await;
    let before = lab.place.everything().await;
    let running = lab.start();
    lab.deorbit(&json!({})).await;
    let status = lab.until_phase(Phase::Refused).await;
    assert!(status.message.contains("policies.loadBalancers"), "{}", status.message);
    assert_eq!(lab.place.everything().await, before);

    let patch =
        kube::api::Patch::Merge(json!({"spec": {"policies": all("delete"), "budgets": {"stages": {"Verify": "1s"}}}}));
    lab.deorbits().patch("end", &kube::api::PatchParams::default(), &patch).await.unwrap();
    let status = lab.until_phase(Phase::Clean).await;
    running.stop().await;
    lab.assert_as_before().await;
    let services: Api<Service> = Api::namespaced(lab.client.clone(), &lab.namespace);
    assert_eq!(services.list(&ListParams::default()).await.unwrap().items.len(), 0, "its finalizer went last");
    assert!(status.let_go);
}

pub(crate) async fn with_a_dead_volume_driver_volumes_go_by_the_cloud_s_api_and_then_their_objects(lab: &Lab) {
    lab.bound("data", "cinder").await;
    lab.standins.stop(&lab.standins.volumes).await;
    lease(&lab.client, "cinder-csi-openstack-org", false).await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": all("delete"), "budgets": {"stages": {"Verify": "1s"}}})).await;
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
    lab.assert_as_before().await;
    let volumes: Api<PersistentVolume> = Api::all(lab.client.clone());
    assert_eq!(volumes.list(&ListParams::default()).await.unwrap().items.len(), 0);
}

pub(crate) async fn with_a_dead_snapshot_controller_snapshots_go_by_the_cloud_s_api_and_then_their_objects(lab: &Lab) {
    lab.bound("data", "cinder").await;
    lab.snapshot_of("data", "yesterday").await;
    lab.standins.stop(&lab.standins.snapshots).await;
    lease(&lab.client, "snapshot-controller-leader", false).await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": all("delete"), "budgets": {"stages": {"Volumes": "2s", "Verify": "1s"}}})).await;
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
    lab.assert_as_before().await;
    for resource in [observe::snapshot(), observe::content()] {
        let objects: Api<DynamicObject> = Api::all_with(lab.client.clone(), &resource);
        assert_eq!(objects.list(&ListParams::default()).await.unwrap().items.len(), 0, "{}", resource.plural);
    }
}

pub(crate) async fn a_finalizer_stays_while_its_load_balancer_is_stuck_and_the_report_says_so(lab: &Lab) {
    lab.served("web").await;
    lab.standins.stop(&lab.standins.balancers).await;
    lease(&lab.client, "cloud-controller-manager", false).await;
    let id = lab.place.ids("loadbalancers").await.remove(0);
    lab.place.set_balancer_status(&id, "PENDING_UPDATE").await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": all("delete"), "budgets": {"stages": {"Verify": "1s", "Cloud": "4s"}}})).await;
    let status = lab.until_phase(Phase::Leftovers).await;
    assert!(!status.let_go, "onBudgetEnd is Hold");
    let line = status.report.iter().find(|line| line.id == id).unwrap();
    assert!(line.reason.contains("PENDING_UPDATE"), "{line:?}");
    assert_eq!(line.command, format!("openstack loadbalancer delete --cascade {id}"));
    let line = status.report.iter().find(|line| line.kind == "Service").unwrap();
    let patch = format!("kubectl -n {} patch service web --type=merge -p '{{\"metadata\"", lab.namespace);
    assert!(line.command.starts_with(&patch), "a delete does nothing any more: {line:?}");
    let services: Api<Service> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let web = services.get("web").await.unwrap();
    assert!(web.metadata.finalizers.is_some());

    // Held: when somebody has removed all of it, the Service goes, though its controller is dead.
    lab.place.set_balancer_status(&id, "ACTIVE").await;
    let uid = web.metadata.uid.unwrap();
    groundcrew_testkit::eventually("all of it is removed by hand", crate::lab::SOON, async || {
        let all = unmake(&lab.place, "demo", (&lab.namespace, "web", &uid), false).await?;
        anyhow::ensure!(all, "not yet");
        Ok(())
    })
    .await
    .unwrap();
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
    assert!(services.get_opt("web").await.unwrap().is_none());
    lab.assert_as_before().await;
}

/// Asked for a deletion. Where no server is, none can be had.
fn webhook(name: &str, resource: &str, namespace: &str, server: &Value) -> Value {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "operations": ["DELETE"]});
    json!({"name": format!("{name}.test.example"), "clientConfig": server, "failurePolicy": "Fail", "timeoutSeconds": 30,
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}})
}

pub(crate) async fn what_a_webhook_does_not_let_us_delete_is_left_with_its_words(lab: &Lab) {
    lab.served("web").await;
    let volume = lab.bound("data", "cinder").await;
    let before = lab.place.everything().await;
    let server = Webhook::start(|asked| Some(format!("{} is on legal hold", asked["name"].as_str()?))).await.unwrap();
    let nobody = ReservedPort::new().unwrap();
    let mut silent = server.client_config();
    silent["url"] = json!(format!("https://{}", nobody.address()));
    let hooks = [
        webhook("hold", "services", &lab.namespace, &server.client_config()),
        webhook("gone", "persistentvolumeclaims", &lab.namespace, &silent),
    ];
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(lab.client.clone());
    let configuration = json!({"metadata": {"name": "hold"}, "webhooks": hooks});
    configurations.create(&PostParams::default(), &from_value(configuration).unwrap()).await.unwrap();
    let services: Api<Service> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    groundcrew_testkit::eventually("the API server asks both", crate::lab::SOON, async || {
        let denied = [services.delete("web", &dry).await.is_err(), claims.delete("data", &dry).await.is_err()];
        anyhow::ensure!(denied == [true, true], "{denied:?}");
        Ok(())
    })
    .await
    .unwrap();

    let running = lab.start();
    let stages = json!({"LoadBalancers": "2s", "Claims": "2s", "Volumes": "1s", "Verify": "1s", "Cloud": "1s"});
    lab.deorbit(&json!({"policies": all("delete"), "budgets": {"stages": stages}})).await;
    let status = lab.until_phase(Phase::Leftovers).await;
    running.stop().await;
    let line = |kind: &str| status.report.iter().find(|line| line.kind == kind).unwrap();
    assert!(line("Service").reason.contains("denied the request: web is on legal hold"), "{:?}", line("Service"));
    let claim = line("PersistentVolumeClaim");
    assert!(claim.reason.contains("failed calling webhook") && claim.reason.contains("gone.test.example"), "{claim:?}");
    assert!(line("octavia-load-balancer").reason.contains("nobody deletes it"), "{:?}", line("octavia-load-balancer"));
    assert!(status.report.iter().any(|line| line.id == volume && !line.kept), "{:?}", status.report);
    assert!(!status.let_go);
    assert_eq!(lab.place.everything().await, before, "what they have outside is as it was");
    assert!(services.get("web").await.unwrap().metadata.deletion_timestamp.is_none());
}

pub(crate) async fn a_password_that_is_revoked_midway_ends_as_unknown_and_not_as_clean(lab: &Lab) {
    let orphan = lab.place.old_volume("demo-csi", "orphan").await;
    lab.served("held").await;
    lab.standins.stop(&lab.standins.balancers).await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": all("delete"), "budgets": {"stages": {"Verify": "2s", "Cloud": "2s"}}})).await;
    lab.until("it waits for the Service", |status| status.stage.contains("LoadBalancers")).await;
    lab.place.fake().fake.refuse(true);
    lab.place.fake().fake.revoke();
    lab.standins.balancers.store(true, Ordering::SeqCst);
    let status = lab.until_phase(Phase::Leftovers).await;
    assert!(status.report.iter().any(|line| line.kind == "unknown"), "{:?}", status.report);
    assert!(lab.place.ids("volumes").await.contains(&orphan));
    // Held: as soon as the cloud can be seen again and somebody has removed the rest, it is clean.
    lab.place.fake().fake.refuse(false);
    lab.place.fake().forget("volumes", &orphan);
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
}

pub(crate) async fn a_password_that_is_wrong_from_the_start_is_told_at_once(lab: &Lab) {
    lab.served("web").await;
    let before = lab.place.everything().await;
    lab.place.fake().fake.refuse(true);
    lab.place.fake().fake.revoke();
    let running = lab.start();
    lab.deorbit(&json!({"policies": all("delete")})).await;
    let status = lab.until_phase(Phase::Refused).await;
    running.stop().await;
    assert!(status.message.contains("cannot list octavia-load-balancer"), "{}", status.message);
    assert_eq!((status.stages.len(), lab.place.everything().await), (0, before));
}

pub(crate) async fn a_volume_that_cinder_cannot_delete_is_left_with_its_state(lab: &Lab) {
    let broken = lab.place.old_volume("demo-csi", "broken").await;
    let fine = lab.place.old_volume("demo-csi", "fine").await;
    lab.place.set_volume_status(&broken, "error_deleting").await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": all("delete"), "budgets": {"stages": {"Verify": "1s", "Cloud": "20s"}}})).await;
    let status = lab.until_phase(Phase::Leftovers).await;
    running.stop().await;
    assert_eq!(lab.place.ids("volumes").await, [broken.as_str()], "and not {fine}");
    let [line] = status.report.as_slice() else { panic!("{:?}", status.report) };
    assert!(line.reason.contains("error_deleting"), "{line:?}");
    assert_eq!((line.size.as_str(), line.id.as_str()), ("10 GiB", broken.as_str()));
    assert_eq!(line.command, format!("openstack volume delete --force {broken}"));
    let cloud = status.stages.iter().find(|stage| stage.name == StageName::Cloud).unwrap();
    assert_eq!(cloud.state, StageState::GivenUp);
}

pub(crate) async fn a_volume_that_a_server_has_is_never_detached(lab: &Lab) {
    let attached = lab.place.old_volume("demo-csi", "attached").await;
    let fields = json!({"status": "in-use", "attachments": [{"server_id": "s-1"}]});
    lab.place.fake().change("volumes", &attached, &fields);
    let before = lab.place.everything().await;
    let running = lab.start();
    lab.deorbit(&json!({"policies": all("delete"), "budgets": {"stages": {"Verify": "1s", "Cloud": "2s"}}})).await;
    let status = lab.until_phase(Phase::Leftovers).await;
    running.stop().await;
    assert!(status.report[0].reason.contains("attached to server s-1"), "{:?}", status.report);
    assert_eq!(lab.place.everything().await, before);
}

pub(crate) async fn killed_again_and_again_it_goes_on_where_it_was_and_touches_nobody_else(lab: &Lab) {
    lab.place.balancer("demo_x", "shop", "web", "0b7a8c1e-0000-4000-8000-000000000000").await;
    let neighbours = lab.place.everything().await;
    lab.served("web").await;
    lab.stateful_set("db", "cinder").await;
    lab.snapshot_of("data-db-0", "yesterday").await;
    lab.deorbit(&json!({})).await;
    let mut began = None;
    // One life for each stage: it ends as soon as the next stage has begun.
    for stages in 1..=12 {
        let running = lab.start();
        let status = lab
            .until("the next stage has begun", |status| {
                status.stages.len() >= stages || matches!(status.phase, Phase::Clean | Phase::Leftovers)
            })
            .await;
        running.kill().await;
        assert_eq!(*began.get_or_insert(status.started_at.clone()), status.started_at, "the clock is never set back");
    }
    let running = lab.start();
    lab.until_phase(Phase::Clean).await;
    running.stop().await;
    assert_eq!(lab.place.everything().await, neighbours);
}
