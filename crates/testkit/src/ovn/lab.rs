//! The whole of OVN on one machine: databases, northd, a hypervisor, pods, and a client outside.
//!
//! ```text
//!  client ---- br-ext ---- [ext-public] ---- (proj) ---- [proj-default] ---- pod1 pod2 pod3
//!  198.51.100.49           localnet      .51    10.1.0.1                 10.1.0.41 .42 .43
//! ```
//!
//! The data path is the one of Open vSwitch in user space: no kernel module is needed. The throughput means nothing.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::UnixStream;
use tokio::sync::OnceCell;

use super::{Host, Northbound, installed, tool};
use crate::command::output;
use crate::daemon::Daemon;
use crate::netns::{Netns, Sandbox};
use crate::{Scratch, Signal};

pub(super) const READY: Duration = Duration::from_mins(1);
/// The one chassis, which is the gateway.
pub const CHASSIS: &str = "chassis-1";

/// The router between the pods and the outside.
pub const ROUTER: &str = "proj";
/// The switch of the pods.
pub const SWITCH: &str = "proj-default";
/// The switch that leads outside.
pub const EXTERNAL_SWITCH: &str = "ext-public";
/// The router's address outside; the other addresses of `198.51.100.0/24` and `2001:db8:51::/64` except the client's are
/// free for VIPs.
pub const ROUTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 51);
/// Who answers for the router and for its VIPs.
pub const ROUTER_MAC: &str = "0a:00:00:00:00:51";

/// A daemon of the [`Lab`] that can be stopped. The northbound server has its own handle, [`Lab::northbound`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The southbound database.
    Southbound,
    /// `ovn-northd`.
    Northd,
    /// `ovs-vswitchd`, the data path.
    Switch,
    /// `ovn-controller`.
    Controller,
}

/// The lab of this test binary, started by whoever asks first. It ends with the process.
///
/// Tests keep apart by their addresses. One that stops a part or changes the topology takes a [`Lab::start`] of its own.
pub async fn shared() -> Result<&'static Lab> {
    static SHARED: OnceCell<Lab> = OnceCell::const_new();
    SHARED.get_or_try_init(Lab::start).await
}

/// An OVN with its data path, for one test. Labs do not see each other: several run side by side.
#[derive(Debug)]
pub struct Lab {
    // In the order in which they are to end; the directory last.
    client: Host,
    pods: [Host; 3],
    controller: Daemon,
    switch: Daemon,
    northd: Daemon,
    _switch_database: Daemon,
    southbound: Daemon,
    northbound: Northbound,
    hypervisor: Netns,
    _sandbox: Sandbox,
    dir: Scratch,
}

impl Lab {
    /// Starts one: pods 0 and 1 are backends that serve, pod 2 is a client inside. There is no load balancer yet.
    pub async fn start() -> Result<Self> {
        check_tun()?;
        let scratch = Scratch::new("lab")?;
        let dir = scratch.path();
        let sandbox = Sandbox::new(dir).await?;
        let hypervisor = sandbox.netns("hypervisor", dir).await?;
        let agent = dir.join("agent.py");
        fs::write(&agent, include_str!("agent.py"))?;

        let northbound = Northbound::standalone().await?;
        let southbound = database("sb", "/usr/share/ovn/ovn-sb.ovsschema", dir).await?;
        let switch_database = database("ovs", "/usr/share/openvswitch/vswitch.ovsschema", dir).await?;
        let host = async |name: &str, address: Ipv4Addr, address6: Ipv6Addr| {
            anyhow::Ok(Host::new(name, (address, address6), sandbox.netns(name, dir).await?, &agent))
        };
        let inside = |last: u16| Ipv6Addr::new(0xfd00, 0x10, 1, 0, 0, 0, 0, last);
        let mut lab = Self {
            client: host("client", [198, 51, 100, 49].into(), [0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 0x49].into()).await?,
            pods: [
                host("pod1", [10, 1, 0, 41].into(), inside(0x41)).await?,
                host("pod2", [10, 1, 0, 42].into(), inside(0x42)).await?,
                host("pod3", [10, 1, 0, 43].into(), inside(0x43)).await?,
            ],
            controller: Daemon::bound("ovn-controller", hypervisor.inside_bound(&controller(dir)?)?, dir),
            switch: Daemon::bound("ovs-vswitchd", hypervisor.inside_bound(&switch(dir)?)?, dir),
            northd: Daemon::new("ovn-northd", &northd(&northbound.unix(0), dir)?, dir)?,
            _switch_database: switch_database,
            southbound,
            northbound,
            hypervisor,
            _sandbox: sandbox,
            dir: scratch,
        };
        lab.start_hypervisor().await?;
        lab.build_topology().await?;
        let dir = lab.dir.path();
        for backend in &mut lab.pods[..2] {
            backend.serve(dir).await?;
        }
        lab.wait_hypervisor().await?;
        Ok(lab)
    }

    async fn start_hypervisor(&mut self) -> Result<()> {
        self.restart(Part::Northd).await?;
        self.vsctl(&["--no-wait", "init"]).await?;
        let southbound = format!("external-ids:ovn-remote=unix:{}", self.dir.join("sb.sock").display());
        let chassis = format!("external-ids:system-id={CHASSIS}");
        self.vsctl(&[
            "--no-wait",
            "set",
            "Open_vSwitch",
            ".",
            &chassis,
            &southbound,
            "external-ids:ovn-encap-type=geneve",
            "external-ids:ovn-encap-ip=127.0.0.1",
            "external-ids:ovn-bridge-datapath-type=netdev",
            "external-ids:ovn-bridge-mappings=physnet:br-ext",
        ])
        .await?;
        self.restart(Part::Switch).await?;
        for (bridge, fail_mode) in [("br-int", "fail_mode=secure"), ("br-ext", "fail_mode=standalone")] {
            self.vsctl(&["add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev", fail_mode]).await?;
        }
        self.restart(Part::Controller).await
    }

    async fn build_topology(&self) -> Result<()> {
        let topology = format!(
            "ls-add {EXTERNAL_SWITCH} \
             -- lsp-add {EXTERNAL_SWITCH} ln-public -- lsp-set-type ln-public localnet \
             -- lsp-set-addresses ln-public unknown -- lsp-set-options ln-public network_name=physnet \
             -- lr-add {ROUTER} -- lrp-add {ROUTER} {ROUTER}-{EXTERNAL_SWITCH} {ROUTER_MAC} {ROUTER_ADDRESS}/24 2001:db8:51::51/64 \
             -- lrp-set-gateway-chassis {ROUTER}-{EXTERNAL_SWITCH} {CHASSIS} 10 \
             -- lsp-add {EXTERNAL_SWITCH} {EXTERNAL_SWITCH}-{ROUTER} -- lsp-set-type {EXTERNAL_SWITCH}-{ROUTER} router \
             -- lsp-set-addresses {EXTERNAL_SWITCH}-{ROUTER} router \
             -- lsp-set-options {EXTERNAL_SWITCH}-{ROUTER} router-port={ROUTER}-{EXTERNAL_SWITCH} \
             -- ls-add {SWITCH} -- lrp-add {ROUTER} {ROUTER}-{SWITCH} 0a:00:00:00:01:01 10.1.0.1/16 fd00:10:1::1/64 \
             -- lsp-add {SWITCH} {SWITCH}-{ROUTER} -- lsp-set-type {SWITCH}-{ROUTER} router \
             -- lsp-set-addresses {SWITCH}-{ROUTER} router -- lsp-set-options {SWITCH}-{ROUTER} router-port={ROUTER}-{SWITCH}"
        );
        self.northbound.nbctl(topology.split_whitespace()).await?;

        for pod in &self.pods {
            let last = pod.address().octets()[3];
            let (mac, v6) = (format!("0a:00:00:00:02:{last}"), pod.address6());
            let addresses = format!("{mac} {} {v6}", pod.address());
            self.northbound
                .nbctl(["lsp-add", SWITCH, pod.name(), "--", "lsp-set-addresses", pod.name(), &addresses])
                .await?;
            self.plug(pod, &mac, "br-int").await?;
            let interface = format!("external_ids:iface-id={}", pod.name());
            self.vsctl(&["set", "interface", pod.name(), &interface]).await?;
            let netns = pod.netns();
            netns.ip(["addr", "add", &format!("{}/16", pod.address()), "dev", "eth0"]).await?;
            netns.ip(["addr", "add", &format!("{v6}/64"), "dev", "eth0", "nodad"]).await?;
            netns.ip(["route", "add", "default", "via", "10.1.0.1"]).await?;
            netns.ip(["-6", "route", "add", "default", "via", "fd00:10:1::1"]).await?;
        }
        self.plug(&self.client, "0a:00:00:00:03:01", "br-ext").await?;
        let netns = self.client.netns();
        netns.ip(["addr", "add", &format!("{}/24", self.client.address()), "dev", "eth0"]).await?;
        netns.ip(["addr", "add", &format!("{}/64", self.client.address6()), "dev", "eth0", "nodad"]).await.map(drop)
    }

    /// A cable from the host's `eth0` to a bridge.
    async fn plug(&self, host: &Host, mac: &str, bridge: &str) -> Result<()> {
        let netns = host.netns().pid().to_string();
        let cable =
            ["link", "add", host.name(), "type", "veth", "peer", "name", "eth0", "netns", &netns, "address", mac];
        self.hypervisor.ip(cable).await?;
        self.hypervisor.ip(["link", "set", host.name(), "up"]).await?;
        host.netns().ip(["link", "set", "eth0", "up"]).await?;
        // The data path in user space does not fill in checksums that were left to the hardware: every TCP and UDP
        // packet would be dropped by its receiver.
        host.netns().run("ethtool", ["-K", "eth0", "tx", "off"]).await?;
        self.vsctl(&["add-port", bridge, host.name()]).await
    }

    /// The northbound database: its addresses, its faults, and `ovn-nbctl`.
    #[must_use]
    pub fn northbound(&self) -> &Northbound {
        &self.northbound
    }

    /// The same, to stop and restart it.
    #[must_use]
    pub fn northbound_mut(&mut self) -> &mut Northbound {
        &mut self.northbound
    }

    /// The client outside.
    #[must_use]
    pub fn client(&self) -> &Host {
        &self.client
    }

    /// A host inside: 0 and 1 serve, 2 does not.
    #[must_use]
    pub fn pod(&self, index: usize) -> &Host {
        &self.pods[index]
    }

    /// Lets a backend die, or serve again.
    pub async fn set_serving(&mut self, pod: usize, serving: bool) -> Result<()> {
        let pod = &mut self.pods[pod];
        pod.stop_serving();
        if serving { pod.serve(self.dir.path()).await } else { Ok(()) }
    }

    /// Waits until northd has translated everything that is committed now (`sb_cfg`).
    pub async fn wait_southbound(&self) -> Result<()> {
        self.northbound.nbctl(["--wait=sb", "sync"]).await.map(drop)
    }

    /// Waits until the data path has everything that is committed now (`hv_cfg`).
    pub async fn wait_hypervisor(&self) -> Result<()> {
        self.northbound.nbctl(["--wait=hv", "sync"]).await.map(drop)
    }

    /// Sends a signal to a daemon.
    pub fn signal(&self, part: Part, signal: Signal) -> Result<()> {
        let daemon = match part {
            Part::Southbound => &self.southbound,
            Part::Northd => &self.northd,
            Part::Switch => &self.switch,
            Part::Controller => &self.controller,
        };
        daemon.process()?.signal(signal)
    }

    /// Ends a daemon with `signal` and waits until it is gone.
    pub async fn stop(&mut self, part: Part, signal: Signal) -> Result<()> {
        self.daemon(part).stop(signal).await
    }

    /// Starts a daemon that was stopped and waits until it works.
    pub async fn restart(&mut self, part: Part) -> Result<()> {
        let dir = self.dir.path().to_owned();
        match part {
            Part::Southbound => self.southbound.start(READY, listens(dir.join("sb.sock"))).await,
            Part::Northd => self.northd.start(READY, listens(dir.join("northd.ctl"))).await,
            Part::Switch => self.switch.start(READY, listens(dir.join("vswitchd.ctl"))).await,
            Part::Controller => {
                let registered = async || {
                    let chassis = sbctl(&dir, &["--bare", "--columns=name", "list", "Chassis"]).await?;
                    ensure!(chassis.contains(CHASSIS), "{CHASSIS} is not in the southbound database");
                    Ok(())
                };
                self.controller.start(READY, registered).await
            }
        }
    }

    /// Runs `ovn-sbctl`.
    pub async fn sbctl(&self, args: &[&str]) -> Result<String> {
        sbctl(self.dir.path(), args).await
    }

    fn daemon(&mut self, part: Part) -> &mut Daemon {
        match part {
            Part::Southbound => &mut self.southbound,
            Part::Northd => &mut self.northd,
            Part::Switch => &mut self.switch,
            Part::Controller => &mut self.controller,
        }
    }

    async fn vsctl(&self, args: &[&str]) -> Result<()> {
        let mut vsctl = tool("ovs-vsctl", self.dir.path())?;
        vsctl.arg(format!("--db=unix:{}", self.dir.join("ovs.sock").display())).arg("--timeout=50").args(args);
        output(vsctl).await.map(drop)
    }
}

/// The data path makes tap devices, also for an ordinary user in a user namespace.
fn check_tun() -> Result<()> {
    fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").map(drop).context(
        "/dev/net/tun cannot be opened, and the data path of OVN needs it: run the tests as root, or \
         `chmod 0666 /dev/net/tun`, which is what udev gives it",
    )
}

pub(super) async fn sbctl(dir: &Path, args: &[&str]) -> Result<String> {
    let mut sbctl = tool("ovn-sbctl", dir)?;
    sbctl.arg(format!("--db=unix:{}", dir.join("sb.sock").display())).arg("--timeout=50").args(args);
    output(sbctl).await
}

/// A database server that only the lab itself talks to.
pub(super) async fn database(name: &str, schema: &str, dir: &Path) -> Result<Daemon> {
    let (file, socket) = (dir.join(format!("{name}.db")), dir.join(format!("{name}.sock")));
    let mut create = tool("ovsdb-tool", dir)?;
    create.arg("create").arg(&file).arg(installed(schema)?);
    output(create).await?;
    let mut server = tool("ovsdb-server", dir)?;
    server
        .arg("-vsyslog:off")
        .arg(format!("--unixctl={}", dir.join(format!("{name}.ctl")).display()))
        .arg(format!("--remote=punix:{}", socket.display()))
        .arg(file);
    let mut daemon = Daemon::new(name, &server, dir)?;
    daemon.start(READY, listens(socket)).await?;
    Ok(daemon)
}

pub(crate) fn listens(socket: std::path::PathBuf) -> impl AsyncFnMut() -> Result<UnixStream> {
    async move || Ok(UnixStream::connect(&socket).await?)
}

pub(super) fn northd(northbound: &str, dir: &Path) -> Result<Command> {
    let mut northd = tool("ovn-northd", dir)?;
    northd
        .arg("-vsyslog:off")
        .arg(format!("--unixctl={}", dir.join("northd.ctl").display()))
        .arg(format!("--ovnnb-db={northbound}"))
        .arg(format!("--ovnsb-db=unix:{}", dir.join("sb.sock").display()));
    Ok(northd)
}

fn switch(dir: &Path) -> Result<Command> {
    let mut switch = tool("ovs-vswitchd", dir)?;
    switch
        // The kernel's data path is neither needed nor, in a user namespace, allowed.
        .args(["-vsyslog:off", "--disable-system"])
        .arg(format!("--unixctl={}", dir.join("vswitchd.ctl").display()))
        .arg(format!("unix:{}", dir.join("ovs.sock").display()))
        .current_dir(dir);
    Ok(switch)
}

fn controller(dir: &Path) -> Result<Command> {
    let mut controller = tool("ovn-controller", dir)?;
    controller.arg("-vsyslog:off").arg(format!("unix:{}", dir.join("ovs.sock").display()));
    Ok(controller)
}
