//! No secret reaches a place where people or machines read: logs, Events, metrics, the status page, help.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::ensure;
use groundcrew_api::deorbit::Deorbit;
use groundcrew_testkit::cloudsigma::{CLIENT_ID, CLIENT_SECRET, CloudSigma, PASSWORD, USER};
use groundcrew_testkit::controller::{Controller, get};
use groundcrew_testkit::kube::shared;
use groundcrew_testkit::openstack::fake::{self, Model};
use groundcrew_testkit::ovn::{Northbound, ServerName};
use groundcrew_testkit::{Scratch, eventually};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

use crate::lab::{Lab, SOON};
use crate::page::page_of;

/// What nobody may read, and the variables that have it.
const SECRETS: [(&str, &str); 5] = [
    ("CLOUDSIGMA_PASSWORD", PASSWORD),
    ("CLOUDSIGMA_CLIENT_SECRET", CLIENT_SECRET),
    ("OS_PASSWORD", fake::PASSWORD),
    ("OS_APPLICATION_CREDENTIAL_SECRET", fake::PASSWORD),
    ("GROUNDCREW_RESYNC_HOOK", HOOK),
];
/// A URL of which any part may be a secret, and that is none.
const HOOK: &str = "me:hook-fixture@device.example/hook-fixture";

fn is_clean(place: &str, text: &str, secrets: &[&str]) {
    for secret in secrets {
        assert!(!text.contains(secret), "{place} has {secret:?}:\n{text}");
    }
}

/// Everything that a running controller shows, with the most talkative log.
async fn look_at(lab: &Lab, controller: &Controller, secrets: &[&str]) {
    let page = page_of(controller).await;
    for (place, address) in [("/metrics", controller.admin()), ("/data.json", page), ("/", page)] {
        let (code, text) = get(address, place).await.unwrap();
        assert_eq!(code, 200, "{place}");
        is_clean(place, &text, secrets);
    }
    // Those about Nodes are in the namespace default.
    for namespace in [&*lab.namespace, "default"] {
        let events: Api<Event> = Api::namespaced(lab.client.clone(), namespace);
        let events = events.list(&ListParams::default()).await.unwrap();
        is_clean("an Event", &serde_json::to_string(&events.items).unwrap(), secrets);
    }
    let log = controller.process.log();
    assert!(log.contains(" TRACE ") || log.contains("\"TRACE\""), "the log is to say all that it can:\n{log}");
    is_clean("the log", &log, secrets);
}

async fn until_ready(controller: &Controller) {
    eventually("it has looked at its cloud", SOON, async || {
        let (code, why) = controller.get("/readyz").await?;
        ensure!(code == 200, "{why}");
        Ok(())
    })
    .await
    .unwrap();
}

/// A line of this lab with a status page, and a log that leaves nothing out.
fn talkative(lab: &Lab, name: &str, flags: &[&str], variables: &BTreeMap<&str, String>) -> Controller {
    lab.run(name, |command: &mut Command| {
        command.args(flags).args(["--status-address", "127.0.0.1:0", "--log", "trace"]).envs(variables)
    })
}

#[tokio::test]
async fn credentials_of_cloudsigma_are_nowhere_to_be_read_whether_they_are_right_or_wrong() {
    let lab = Lab::new("sigma-secret").await;
    let cloud = CloudSigma::start().await.unwrap();
    let by_password = ["cloudsigma-ccm", "--leave-classless", "--api-url", &cloud.url(), "--username", USER];
    let variables = BTreeMap::from([("CLOUDSIGMA_PASSWORD", PASSWORD.to_owned())]);
    let controller = talkative(&lab, "password", &by_password, &variables);
    until_ready(&controller).await;
    look_at(&lab, &controller, &[PASSWORD, &basic(USER, PASSWORD)]).await;

    let (direct, oauth) = (cloud.direct_url(), cloud.oauth_url());
    let impersonating = [
        "cloudsigma-ccm",
        "--leave-classless",
        "--api-url",
        &direct,
        "--user-email",
        USER,
        "--oauth-url",
        &oauth,
        "--client-id",
        CLIENT_ID,
    ];
    let variables = BTreeMap::from([("CLOUDSIGMA_CLIENT_SECRET", CLIENT_SECRET.to_owned())]);
    let controller = talkative(&lab, "impersonation", &impersonating, &variables);
    until_ready(&controller).await;
    look_at(&lab, &controller, &[CLIENT_SECRET, &basic(CLIENT_ID, CLIENT_SECRET)]).await;

    cloud.accept_password(false);
    let variables = BTreeMap::from([("CLOUDSIGMA_PASSWORD", PASSWORD.to_owned())]);
    let refused = talkative(&lab, "refused", &by_password, &variables);
    eventually("it says that it was refused", SOON, async || {
        let (code, why) = refused.get("/readyz").await?;
        ensure!(code == 503 && !why.is_empty(), "{code} {why}");
        ensure!(refused.process.log().contains("401") || refused.process.log().contains("credentials"), "not yet");
        Ok(())
    })
    .await
    .unwrap();
    is_clean("the log of a refused one", &refused.process.log(), &[PASSWORD, &basic(USER, PASSWORD)]);
}

#[tokio::test]
async fn credentials_of_openstack_are_nowhere_to_be_read() {
    let lab = Lab::new("openstack-secret").await;
    let model = Model::start().await.unwrap();
    let by_password = BTreeMap::from([
        ("OS_AUTH_URL", model.fake.url()),
        ("OS_USERNAME", "kluster".to_owned()),
        ("OS_USER_DOMAIN_NAME", "Default".to_owned()),
        ("OS_PROJECT_NAME", "demo".to_owned()),
        ("OS_PROJECT_DOMAIN_NAME", "Default".to_owned()),
        ("OS_PASSWORD", fake::PASSWORD.to_owned()),
    ]);
    let by_credential = BTreeMap::from([
        ("OS_AUTH_URL", model.fake.url()),
        ("OS_AUTH_TYPE", "v3applicationcredential".to_owned()),
        ("OS_APPLICATION_CREDENTIAL_ID", "kluster".to_owned()),
        ("OS_APPLICATION_CREDENTIAL_SECRET", fake::PASSWORD.to_owned()),
    ]);
    let scratch = Scratch::new("cloud-conf").unwrap();
    let file = scratch.join("cloud.conf");
    let lines = ["[Global]".to_owned(), format!("auth-url = {}", model.fake.url()), "username = kluster".into()];
    let more = ["user-domain-name = Default", "tenant-name = demo", "tenant-domain-name = Default"].map(str::to_owned);
    let password = [format!("password = \"{}\"", fake::PASSWORD), String::new()];
    std::fs::write(&file, [&lines[..], &more, &password].concat().join("\n")).unwrap();
    let (by_file, file) = (BTreeMap::new(), file.to_str().unwrap());
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("{}-n1", lab.namespace) },
        "spec": { "podCIDR": "10.244.7.0/24", "podCIDRs": ["10.244.7.0/24"] },
    });
    let nodes: Api<Node> = Api::all(lab.client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let routegc = ["routegc", "--pod-cidr", "10.244.0.0/16", "--interval", "1s"];
    let flight = ["flight", "--pod-cidr", "10.244.0.0/16", "--interval", "1s", "--security-group", "nodes"];
    let deorbit = ["deorbit-controller", "--ccm-cluster", "demo", "--interval", "1s", "--cloud-conf", file];
    for (line, variables) in [(&routegc[..], by_password), (&flight, by_credential), (&deorbit, by_file)] {
        let before = model.fake.seen().len();
        let controller = talkative(&lab, line[0], line, &variables);
        if line[0] == "deorbit-controller" {
            // It asks its cloud when somebody wants to know.
            plan_of_a_deorbit(&lab).await;
        }
        eventually(&format!("{} has asked its cloud with a token", line[0]), SOON, async || {
            let seen = model.fake.seen();
            let asked = seen[before..].iter().filter(|seen| seen.header("x-auth-token").is_some()).count();
            ensure!(asked > 1, "{:?}\n{}", model.fake.lines(), controller.process.last_words());
            Ok(())
        })
        .await
        .unwrap();
        look_at(&lab, &controller, &[fake::PASSWORD, "token-number-"]).await;
    }
}

/// Asks for a plan, and waits until it is there; nothing of the cluster is touched by it.
async fn plan_of_a_deorbit(lab: &Lab) {
    let deorbits: Api<Deorbit> = Api::all(lab.client.clone());
    let wish = json!({ "metadata": { "name": lab.namespace }, "spec": { "dryRun": true } });
    deorbits.create(&PostParams::default(), &serde_json::from_value(wish).unwrap()).await.unwrap();
    eventually("the Deorbit was looked at", SOON, async || {
        let status = deorbits.get(&lab.namespace).await?.status.unwrap_or_default();
        ensure!(!status.message.is_empty(), "{status:?}");
        Ok(())
    })
    .await
    .unwrap();
    deorbits.delete(&lab.namespace, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn the_token_that_a_pod_has_for_kubernetes_is_nowhere_to_be_read() {
    let lab = Lab::new("token-secret").await;
    let account = shared().await.unwrap().service_account(&lab.namespace, "talkative").await.unwrap();
    let kubeconfig = std::fs::read_to_string(account.path()).unwrap();
    let token = kubeconfig.split("token").nth(1).unwrap().trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let token = token.split(|c: char| c == '"' || c.is_whitespace()).next().unwrap().to_owned();
    assert!(token.len() > 100, "{kubeconfig}");
    let remotes = lab.northbound().remotes();
    // The cluster's name is asked for before there is a page.
    let on_ovn = |name: &'static str| [name, "--cluster-id=test", "--ovn-nb", remotes.as_str()];
    for line in [&on_ovn("ovn-lb")[..], &on_ovn("lb-watcher"), &["net-probe", "--node-name=a"]] {
        let variables = BTreeMap::from([("GROUNDCREW_KUBECONFIG", account.path().to_str().unwrap().to_owned())]);
        let controller = talkative(&lab, line[0], line, &variables);
        // It has no right to anything, and says so in many words.
        eventually("it complains", SOON, async || {
            ensure!(controller.process.log().contains("forbidden"), "not yet");
            Ok(())
        })
        .await
        .unwrap();
        look_at(&lab, &controller, &[&token]).await;
    }
}

#[tokio::test]
async fn the_key_for_ovn_is_nowhere_to_be_read() {
    let lab = Lab::new("key-secret").await;
    let northbound = Northbound::standalone_tls(ServerName::Loopback).await.unwrap();
    let (tls, endpoint) = (northbound.tls().unwrap(), northbound.ssl(0).unwrap());
    let files = [&tls.authority, &tls.client.certificate, &tls.client.key].map(|path| path.to_str().unwrap());
    let controller = talkative(
        &lab,
        "watcher",
        &[
            "lb-watcher",
            "--cluster-id=test",
            "--ovn-nb",
            &endpoint,
            "--ovn-ca",
            files[0],
            "--ovn-certificate",
            files[1],
            "--ovn-key",
            files[2],
        ],
        &BTreeMap::new(),
    );
    controller.until_metric("groundcrew_watcher_connected_bool", SOON, |up| up > 0.5).await.unwrap();
    let key = std::fs::read_to_string(&tls.client.key).unwrap();
    let lines: Vec<_> = key.lines().filter(|line| line.len() > 20 && !line.starts_with('-')).collect();
    assert!(!lines.is_empty(), "{}", files[2]);
    look_at(&lab, &controller, &lines).await;
}

#[test]
fn help_does_not_repeat_what_secret_variables_hold() {
    let values: Vec<_> = SECRETS.iter().map(|(_, secret)| *secret).collect();
    let help = |command: &[&str], flag: &str| {
        let mut line = Command::new(env!("CARGO_BIN_EXE_groundcrew"));
        let output = line.args(command).arg(flag).envs(SECRETS).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("Usage:"), "{command:?}");
        is_clean(&format!("{command:?}"), &text, &values);
        text
    };
    // Every command that there is, and those below it.
    let commands = |text: &str| -> Vec<String> {
        let list = text.split("\nCommands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
        let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
    };
    let (all, mut below) = (commands(&help(&[], "-h")), 0);
    for known in ["deorbit", "deorbit-controller", "detach", "doctor", "explain", "net-probe", "node-agent", "pools"] {
        assert!(all.contains(&known.to_owned()), "{known} is not in {all:?}");
    }
    for command in &all {
        help(&[command], "--help");
        for sub in commands(&help(&[command], "-h")) {
            help(&[command, &sub], "-h");
            help(&[command, &sub], "--help");
            below += 1;
        }
    }
    assert!(below >= 3, "deorbit plan, deorbit run and explain service");
    // A line that is wrong in another place repeats nothing either.
    let mut line = Command::new(env!("CARGO_BIN_EXE_groundcrew"));
    line.args(["cloudsigma-ccm", "--region", "zrh", "--password", PASSWORD, "--mode", "magic"]);
    let output = line.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    is_clean("the error", &String::from_utf8(output.stderr).unwrap(), &values);
}

#[tokio::test]
async fn a_hook_of_flight_that_is_no_url_is_refused_and_not_repeated() {
    let lab = Lab::new("hook-secret").await;
    let model = Model::start().await.unwrap();
    let variables = BTreeMap::from([
        ("OS_AUTH_URL", model.fake.url()),
        ("OS_USERNAME", "kluster".to_owned()),
        ("OS_USER_DOMAIN_NAME", "Default".to_owned()),
        ("OS_PROJECT_NAME", "demo".to_owned()),
        ("OS_PROJECT_DOMAIN_NAME", "Default".to_owned()),
        ("OS_PASSWORD", fake::PASSWORD.to_owned()),
        ("GROUNDCREW_RESYNC_HOOK", HOOK.to_owned()),
    ]);
    let flags = ["flight", "--pod-cidr", "10.244.0.0/16", "--routes", "repair"];
    let controller = talkative(&lab, "flight", &flags, &variables);
    eventually("it says what is wrong", SOON, async || {
        ensure!(controller.process.log().contains("--resync-hook: write a URL that begins with"), "not yet");
        Ok(())
    })
    .await
    .unwrap();
    is_clean("the log", &controller.process.log(), &[HOOK, "hook-fixture"]);
}

/// As it is sent.
fn basic(user: &str, password: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in format!("{user}:{password}").as_bytes().chunks_exact(3) {
        let bits = u32::from(chunk[0]) << 16 | u32::from(chunk[1]) << 8 | u32::from(chunk[2]);
        text.extend([18, 12, 6, 0].map(|shift| char::from(ALPHABET[(bits >> shift & 63) as usize])));
    }
    // What is left after whole groups differs by padding only.
    text
}
