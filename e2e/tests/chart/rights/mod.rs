//! The rights of the chart are enough and none is idle: each controller does its work as the ServiceAccount that the chart
//! made for it, with the flags of the chart's own pod, and the API server's audit log is compared with the rules.

mod cloudsigma;
mod deorbit;
mod doctor;
mod net_probe;
mod openstack;
mod ovn;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use groundcrew_testkit::Scratch;
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::kube::{ControlPlane, Kubeconfig};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::helm::{chart, objects, succeeded, values};
use crate::release::helm_on;

pub(crate) const SOON: Duration = Duration::from_mins(1);
const NAMESPACE: &str = "groundcrew";
/// Where pods find their Secrets.
const MOUNTED: &str = "/etc/groundcrew";

/// A cluster with the chart on it.
pub(crate) struct Installed {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    objects: Vec<Value>,
    scratch: Scratch,
}

/// One right, as `services patch`; those of a Role have its namespace in front.
type Right = String;

impl Installed {
    /// Installs a case with more values.
    pub(crate) async fn new(case: &str, more: &[String]) -> Self {
        let plane = ControlPlane::start_audited().await.unwrap();
        let client = plane.client().await.unwrap();
        // The chart brings a Role for it along.
        namespace(&client, "cloudsigma-csi").await;
        let mut helm = helm_on(&plane, NAMESPACE);
        helm.args(["install", "groundcrew", "--create-namespace"])
            .arg(chart())
            .arg("--values")
            .arg(values(case))
            .args(more);
        succeeded(helm.output().unwrap());
        let manifests = succeeded(helm_on(&plane, NAMESPACE).args(["get", "manifest", "groundcrew"]).output().unwrap());
        Self { plane, client, objects: objects(&manifests), scratch: Scratch::new("chart").unwrap() }
    }

    /// Puts a Secret where the pod would find it.
    pub(crate) fn mount(&self, volume: &str, key: &str, contents: &str) {
        fs::create_dir_all(self.scratch.join(volume)).unwrap();
        fs::write(self.scratch.join(volume).join(key), contents).unwrap();
    }

    fn account(controller: &str) -> String {
        format!("groundcrew-{controller}")
    }

    /// The names of all that it has.
    pub(crate) fn controllers(&self) -> Vec<&str> {
        let containers = self.objects.iter().map(|object| &object["spec"]["template"]["spec"]["containers"][0]);
        containers.filter_map(|container| container["name"].as_str()).collect()
    }

    /// Where the chart has put the controller.
    pub(crate) fn namespace(&self, controller: &str) -> &str {
        let name = Self::account(controller);
        let mut accounts = self.objects.iter().filter(|object| object["kind"] == "ServiceAccount");
        let account = accounts.find(|account| account["metadata"]["name"] == *name).unwrap();
        account["metadata"]["namespace"].as_str().unwrap()
    }

    /// Who the chart lets the controller be.
    pub(crate) async fn identity(&self, controller: &str) -> Kubeconfig {
        let (namespace, account) = (self.namespace(controller), Self::account(controller));
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        accounts.get(&account).await.unwrap();
        self.plane.service_account(namespace, &account).await.unwrap()
    }

    /// The line of the chart's pod, as somebody who is not in the cluster.
    pub(crate) fn command(&self, controller: &str, identity: &Kubeconfig) -> Command {
        let pods = self.objects.iter().map(|object| &object["spec"]["template"]["spec"]["containers"][0]);
        let pod = pods.into_iter().find(|container| container["name"] == controller).unwrap();
        let mut command = Command::new(program());
        for arg in pod["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()) {
            // Only an agent has a network of its own here; the others are given ports that are free.
            if controller == "node-agent" || !arg.starts_with("--admin-address=") {
                command.arg(arg.replace(MOUNTED, self.scratch.path().to_str().unwrap()));
            }
        }
        for variable in pod["env"].as_array().unwrap() {
            if let Some(value) = variable["value"].as_str() {
                let value = value.replace(MOUNTED, self.scratch.path().to_str().unwrap());
                command.env(variable["name"].as_str().unwrap(), value);
            }
        }
        command.args([
            "--kubeconfig",
            identity.path().to_str().unwrap(),
            "--lease-namespace",
            self.namespace(controller),
        ]);
        command
    }

    /// The controller as a process, ready.
    pub(crate) async fn start(&self, controller: &str) -> Controller {
        let command = self.command(controller, &self.identity(controller).await);
        Controller::start(controller, command, self.scratch.path(), SOON).await.unwrap()
    }

    /// What it asked for; nothing of it was refused.
    pub(crate) fn asked_and_granted(&self, controller: &str) -> Vec<Value> {
        let user = format!("system:serviceaccount:{}:{}", self.namespace(controller), Self::account(controller));
        let asked: Vec<_> =
            self.plane.audited().unwrap().into_iter().filter(|asked| asked["user"]["username"] == user).collect();
        assert!(!asked.is_empty(), "{controller} has asked for nothing");
        let is_refused = |asked: &&Value| asked["annotations"]["authorization.k8s.io/decision"] == "forbid";
        let refused: BTreeSet<_> =
            asked.iter().filter(is_refused).map(|asked| asked["requestURI"].to_string()).collect();
        assert!(refused.is_empty(), "{controller} was refused: {refused:#?}");
        asked
    }

    /// Nothing was refused, and every right was used but these, which are needed all the same.
    pub(crate) fn assert_used_but(&self, controller: &str, idle: &[(&str, &str)]) {
        let asked = self.asked_and_granted(controller);
        let mut unused = BTreeSet::new();
        for (role, rule) in self.rules(controller) {
            for (resource, verb, right) in rights(role, rule) {
                if !asked.iter().any(|asked| uses(asked, role, rule, &resource, &verb)) {
                    unused.insert(right);
                }
            }
        }
        let excused: BTreeSet<_> = idle.iter().map(|(right, _)| (*right).to_owned()).collect();
        assert_eq!(
            unused, excused,
            "the rights of {controller} that nobody used; those that are excused are on the right"
        );
    }

    /// The rules that are bound to it, each with its role.
    fn rules(&self, controller: &str) -> Vec<(&Value, &Value)> {
        let account = Self::account(controller);
        let bound = self.objects.iter().filter(|binding| {
            binding["subjects"].as_array().into_iter().flatten().any(|subject| subject["name"] == *account)
        });
        let mut rules = Vec::new();
        for binding in bound {
            let role = self.objects.iter().find(|role| {
                role["kind"] == binding["roleRef"]["kind"]
                    && role["metadata"]["name"] == binding["roleRef"]["name"]
                    && role["metadata"]["namespace"] == binding["metadata"]["namespace"]
            });
            let role = role.unwrap_or_else(|| panic!("no role for {binding}"));
            rules.extend(role["rules"].as_array().unwrap().iter().map(|rule| (role, rule)));
        }
        assert!(!rules.is_empty(), "{controller} has no rights");
        rules
    }
}

/// Every single right of a rule: resource, verb, and how it is told.
fn rights(holder: &Value, rule: &Value) -> Vec<(String, String, Right)> {
    let words = |field: &str| -> Vec<String> {
        rule[field].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let place = holder["metadata"]["namespace"].as_str().map(|namespace| format!("{namespace}: ")).unwrap_or_default();
    let mut rights = Vec::new();
    for resource in words("resources") {
        for verb in words("verbs") {
            let right = format!("{place}{resource} {verb}");
            rights.push((resource.clone(), verb, right));
        }
    }
    rights
}

/// Whether a request needed this right.
fn uses(asked: &Value, holder: &Value, rule: &Value, resource: &str, verb: &str) -> bool {
    let about = &asked["objectRef"];
    let text = |field: &str| about[field].as_str().unwrap_or_default();
    let asked_for = match text("subresource") {
        "" => text("resource").to_owned(),
        sub => format!("{}/{sub}", text("resource")),
    };
    let has = |field: &str, word: &str| rule[field].as_array().unwrap().iter().any(|entry| entry == word);
    // A server-side apply of what is not there yet asks for both rights in one request.
    let verb_fits = asked["verb"] == verb
        || (verb == "create" && asked["verb"] == "patch" && asked["responseStatus"]["code"] == 201);
    let namespace_fits =
        holder["metadata"]["namespace"].as_str().is_none_or(|namespace| text("namespace") == namespace);
    let name_fits = rule["resourceNames"].is_null() || has("resourceNames", text("name"));
    asked_for == resource && verb_fits && namespace_fits && name_fits && has("apiGroups", text("apiGroup"))
}

pub(crate) async fn namespace(client: &Client, name: &str) {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.patch(name, &PatchParams::apply("test"), &Patch::Apply(object)).await.unwrap();
}

fn program() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_demo")).with_file_name("groundcrew");
    assert!(program.is_file(), "{} is not built: run `make chart-test`", program.display());
    program
}
