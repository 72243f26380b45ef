//! What a person sees of the command line.

use std::process::{Command, Output};

use groundcrew_testkit::kube::shared;
use groundcrew_testkit::ovn::Northbound;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

fn groundcrew(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_groundcrew")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn the_printed_definitions_are_what_a_cluster_takes() {
    let printed = text(&groundcrew(&["crds"]).stdout);
    let documents: Vec<CustomResourceDefinition> =
        printed.split("---\n").skip(1).map(|document| serde_saphyr::from_str(document).unwrap()).collect();
    assert_eq!(documents, groundcrew_api::crds());
    shared().await.unwrap().define(&documents).await.unwrap();
}

#[test]
fn beside_kube_dc_its_own_definition_of_eips_is_left_out() {
    let warned = text(&groundcrew(&["crds"]).stderr);
    assert!(warned.contains("--no-eip") && warned.lines().count() == 1, "{warned}");
    let said = groundcrew(&["crds", "--no-eip"]);
    assert_eq!(text(&said.stderr), "");
    let printed = text(&said.stdout);
    let documents: Vec<CustomResourceDefinition> =
        printed.split("---\n").skip(1).map(|document| serde_saphyr::from_str(document).unwrap()).collect();
    let others = groundcrew_api::crds().into_iter().filter(|crd| crd.spec.names.kind != "EIp");
    assert_eq!(documents, others.collect::<Vec<_>>());
    assert_eq!(documents.len(), groundcrew_api::crds().len() - 1);
}

#[test]
fn a_wrong_line_is_one_line_and_exit_code_2() {
    for (line, word) in [
        (&["ovn-lb"][..], "--ovn-nb"),
        (&["ovn-lb", "--ovn-nb", "http:192.0.2.1"], "--ovn-nb"),
        (&["ovn-lb", "--ovn-nb", "unix:/x", "--ovn-router", "{ns}"], "--ovn-router"),
        (&["ovn-rows"], "--ovn-nb"),
        (&["lb-watcher"], "--ovn-nb"),
        (&["lb-watcher", "--ovn-nb", "unix:/x", "--trigger", "telepathy"], "--trigger"),
        (&["cloudsigma-ccm"], "--region"),
        (&["cloudsigma-ccm", "--region", "zrh", "--mode", "magic"], "--mode"),
        (&["fly"], "fly"),
    ] {
        let output = groundcrew(line);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn help_and_version_are_for_reading() {
    let help = groundcrew(&["--help"]);
    assert!(help.status.success());
    assert!(text(&help.stdout).contains("Examples:"));
    let version = text(&groundcrew(&["version"]).stdout);
    assert_eq!(version, format!("groundcrew {}\n", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn the_rows_of_an_ovn_are_listed_with_their_owners_and_foreign_ones_alone() {
    let northbound = Northbound::standalone().await.unwrap();
    let marks = "external_ids:groundcrew-cluster=c1 external_ids:groundcrew-namespace=shop external_ids:groundcrew-service=web \
                 external_ids:groundcrew-uid=00000000-0000-0000-0000-000000000001";
    let setup = "lr-add shop -- lb-add ours 192.0.2.7:80 10.1.0.41:80 -- lr-lb-add shop ours \
         -- lb-add vpc-shop-tcp-load 10.96.0.1:443 10.1.0.1:443 -- lb-add stranger 192.0.2.9:80 10.1.0.9:80";
    northbound.nbctl(setup.split_whitespace()).await.unwrap();
    northbound.nbctl(["set", "Load_Balancer", "ours"].into_iter().chain(marks.split_whitespace())).await.unwrap();
    let remotes = northbound.remotes();
    let listed = async |more: &'static [&'static str]| {
        let remotes = remotes.clone();
        let output = tokio::task::spawn_blocking(move || {
            let line: Vec<_> = ["ovn-rows", "--ovn-nb", &remotes].into_iter().chain(more.iter().copied()).collect();
            groundcrew(&line)
        });
        let output = output.await.unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let all = listed(&["--cluster-id", "c1"]).await;
    let ours = all.lines().find(|line| line.starts_with("shop/web ")).unwrap();
    assert!(ours.contains(" ours ") && ours.contains("router shop"), "{all}");
    assert_eq!(all.lines().count(), 4, "{all}");
    let foreign = listed(&["--foreign"]).await;
    assert!(foreign.contains("(kube-ovn)  vpc-shop-tcp-load") && foreign.contains("(unknown)   stranger"), "{foreign}");
    assert!(!foreign.contains("shop/web"), "{foreign}");
}

#[test]
fn shells_complete_its_lines_and_man_has_a_page_for_each_command() {
    for (shell, word) in [("bash", "complete "), ("zsh", "#compdef groundcrew"), ("fish", "complete -c groundcrew")] {
        let script = text(&groundcrew(&["completions", shell]).stdout);
        assert!(script.contains(word) && script.contains("ovn-lb"), "{shell}");
    }
    let dir = groundcrew_testkit::Scratch::new("man").unwrap();
    let output = groundcrew(&["man", dir.path().join("man1").to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for page in ["groundcrew.1", "groundcrew-ovn-lb.1", "groundcrew-explain-service.1", "groundcrew-doctor.1"] {
        let page = std::fs::read_to_string(dir.path().join("man1").join(page)).unwrap();
        assert!(page.contains(".SH NAME"), "{page}");
    }
}
