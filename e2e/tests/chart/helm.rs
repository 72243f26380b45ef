//! helm as a program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::Value;

/// What charts are rendered for where there is no cluster to ask.
pub(crate) const KUBE_VERSION: &str = "1.36.0";

pub(crate) const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

pub(crate) fn chart() -> PathBuf {
    Path::new(REPOSITORY).join("charts/groundcrew")
}

/// Values of `ci/`, by the name of the case.
pub(crate) fn values(case: &str) -> PathBuf {
    chart().join(format!("ci/{case}-values.yaml"))
}

pub(crate) fn helm() -> Command {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        let found = Command::new(Path::new(REPOSITORY).join("hack/setup")).args(["which", "helm"]).output().unwrap();
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
        String::from_utf8(found.stdout).unwrap().trim().into()
    });
    let mut helm = Command::new(&*PROGRAM);
    // Nothing of the user's own: neither repositories nor a cluster.
    helm.env_remove("KUBECONFIG").env("HELM_NAMESPACE", "groundcrew");
    helm
}

/// `helm template` of a case; `more` is added to the line.
pub(crate) fn template(case: &str, more: &[&str]) -> Output {
    let mut helm = helm();
    helm.args(["template", "groundcrew"]).arg(chart()).arg("--values").arg(values(case));
    helm.args(["--kube-version", KUBE_VERSION]).args(more).output().unwrap()
}

/// What a case renders to.
pub(crate) fn rendered(case: &str, more: &[&str]) -> String {
    succeeded(template(case, more))
}

/// What it said. A failure is the test's, with helm's words.
pub(crate) fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The objects of a rendered chart.
pub(crate) fn objects(manifests: &str) -> Vec<Value> {
    let documents = manifests.split("\n---\n").map(|document| document.trim_start_matches("---\n"));
    let parsed = documents
        .map(|document| serde_saphyr::from_str::<Value>(document).unwrap_or_else(|e| panic!("{e}\n{document}")));
    parsed.filter(|object| !object.is_null()).collect()
}
