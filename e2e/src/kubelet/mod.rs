//! Real nodes: kubelet, containerd and runc, each node in network, process and mount namespaces of its own.
//!
//! ```text
//!  pods 10.244.0.0/24 -- [cni0] node-0 eth0 -- [bridge] -- eth0 node-1 [cni0] -- pods 10.244.1.0/24
//!                                  |                         |
//!                              10.96.0.1                 10.96.0.1      forwarded to what the test has started
//! ```
//!
//! There is no kube-proxy and no DNS: `10.96.0.1`, where pods look for the API server, is an address of each node. It is also
//! where they find the other servers of the test, see [`Nodes::offer`].

use std::fmt::Write;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::process::Process;
use groundcrew_testkit::wire::Wire;
use groundcrew_testkit::{Scratch, eventually};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use serde_json::json;

/// Generous: what else runs on the machine decides.
const SOON: Duration = Duration::from_mins(3);

/// Where pods find everything that is not a pod: the API server's `ClusterIP`.
pub const SERVERS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// What is needed of kube-controller-manager to run pods.
const CONTROLLERS: [&str; 9] = [
    "deployment-controller",
    "replicaset-controller",
    "daemonset-controller",
    "endpointslice-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "node-lifecycle-controller",
    "namespace-controller",
    "garbage-collector-controller",
];

/// Machines that run pods. Dropping it ends them all.
pub struct Nodes {
    // In the order in which they are to end.
    running: Vec<Running>,
    _scheduler: Process,
    /// What they are on.
    pub wire: Wire,
    dir: Scratch,
}

/// One node, and the control groups that its pods are in.
struct Running {
    process: Option<Process>,
    groups: String,
}

impl Nodes {
    /// As many nodes, which have these images and no way to get others. `ids` are their ids in a cloud.
    pub async fn start(plane: &mut ControlPlane, ids: &[String], image: &Path) -> Result<Self> {
        ensure!(nix::unistd::geteuid().is_root(), "containers need root");
        let dir = Scratch::new("nodes")?;
        plane.start_controller_manager(&CONTROLLERS).await?;
        let scheduler = scheduler(plane, dir.path())?;
        let wire = Wire::start(u8::try_from(ids.len())?).await?;
        let pause = dir.join("pause.tar");
        let made = Command::new(hack("image")).arg("pause").arg(&pause).output()?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut nodes = Self { running: Vec::new(), _scheduler: scheduler, wire, dir };
        for (number, id) in ids.iter().enumerate() {
            nodes.boot(plane, number, id, &[&pause, image]).await?;
        }
        let client = plane.client().await?;
        for machine in &nodes.wire.nodes {
            until_ready(&client, machine.name()).await.with_context(|| nodes.last_words())?;
        }
        Ok(nodes)
    }

    /// Makes a server of the test reachable for pods, at its port of [`SERVERS`].
    pub async fn offer(&mut self, server: SocketAddr) -> Result<SocketAddr> {
        let at = SocketAddr::new(SERVERS.into(), server.port());
        for machine in &mut self.wire.nodes {
            machine.forward_from(at, server).await?;
        }
        Ok(at)
    }

    /// The end of every log, of nodes and of pods.
    #[must_use]
    pub fn last_words(&self) -> String {
        let mut words = String::new();
        for (running, machine) in self.running.iter().zip(&self.wire.nodes) {
            let said = running.process.as_ref().map(Process::last_words).unwrap_or_default();
            let _ = writeln!(words, "--- {}\n{said}", machine.name());
            for log in logs(&self.dir.join(machine.name()).join("pod-logs")) {
                let text = fs::read_to_string(&log).unwrap_or_default();
                let lines: Vec<_> = text.lines().collect();
                let end = lines[lines.len().saturating_sub(5)..].join("\n");
                let _ = writeln!(words, "--- {}\n{end}", log.display());
            }
        }
        words
    }

    async fn boot(&mut self, plane: &ControlPlane, number: usize, id: &str, images: &[&Path]) -> Result<()> {
        let count = self.wire.nodes.len();
        let others: Vec<_> = (0..count)
            .filter(|other| *other != number)
            .map(|other| (format!("10.244.{other}.0/24"), self.wire.nodes[other].address().to_string()))
            .collect();
        let machine = self.wire.nodes.get_mut(number).context("no such machine")?;
        for (pods, gateway) in &others {
            machine.run("ip", &["route", "add", pods, "via", gateway]).await?;
        }
        machine.run("ip", &["address", "add", &format!("{SERVERS}/32"), "dev", "lo"]).await?;
        machine.run("sysctl", &["-qw", "net.ipv4.ip_forward=1"]).await?;
        machine.forward(plane.address()).await?;
        machine.forward_from(SocketAddr::new(IpAddr::V4(SERVERS), 443), plane.address()).await?;

        let (name, address) = (machine.name().to_owned(), machine.address());
        let dir = self.dir.join(&name);
        fs::create_dir_all(dir.join("images"))?;
        for image in images {
            let file = image.file_name().context("an image without a name")?;
            std::os::unix::fs::symlink(image.canonicalize()?, dir.join("images").join(file))?;
        }
        let groups = format!("groundcrew-e2e-{}-{name}", std::process::id());
        make_groups(&groups)?;
        write(&dir.join("containerd.toml"), &containerd(&dir))?;
        fs::create_dir_all(dir.join("cni"))?;
        write(&dir.join("cni/10-bridge.conflist"), &pod_network(&dir, number))?;
        let config = kubelet(&dir, address, &groups, id);
        write(&dir.join("kubelet.json"), &config)?;
        let kubeconfig = plane.user(&format!("system:node:{name}"), Some("system:nodes"))?;

        let mut node = Command::new("unshare");
        node.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
        node.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/kubelet/node.sh")).arg(&dir).arg(pinned("kubelet")?);
        node.args(["--hostname-override", &name, "--node-ip", &address.to_string()]);
        for (flag, path) in [
            ("--config", &*dir.join("kubelet.json")),
            ("--kubeconfig", kubeconfig.path()),
            ("--root-dir", &dir.join("kubelet")),
            ("--cert-dir", &dir.join("certificates")),
        ] {
            node.arg(flag).arg(path);
        }
        let process = machine.spawn(&format!("{name}-kubelet"), &node)?;
        self.running.push(Running { process: Some(process), groups });
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // First the processes, then what they were in.
        self.process = None;
        let until = Instant::now() + Duration::from_secs(10);
        while !remove_groups(&self.groups) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn hack(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack").join(script)
}

/// A program that `hack/setup` has put somewhere.
fn pinned(program: &str) -> Result<PathBuf> {
    let found = Command::new(hack("setup")).args(["which", program]).output()?;
    ensure!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    Ok(String::from_utf8(found.stdout)?.trim().into())
}

fn scheduler(plane: &ControlPlane, dir: &Path) -> Result<Process> {
    let kubeconfig = plane.user("system:kube-scheduler", None)?;
    let mut scheduler = Command::new(pinned("kube-scheduler")?);
    let path = kubeconfig.path().display();
    scheduler.args([format!("--kubeconfig={path}"), "--leader-elect=false".into(), "--secure-port=0".into()]);
    Process::spawn("kube-scheduler", &scheduler, dir)
}

async fn until_ready(client: &Client, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    eventually(&format!("{name} is ready"), SOON, async || {
        let conditions = nodes.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
        ensure!(conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True"), "{conditions:?}");
        Ok(())
    })
    .await
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn containerd(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"version = 2
root = "{dir}/containerd"
state = "{dir}/containerd-run"
[grpc]
  address = "{dir}/c.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "groundcrew.invalid/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{dir}/cni"
"#
    )
}

fn pod_network(dir: &Path, number: usize) -> String {
    let ipam = json!({
        "type": "host-local", "dataDir": dir.join("ipam"),
        "ranges": [[{ "subnet": format!("10.244.{number}.0/24") }]], "routes": [{ "dst": "0.0.0.0/0" }],
    });
    let bridge = json!({ "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipam": ipam });
    json!({ "cniVersion": "0.4.0", "name": "pods", "plugins": [bridge] }).to_string()
}

fn kubelet(dir: &Path, address: Ipv4Addr, groups: &str, id: &str) -> String {
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "address": address, "providerID": id,
        "authentication": { "anonymous": { "enabled": false }, "webhook": { "enabled": true } },
        "authorization": { "mode": "Webhook" },
        "containerRuntimeEndpoint": format!("unix://{}", dir.join("c.sock").display()),
        "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{groups}"), "failCgroupV1": false,
        "failSwapOn": false, "oomScoreAdj": 0, "makeIPTablesUtilChains": false, "resolvConf": "",
        "podLogsDir": dir.join("pod-logs"), "volumePluginDir": dir.join("volume-plugins"),
        "evictionHard": { "memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
        "imageGCHighThresholdPercent": 100, "nodeStatusUpdateFrequency": "4s",
    });
    config.to_string()
}

/// Below every mounted hierarchy of control groups: a machine has one (v2), or one for each resource (v1).
fn hierarchies() -> Vec<PathBuf> {
    let root = PathBuf::from("/sys/fs/cgroup");
    if root.join("cgroup.controllers").is_file() {
        return vec![root];
    }
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir() && !path.is_symlink()).collect()
}

/// Two kubelets must not share groups: each removes pods that it does not know.
fn make_groups(name: &str) -> Result<()> {
    for hierarchy in hierarchies().into_iter().filter(|path| !path.ends_with("unified")) {
        let group = hierarchy.join(name);
        fs::create_dir_all(&group).with_context(|| format!("create {}", group.display()))?;
        if hierarchy.ends_with("cpuset") {
            // A new one has none of either, and takes no process then.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                fs::write(group.join(file), fs::read_to_string(hierarchy.join(file))?)?;
            }
        }
        let subtree = hierarchy.join("cgroup.subtree_control");
        if subtree.is_file() {
            let controllers = fs::read_to_string(hierarchy.join("cgroup.controllers"))?;
            let all: Vec<_> = controllers.split_whitespace().map(|one| format!("+{one}")).collect();
            fs::write(subtree, all.join(" "))?;
        }
    }
    Ok(())
}

/// Whether they are all gone.
fn remove_groups(name: &str) -> bool {
    fn remove(group: &Path) -> bool {
        let below = fs::read_dir(group).into_iter().flatten().flatten().map(|entry| entry.path());
        // What is below the first that is busy is removed the next time.
        below.filter(|path| path.is_dir()).all(|path| remove(&path))
            && (!group.exists() || fs::remove_dir(group).is_ok())
    }
    hierarchies().iter().all(|hierarchy| remove(&hierarchy.join(name)))
}

fn logs(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() { found.extend(logs(&path)) } else { found.push(path) }
    }
    found
}
