//! Who leaves groundcrew keeps his addresses, and can delete his Services.

use std::process::Command;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use groundcrew_api::deorbit::Deorbit;
use groundcrew_api::eip::EIp;
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::ovn::Central;
use groundcrew_testkit::{Scratch, Signal, eventually};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::{from_value, json};

use crate::lab::{Lab, SOON};

#[tokio::test]
async fn detached_services_keep_address_and_rows_and_can_be_deleted() {
    // Within it a renewal is seen, however late, and once its end is waited for.
    let lab = Lab::with_lease("detach", Duration::from_secs(6)).await;
    let controller = lab.start("leaver").await;
    lab.create("web").await;
    lab.until_served("web").await;
    let other = json!({ "metadata": { "finalizers": ["example.com/other"] } });
    lab.services().patch("web", &PatchParams::default(), &Patch::Strategic(other)).await.unwrap();
    let (address, rows) = (lab.address("web").await, lab.rows().await);

    let (fine, said) = lab.detach(&[]);
    assert!(
        fine && said.contains(&format!("- finalizer of Service {}/web, which keeps {address}", lab.namespace)),
        "{said}"
    );
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    let uid = namespaces.get("kube-system").await.unwrap().uid().unwrap();
    let again =
        format!("--cluster-id {0} --lease-namespace {0} --class {1} --confirm {uid}", lab.namespace, lab.class());
    assert!(said.contains(&again), "{said}");
    for wrong in ["another-cluster", &lab.namespace] {
        let (fine, said) = lab.detach(&["--confirm", wrong]);
        assert!(!fine && said.contains("nothing was done"), "what --cluster-id says confirms nothing: {said}");
    }
    let (fine, said) = lab.detach(&["--confirm", &uid]);
    assert!(!fine && said.contains("is running and would put the finalizers back"), "{said}");
    let finalizers = lab.services().get("web").await.unwrap().finalizers().to_vec();
    assert_eq!(finalizers.len(), 2, "nothing was done: {finalizers:?}");

    // Killed: its Lease still names it, and is waited for until it has run out.
    controller.process.end(Signal::SIGKILL).await.unwrap();
    let (fine, said) = lab.detach(&["--confirm", &uid]);
    assert!(fine && said.starts_with("2 let go."), "{said}");
    let service = lab.services().get("web").await.unwrap();
    assert_eq!(service.finalizers(), ["example.com/other"]);
    assert_eq!((lab.address("web").await, lab.rows().await), (address.clone(), rows.clone()));
    let eips: Api<EIp> = Api::namespaced(lab.client.clone(), &lab.namespace);
    let eip = eips.list(&ListParams::default()).await.unwrap().items.remove(0);
    assert!(eip.finalizers().is_empty());
    assert_eq!(eip.status.as_ref().and_then(|status| status.ip_address.clone()), Some(address.clone()));
    // Other tests' Services, of other classes, may be told as left alone before that.
    let said = lab.detach(&[]).1;
    assert!(said.ends_with("Nothing has a finalizer of ours.\n"), "{said}");

    // Who comes back finds everything as it was.
    let again = lab.start("comer").await;
    lab.until_leads(&again).await;
    eventually("it is ours again", SOON, async || {
        let finalizers = lab.services().get("web").await?.finalizers().len();
        if finalizers == 2 { Ok(()) } else { Err(anyhow!("{finalizers} finalizers")) }
    })
    .await
    .unwrap();
    assert_eq!((lab.address("web").await, lab.rows().await), (address, rows.clone()));
    again.process.end(Signal::SIGTERM).await.unwrap();

    // And who leaves for good can delete it; the row is told to stay.
    lab.services().delete("web", &DeleteParams::default()).await.unwrap();
    let (_, said) = lab.detach(&[]);
    assert!(said.contains("which is being deleted and goes at once"), "{said}");
    assert!(lab.detach(&["--confirm", &uid]).0);
    let without = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.com/other"] } });
    lab.services().patch("web", &PatchParams::default(), &Patch::Strategic(without)).await.unwrap();
    assert!(lab.services().get_opt("web").await.unwrap().is_none());
    assert_eq!(lab.rows().await, rows);
}

/// What a Deorbit blocks is all of a cluster, so that this has one of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_deorbit_that_nobody_carries_on_can_be_deleted_and_blocks_nothing_any_more() {
    const BLOCK: &str = "groundcrew-deorbit";
    let plane = ControlPlane::start().await.unwrap();
    // As in a cluster that has nothing but this: the other kinds are not known.
    plane.define(&[Deorbit::crd()]).await.unwrap();
    let client = plane.client().await.unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let uid = namespaces.get("kube-system").await.unwrap().uid().unwrap();
    let central = Central::start().await.unwrap();
    let mark = "external_ids:groundcrew-cluster=demo";
    let row = ["lb-add", "web", "192.0.2.9:80", "10.0.0.9:80", "--", "set", "load_balancer", "web", mark];
    central.northbound().nbctl(row).await.unwrap();
    let command = |line: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_groundcrew"));
        command.args(line).args(["--cluster-id", "demo", "--lease-namespace", "default"]);
        command.env("GROUNDCREW_KUBECONFIG", plane.kubeconfig_path());
        command
    };
    let detach = |more: &[&str]| {
        let output = command(&[&["detach"], more].concat()).output().unwrap();
        let said = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    assert_eq!(detach(&[]), (true, "Nothing has a finalizer of ours.\n".to_owned()));

    let deorbits: Api<Deorbit> = Api::all(client.clone());
    let (policies, bindings): (Api<ValidatingAdmissionPolicy>, Api<ValidatingAdmissionPolicyBinding>) =
        (Api::all(client.clone()), Api::all(client.clone()));
    let scratch = Scratch::new("detach-deorbit").unwrap();
    let endpoints = central.northbound().remotes();
    let line = ["deorbit-controller", "--ovn-nb", &endpoints, "--interval", "100ms"];
    let controller = Controller::start("deorbit", command(&line), scratch.path(), SOON).await.unwrap();
    let protect = json!({ "namespaces": ["kube-system", "default"] });
    let wish = json!({ "metadata": { "name": "end" }, "spec": { "confirm": uid, "protect": protect } });
    deorbits.create(&PostParams::default(), &from_value(wish).unwrap()).await.unwrap();
    eventually("new things are blocked", SOON, async || {
        let deorbit = deorbits.get("end").await?;
        ensure!(!deorbit.finalizers().is_empty(), "{:?}", deorbit.status);
        // The last of them, for the try in a namespace that is protected.
        ensure!(bindings.get_opt("groundcrew-deorbit-probe").await?.is_some(), "{:?}", deorbit.status);
        Ok(())
    })
    .await
    .unwrap();
    let (fine, said) = detach(&["--confirm", &uid]);
    assert!(!fine && said.contains("the Lease default/groundcrew-deorbit is running"), "{said}");

    // The release goes in the middle of it.
    controller.process.end(Signal::SIGTERM).await.unwrap();
    deorbits.delete("end", &DeleteParams::default()).await.unwrap();
    let (fine, said) = detach(&[]);
    assert!(fine, "{said}");
    for part in [
        "- ValidatingAdmissionPolicyBinding groundcrew-deorbit, which refuses new load balancers and volumes",
        "- ValidatingAdmissionPolicyBinding groundcrew-deorbit-probe, which",
        "- ValidatingAdmissionPolicy groundcrew-deorbit, which",
        "- finalizer of Deorbit end, which is being deleted and goes at once",
        "To let these 4 go",
    ] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let (fine, said) = detach(&["--confirm", &uid]);
    assert!(fine && said.starts_with("4 let go."), "{said}");
    assert!(deorbits.get_opt("end").await.unwrap().is_none());
    assert!(policies.get_opt(BLOCK).await.unwrap().is_none());
    assert!(bindings.list(&ListParams::default()).await.unwrap().items.is_empty());
    let service =
        json!({ "metadata": { "name": "new" }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    let namespace = plane.namespace("shop").await.unwrap();
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    eventually("new load balancers can be made again", SOON, async || {
        services.create(&PostParams::default(), &from_value(service.clone())?).await.map_err(anyhow::Error::from)
    })
    .await
    .unwrap();
    assert_eq!(detach(&[]).1, "Nothing has a finalizer of ours.\n");
}
