//! What a person sees of the command line.

use std::process::{Command, Output};

use groundcrew_testkit::kube::shared;
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
fn a_wrong_line_is_one_line_and_exit_code_2() {
    for (line, word) in [
        (&["ovn-lb"][..], "--ovn-nb"),
        (&["ovn-lb", "--ovn-nb", "http:192.0.2.1"], "--ovn-nb"),
        (&["ovn-lb", "--ovn-nb", "unix:/x", "--ovn-router", "{ns}"], "--ovn-router"),
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
