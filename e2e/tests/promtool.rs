//! What Prometheus' own tool says: about the alerts, and about the metrics that each controller really serves.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, anyhow};
use groundcrew_testkit::Scratch;
use groundcrew_testkit::controller::Controller;
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::ovn::Central;
use serde_json::{Value, json};

const SOON: Duration = Duration::from_mins(1);

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn groundcrew() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_demo")).with_file_name("groundcrew");
    assert!(path.is_file(), "{} is missing: run `make alerts-test`", path.display());
    path
}

#[test]
fn alerts_fire_when_they_should_and_only_then() {
    let run = Command::new(repository("hack/alerts-test")).output().unwrap();
    assert!(run.status.success(), "{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
}

#[test]
fn every_query_of_a_dashboard_can_be_asked() {
    let mut rules = Vec::new();
    for file in std::fs::read_dir(repository("charts/groundcrew/files/dashboards")).unwrap() {
        let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file.unwrap().path()).unwrap()).unwrap();
        let panels = dashboard["panels"].as_array().unwrap().iter();
        for target in panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten()) {
            let query = target["expr"].as_str().unwrap();
            rules.push(json!({ "record": format!("dashboard:query:{}", rules.len()), "expr": query }));
        }
    }
    assert!(rules.len() > 20, "{} queries", rules.len());
    let scratch = Scratch::new("queries").unwrap();
    let file = scratch.join("rules.json");
    std::fs::write(&file, json!({ "groups": [{ "name": "dashboards", "rules": rules }] }).to_string()).unwrap();
    let said = promtool().args(["check", "rules", "--lint=none"]).arg(&file).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

#[tokio::test]
async fn promtool_has_nothing_to_say_about_any_controllers_metrics() -> Result<()> {
    let (control_plane, central) = tokio::try_join!(ControlPlane::start(), Central::start())?;
    control_plane.define(&groundcrew_api::crds()).await?;
    let scratch = Scratch::new("promtool")?;
    let password = scratch.join("password");
    std::fs::write(&password, "not-a-real-one")?;
    let remotes = central.northbound().remotes();
    // Clouds that do not answer: what is registered does not depend on them.
    let clouds = ["--api-url", "http://127.0.0.1:1", "--username", "ops@example.com", "--password-file"];
    let cloudsigma: Vec<_> = clouds.into_iter().chain([password.to_str().unwrap()]).collect();
    let pods = ["--pod-cidr", "10.244.0.0/16"];
    let flight = ["--pod-cidr", "10.244.0.0/16", "--security-group", "nodes"];
    let deorbit = ["--ccm-cluster", "prod", "--csi-cluster", "prod"];
    for (name, args, own) in [
        ("ovn-lb", &["--ovn-nb", &remotes][..], "groundcrew_ovn_commits_total"),
        ("lb-watcher", &["--ovn-nb", &remotes], "groundcrew_watcher_services"),
        ("cloudsigma-ccm", &cloudsigma, "groundcrew_floating_braked_bool"),
        ("routegc", &pods, "groundcrew_routegc_passes_total"),
        ("flight", &flight, "groundcrew_flight_passes_total"),
        ("deorbit-controller", &deorbit, "groundcrew_deorbit_passes_total"),
        ("net-probe", &["--node-name", "a"], "groundcrew_net_probe_asked_nodes"),
    ] {
        let mut command = Command::new(groundcrew());
        command.arg(name).args(args).args(["--lease-namespace", "default"]).env("OS_AUTH_URL", "http://127.0.0.1:1/v3");
        for (variable, value) in [
            ("USERNAME", "flight"),
            ("PASSWORD", "not-a-real-one"),
            ("PROJECT_NAME", "p"),
            ("DEFAULT_DOMAIN", "Default"),
        ] {
            command.env(format!("OS_{variable}"), value);
        }
        command.args(["--kubeconfig", control_plane.kubeconfig_path().to_str().unwrap()]);
        let controller = Controller::spawn(name, command, scratch.path())?;
        let serves = async || {
            let (_, page) = controller.get("/metrics").await?;
            if page.contains(own) { Ok(page) } else { Err(anyhow!("no {own} in {page}")) }
        };
        let page = controller.process.wait_ready(SOON, serves).await?;
        check(name, &page);
    }
    Ok(())
}

/// In a network of its own, as it writes to the packet filter of the network that it is in.
#[test]
fn promtool_has_nothing_to_say_about_the_agents_metrics() {
    let script = "ip link set lo up
        setpriv --pdeathsig KILL -- \"$0\" node-agent --node-name a --node-ip 127.0.0.1 --admin-address 127.0.0.1:8080 \
            --kubeconfig \"$1\" --lease-namespace default >&2 &
        until curl -sf http://127.0.0.1:8080/metrics | grep -q groundcrew_node_agent_held; do
            kill -0 $! || exit 1
            sleep 0.1
        done
        curl -sf http://127.0.0.1:8080/metrics";
    let scratch = Scratch::new("agent").unwrap();
    let kubeconfig = scratch.join("kubeconfig");
    let cluster = "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]";
    let context = "contexts: [{name: c, context: {cluster: c, user: c}}]";
    std::fs::write(
        &kubeconfig,
        format!(
            "apiVersion: v1\nkind: Config\n{cluster}\n{context}\ncurrent-context: c\nusers: [{{name: c, user: {{}}}}]\n"
        ),
    )
    .unwrap();
    let run = Command::new("timeout")
        .args(["60", "unshare", "--net", "bash", "-c", script])
        .args([groundcrew(), kubeconfig])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    check("node-agent", &String::from_utf8(run.stdout).unwrap());
}

fn promtool() -> Command {
    let promtool = Command::new(repository("hack/setup")).args(["which", "promtool"]).output().unwrap();
    assert!(promtool.status.success(), "{}", String::from_utf8_lossy(&promtool.stderr));
    Command::new(String::from_utf8(promtool.stdout).unwrap().trim())
}

/// Nothing against the conventions, and nothing that the reference does not have.
fn check(controller: &str, page: &str) {
    let mut promtool = promtool()
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let said = promtool.wait_with_output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success() && out.is_empty() && errors.is_empty(), "{controller}: {out}{errors}\n{page}");
    let reference = std::fs::read_to_string(repository("docs/reference/metrics.md")).unwrap();
    for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap_or_default();
        let listed = [format!("| `{name}`"), format!("| `{name}{{")].iter().any(|start| reference.contains(start));
        assert!(listed, "{controller} has {name}, which docs/reference/metrics.md does not");
    }
}
