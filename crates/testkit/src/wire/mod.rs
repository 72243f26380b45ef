//! Machines on one wire: network namespaces on a bridge, and one outside that asks who has an address.
//!
//! ```text
//!  outside ---- [bridge] ---- node-0  node-1  node-2
//!  198.51.100.1                .10     .11     .12      2001:db8:51::/64 likewise
//! ```

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::time::{ClockId, clock_gettime};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpStream, UnixListener};
use tokio::task::AbortHandle;

use crate::Scratch;
use crate::command::find;
use crate::netns::{Netns, Sandbox};
use crate::process::Process;

const READY: Duration = Duration::from_mins(1);

/// Some nodes and a host outside. Wires do not see each other: several run side by side.
#[derive(Debug)]
pub struct Wire {
    /// The gateway of the nodes.
    pub outside: Machine,
    /// The nodes.
    pub nodes: Vec<Machine>,
    switch: Netns,
    _sandbox: Sandbox,
    dir: Scratch,
}

/// One namespace with an `eth0` on the wire.
#[derive(Debug)]
pub struct Machine {
    name: String,
    address: Ipv4Addr,
    mac: String,
    netns: Netns,
    forwards: Vec<Forward>,
    dir: PathBuf,
}

#[derive(Debug)]
struct Forward {
    carrier: AbortHandle,
    _inside: Process,
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.carrier.abort();
    }
}

impl Wire {
    /// With this many nodes.
    pub async fn start(nodes: u8) -> Result<Self> {
        let dir = Scratch::new("wire")?;
        let sandbox = Sandbox::new(dir.path()).await?;
        let switch = sandbox.netns("switch", dir.path()).await?;
        switch.ip(["link", "add", "bridge", "type", "bridge", "forward_delay", "0"]).await?;
        switch.ip(["link", "set", "bridge", "up"]).await?;
        let machine = async |name: String, last: u8| -> Result<Machine> {
            let netns = sandbox.netns(&name, dir.path()).await?;
            let (address, mac) = (Ipv4Addr::new(198, 51, 100, last), format!("02:00:00:00:00:{last:02x}"));
            let pid = switch.pid().to_string();
            netns
                .ip(["link", "add", "eth0", "address", &mac, "type", "veth", "peer", "name", &name, "netns", &pid])
                .await?;
            switch.ip(["link", "set", &name, "master", "bridge", "up"]).await?;
            netns.ip(["address", "add", &format!("{address}/24"), "dev", "eth0"]).await?;
            netns.ip(["address", "add", &format!("{}/64", address_v6(last)), "dev", "eth0", "nodad"]).await?;
            netns.ip(["link", "set", "eth0", "up"]).await?;
            Ok(Machine { name, address, mac, netns, forwards: Vec::new(), dir: dir.path().to_owned() })
        };
        let outside = machine("outside".into(), 1).await?;
        let mut machines = Vec::new();
        for number in 0..nodes {
            let node = machine(format!("node-{number}"), 10 + number).await?;
            let gateway = outside.address.to_string();
            node.netns.ip(["route", "add", "default", "via", &gateway]).await?;
            node.netns.ip(["route", "add", "default", "via", "2001:db8:51::1", "dev", "eth0"]).await?;
            machines.push(node);
        }
        Ok(Self { outside, nodes: machines, switch, _sandbox: sandbox, dir })
    }

    /// Pulls the plug of a node: its interface has no carrier any more.
    pub async fn unplug(&self, node: usize) -> Result<()> {
        self.switch.ip(["link", "set", self.node(node)?.name(), "down"]).await.map(drop)
    }

    /// Puts it in again.
    pub async fn plug(&self, node: usize) -> Result<()> {
        self.switch.ip(["link", "set", self.node(node)?.name(), "up"]).await.map(drop)
    }

    fn node(&self, node: usize) -> Result<&Machine> {
        self.nodes.get(node).with_context(|| format!("there is no node {node}"))
    }

    /// Has the machine outside ask for an address twenty times a second, and write down who says that it has it.
    pub async fn ask(&self, address: IpAddr) -> Result<Asking> {
        let script = self.dir.join("ask.py");
        fs::write(&script, include_str!("ask.py"))?;
        let mut command = python()?;
        command.arg(&script).args(["eth0", &address.to_string(), "0.05", &self.outside.address.to_string()]);
        let name = format!("ask-{}", address.to_string().replace(':', "-"));
        let process = self.outside.spawn(&name, &command)?;
        process.wait_ready(READY, async || says(&process, "asking")).await?;
        Ok(Asking { process })
    }

    /// Has the machine outside send a request every `pause`, each on a connection of its own, and write down what became
    /// of it. One that has no answer after `patience` is given up; a lost SYN is sent again after a second.
    pub async fn request(&self, server: SocketAddr, pause: Duration, patience: Duration) -> Result<Requesting> {
        let script = self.dir.join("request.py");
        fs::write(&script, include_str!("request.py"))?;
        let (host, port) = (server.ip().to_string(), server.port().to_string());
        let mut command = python()?;
        command.arg(&script).args([&host, &port]);
        command.args([pause, patience].map(|time| time.as_secs_f64().to_string()));
        let process = self.outside.spawn(&format!("request-{}", host.replace(':', "-")), &command)?;
        process.wait_ready(READY, async || says(&process, "requesting")).await?;
        Ok(Requesting { process })
    }

    /// Gives the switch these rules of nftables, in the place of all that it had.
    pub async fn filter(&self, rules: &str) -> Result<()> {
        let file = self.dir.join("switch.nft");
        fs::write(&file, format!("flush ruleset\n{rules}"))?;
        let mut nft = Command::new(find("nft", "net")?);
        nft.arg("-f").arg(&file);
        crate::command::output(self.switch.inside(&nft)?).await.map(drop)
    }
}

/// Somebody who sends requests.
#[derive(Debug)]
pub struct Requesting {
    process: Process,
}

/// What became of a request. Times are on the clock that counts since the machine's start.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// When it was sent.
    pub sent: f64,
    /// When it was answered or given up.
    pub ended: f64,
    /// What came back.
    pub answer: Option<String>,
}

impl Requesting {
    /// All requests that have ended, in the order in which they were sent.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        let log = whole_lines(&self.process);
        let request = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let (sent, ended) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some(Request { sent, ended, answer: words.next().filter(|said| *said != "-").map(str::to_owned) })
        };
        let mut requests: Vec<_> = log.lines().filter_map(request).collect();
        requests.sort_by(|one, other| one.sent.total_cmp(&other.sent));
        requests
    }
}

/// Somebody who asks for an address.
#[derive(Debug)]
pub struct Asking {
    process: Process,
}

/// A frame by which somebody said that it has the address.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// When, on the clock that counts since the machine's start.
    pub at: f64,
    /// Which hardware address.
    pub mac: String,
}

impl Asking {
    /// All answers so far, in their order.
    #[must_use]
    pub fn answers(&self) -> Vec<Answer> {
        let log = whole_lines(&self.process);
        let answer = |line: &str| {
            let (at, mac) = line.split_once(' ')?;
            Some(Answer { at: at.parse().ok()?, mac: mac.to_owned() })
        };
        log.lines().filter_map(answer).collect()
    }
}

impl Machine {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its own address.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Its own IPv6 address.
    #[must_use]
    pub fn address_v6(&self) -> Ipv6Addr {
        address_v6(self.address.octets()[3])
    }

    /// The hardware address of its `eth0`.
    #[must_use]
    pub fn mac(&self) -> &str {
        &self.mac
    }

    /// Runs a program of the group `net` inside.
    pub async fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        let mut command = Command::new(find(program, "net")?);
        command.args(args);
        crate::command::output(self.netns.inside(&command)?).await
    }

    /// Starts a program inside, which ends with us.
    pub fn spawn(&self, name: &str, command: &Command) -> Result<Process> {
        Process::spawn_bound(name, self.netns.inside_bound(command)?, &self.dir)
    }

    /// Has it answer TCP and UDP on these ports, with its name and the client's address.
    pub async fn serve(&self, ports: &[u16]) -> Result<Process> {
        let script = self.dir.join("serve.py");
        fs::write(&script, include_str!("serve.py"))?;
        let mut command = python()?;
        command.arg(&script).arg(&self.name).args(ports.iter().map(u16::to_string));
        let server = self.spawn(&format!("{}-server", self.name), &command)?;
        server.wait_ready(READY, async || says(&server, "serving")).await?;
        Ok(server)
    }

    /// Makes `to`, an address of the test's own namespace, reachable inside at the same port of loopback. Lives on the
    /// runtime of the test.
    pub async fn forward(&mut self, to: SocketAddr) -> Result<()> {
        self.forward_from(to, to).await
    }

    /// The same at another address, which the machine must have.
    pub async fn forward_from(&mut self, at: SocketAddr, to: SocketAddr) -> Result<()> {
        let path = self.dir.join(format!("{}-{}-{}.sock", self.name, at.port(), to.port()));
        let listener = UnixListener::bind(&path).with_context(|| format!("bind {}", path.display()))?;
        let carrier = tokio::spawn(async move {
            while let Ok((mut inside, _)) = listener.accept().await {
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(to).await {
                        let _ = server.set_nodelay(true);
                        // An end of either side is the end of both.
                        let _ = copy_bidirectional(&mut inside, &mut server).await;
                    }
                });
            }
        });
        let script = self.dir.join("forward.py");
        fs::write(&script, include_str!("forward.py"))?;
        let mut command = python()?;
        command.arg(&script).arg(at.ip().to_string()).arg(at.port().to_string()).arg(&path);
        let inside = self.spawn(&format!("{}-forward-{}-{}", self.name, at.port(), to.port()), &command)?;
        inside.wait_ready(READY, async || says(&inside, "listening")).await?;
        self.forwards.push(Forward { carrier: carrier.abort_handle(), _inside: inside });
        Ok(())
    }
}

fn address_v6(last: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, last.into())
}

/// The clock of [`Answer`] and [`Request`].
pub fn now() -> Result<f64> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME)?;
    Ok(Duration::from(now).as_secs_f64())
}

/// The log without a last line that is on its way: half a hardware address would be nobody's.
fn whole_lines(process: &Process) -> String {
    let mut log = process.log();
    log.truncate(log.rfind('\n').map_or(0, |end| end + 1));
    log
}

fn says(process: &Process, word: &str) -> Result<()> {
    ensure!(process.log().contains(word), "it does not say {word}");
    Ok(())
}

fn python() -> Result<Command> {
    // The system's: one of a version manager takes ten times as long to start.
    let mut python = Command::new(find("python3", "net")?);
    python.arg("-I");
    Ok(python)
}
