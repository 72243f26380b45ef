//! Balancing by the agent itself, where no service proxy does it.

use anyhow::ensure;
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_testkit::eventually;
use groundcrew_testkit::process::Process;
use groundcrew_testkit::wire::Machine;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::lab::{Lab, SOON, python};

const PORT: u16 = 80;
const TARGET_PORT: u16 = 9090;

/// Every connection and datagram is answered with the client's address.
const SERVER: &str = "
import socket, sys, threading
family, host = (socket.AF_INET6, '::') if sys.argv[1] == '6' else (socket.AF_INET, '0.0.0.0')
def datagrams():
    s = socket.socket(family, socket.SOCK_DGRAM); s.bind((host, 9090))
    while True:
        _, client = s.recvfrom(100); s.sendto(client[0].encode(), client)
threading.Thread(target=datagrams, daemon=True).start()
s = socket.create_server((host, 9090), family=family)
print('serving', flush=True)
while True:
    c, client = s.accept(); c.sendall(client[0].encode()); c.close()
";

async fn serve(lab: &Lab, node: usize) -> Process {
    let mut server = python(SERVER);
    server.arg(if lab.address.is_ipv6() { "6" } else { "4" });
    let server = lab.wire.nodes[node].spawn(&format!("server-{node}"), &server).unwrap();
    server
        .wait_ready(SOON, async || {
            ensure!(server.log().contains("serving"), "not yet");
            Ok(())
        })
        .await
        .unwrap();
    server
}

/// As a node of a cluster does.
async fn forward(lab: &Lab, node: usize) {
    let forwarding =
        "for f in ('ipv4/ip_forward', 'ipv6/conf/all/forwarding'): open('/proc/sys/net/' + f, 'w').write('1')";
    lab.wire.nodes[node].run("python3", &["-I", "-c", forwarding]).await.unwrap();
}

async fn set_ports(lab: &Lab, ports: &Value) {
    let patch = Patch::Merge(json!({ "spec": { "nat": ports } }));
    let name = FloatingIP::name_of(lab.address);
    lab.floating_ips().patch(&name, &PatchParams::default(), &patch).await.unwrap();
}

/// What the one outside hears, or why nothing.
async fn ask(lab: &Lab, udp: bool) -> String {
    let address = lab.address;
    let kind = if udp { "SOCK_DGRAM" } else { "SOCK_STREAM" };
    let family = if address.is_ipv6() { "AF_INET6" } else { "AF_INET" };
    let script = format!(
        "import socket\ns = socket.socket(socket.{family}, socket.{kind}); s.settimeout(2)\ntry:\n \
         s.connect(('{address}', {PORT})); {}\n print(s.recv(100).decode())\nexcept OSError as e: print(type(e).__name__)",
        if udp { "s.send(b'?')" } else { "pass" }
    );
    lab.wire.outside.run("python3", &["-I", "-c", &script]).await.unwrap().trim().to_owned()
}

async fn until_heard(lab: &Lab, udp: bool, expected: &str) {
    eventually(&format!("outside hears {expected}"), SOON, async || {
        let heard = ask(lab, udp).await;
        ensure!(heard == expected, "{heard}");
        Ok(())
    })
    .await
    .unwrap();
}

/// The own address of a machine, of the family that is tested.
fn own(lab: &Lab, machine: &Machine) -> String {
    if lab.address.is_ipv6() { machine.address_v6().to_string() } else { machine.address().to_string() }
}

#[tokio::test]
async fn tcp_and_udp_on_one_port_reach_backends_on_another_port_and_none_means_refused() {
    is_balanced(Lab::started(2, &[]).await).await;
}

#[tokio::test]
async fn ipv6_is_balanced_likewise() {
    let mut lab = Lab::started(2, &[]).await;
    let number = lab.namespace.rsplit('-').next().unwrap();
    lab.address = format!("2001:db8:51::f02:{number}").parse().unwrap();
    is_balanced(lab).await;
}

async fn is_balanced(lab: Lab) {
    forward(&lab, 0).await;
    let _servers = (serve(&lab, 0).await, serve(&lab, 1).await);
    let backend = |node: usize| {
        let address = own(&lab, &lab.wire.nodes[node]);
        json!({ "address": address, "port": TARGET_PORT, "node": lab.name(node) })
    };
    lab.place(0).await;
    lab.until_held(0).await;

    let port = |protocol: &str, policy: &str, backends: Vec<Value>| json!({ "protocol": protocol, "port": PORT, "externalTrafficPolicy": policy, "backends": backends });
    // The backend on the other node sees the node as its client.
    let cluster = |protocol| port(protocol, "Cluster", vec![backend(1)]);
    set_ports(&lab, &json!([cluster("TCP"), cluster("UDP")])).await;
    let node = own(&lab, &lab.wire.nodes[0]);
    until_heard(&lab, false, &node).await;
    until_heard(&lab, true, &node).await;

    // The backend on the node itself sees the client.
    let local = |protocol| port(protocol, "Local", vec![backend(0), backend(1)]);
    set_ports(&lab, &json!([local("TCP"), local("UDP")])).await;
    until_heard(&lab, false, &own(&lab, &lab.wire.outside)).await;

    let nobody = |protocol| port(protocol, "Cluster", vec![]);
    set_ports(&lab, &json!([nobody("TCP"), nobody("UDP")])).await;
    until_heard(&lab, false, "ConnectionRefusedError").await;
    until_heard(&lab, true, "ConnectionRefusedError").await;

    // The node that has lost the address balances no more, also not what it sends there itself.
    lab.place(1).await;
    lab.until_held(1).await;
    until_no_table(&lab, 0).await;
    until_heard(&lab, false, "ConnectionRefusedError").await;
    set_ports(&lab, &json!([])).await;
    until_no_table(&lab, 1).await;
}

/// Sends a datagram every tenth of a second, all of them from one port, and says what came back.
const TALK: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.1); s.connect((sys.argv[1], 80))
while True:
    try:
        s.send(b'?'); print(s.recv(100).decode(), flush=True)
    except OSError:
        pass
";

/// What one sends often keeps its flow alive, and the rules are for the first packet of a flow.
#[tokio::test]
async fn whoever_talks_to_a_udp_backend_that_is_gone_is_answered_by_another() {
    let lab = Lab::started(2, &[]).await;
    forward(&lab, 0).await;
    let _servers = (serve(&lab, 0).await, serve(&lab, 1).await);
    lab.place(0).await;
    lab.until_held(0).await;
    let on = async |node: usize| {
        let backend = json!({ "address": lab.wire.nodes[node].address(), "port": TARGET_PORT, "node": lab.name(node) });
        set_ports(&lab, &json!([{ "protocol": "UDP", "port": PORT, "backends": [backend] }])).await;
    };
    let mut talk = python(TALK);
    talk.arg(lab.address.to_string());
    let talking = lab.wire.outside.spawn("talk", &talk).unwrap();
    let until_last = async |expected: String| {
        eventually(&format!("the last answer is {expected}"), SOON, async || {
            let log = talking.log();
            ensure!(log.lines().last() == Some(&expected), "{:?}", log.lines().last());
            Ok(())
        })
        .await
        .unwrap();
    };
    // The backend on the node itself sees the client, the other one the node.
    on(0).await;
    until_last(lab.wire.outside.address().to_string()).await;
    on(1).await;
    until_last(lab.wire.nodes[0].address().to_string()).await;
}

/// A pod on the node with a server, which asks the floating address for itself.
const POD: &str = "
import ctypes, os, socket, subprocess, sys, threading, time
ip = lambda *args: subprocess.run(('ip',) + args, check=True)
(ready, is_ready), (go, goes) = os.pipe(), os.pipe()
pod = os.fork()
if pod:
    os.read(ready, 1)
    ip('link', 'add', 'pod', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', str(pod))
    ip('address', 'add', '10.77.0.1/24', 'dev', 'pod')
    ip('link', 'set', 'pod', 'up')
    os.write(goes, b'.')
    os.wait()
    sys.exit()
assert ctypes.CDLL(None).prctl(1, 9) == 0  # it ends with its parent
assert ctypes.CDLL(None).unshare(0x40000000) == 0
os.write(is_ready, b'.'); os.read(go, 1)
ip('address', 'add', '10.77.0.2/24', 'dev', 'eth0')
ip('link', 'set', 'eth0', 'up')
ip('route', 'add', 'default', 'via', '10.77.0.1')
s = socket.create_server(('0.0.0.0', 9090))
def serve():
    while True:
        c, client = s.accept(); c.sendall(client[0].encode()); c.close()
threading.Thread(target=serve, daemon=True).start()
while True:
    try:
        print(socket.create_connection((sys.argv[1], 80), 1).recv(100).decode(), flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
    time.sleep(0.1)
";

#[tokio::test]
async fn with_the_local_policy_a_backend_reaches_itself_and_others_are_seen_as_they_are() {
    let lab = Lab::started(1, &[]).await;
    forward(&lab, 0).await;
    lab.place(0).await;
    lab.until_held(0).await;
    let backend = json!({ "address": "10.77.0.2", "port": TARGET_PORT, "node": lab.name(0) });
    let port = json!({ "protocol": "TCP", "port": PORT, "externalTrafficPolicy": "Local", "backends": [backend] });
    set_ports(&lab, &json!([port])).await;
    let mut pod = python(POD);
    pod.arg(lab.address.to_string());
    let pod = lab.wire.nodes[0].spawn("pod", &pod).unwrap();
    eventually("the pod hears itself", SOON, async || {
        let log = pod.log();
        // As the node, which is before it in its own eyes.
        ensure!(log.lines().last() == Some("10.77.0.1"), "{:?}", pod.last_words());
        Ok(())
    })
    .await
    .unwrap();
    until_heard(&lab, false, &lab.wire.outside.address().to_string()).await;
}

/// The kernel of the machine may lack SCTP itself: what the packet filter took is read back.
#[tokio::test]
async fn sctp_and_affinity_are_rules_that_the_kernel_takes() {
    let lab = Lab::started(1, &[]).await;
    lab.place(0).await;
    lab.until_held(0).await;
    let backends = [1, 2].map(|n| json!({ "address": format!("10.9.0.{n}"), "port": 5000 + n, "node": lab.name(0) }));
    let port = |protocol, policy, backends: &[Value]| json!({ "protocol": protocol, "port": PORT, "externalTrafficPolicy": policy, "affinitySeconds": 10800, "backends": backends });
    set_ports(&lab, &json!([port("SCTP", "Cluster", &backends), port("UDP", "Local", &backends[..1])])).await;
    let found = |rules: &str| {
        let line = |words: &[&str]| rules.lines().any(|line| words.iter().all(|word| line.contains(word)));
        line(&["sctp dport 80", "jhash ip saddr mod 2", "10.9.0.1 . 5001", "10.9.0.2 . 5002"])
            && line(&["udp dport 80", "jhash ip saddr mod 1", "10.9.0.1 . 5001"])
            && line(&["sctp", "masquerade"])
    };
    let list = async || lab.wire.nodes[0].run("nft", &["list", "table", "inet", "groundcrew_nat"]).await;
    eventually("the rules are there", SOON, async || {
        let rules = list().await?;
        ensure!(found(&rules), "{rules}");
        Ok(())
    })
    .await
    .unwrap();
    set_ports(&lab, &json!([port("SCTP", "Cluster", &[])])).await;
    eventually("without a backend it is refused", SOON, async || {
        let rules = list().await?;
        ensure!(rules.lines().any(|line| line.contains("sctp dport 80") && line.contains("reject")), "{rules}");
        Ok(())
    })
    .await
    .unwrap();
}

async fn until_no_table(lab: &Lab, node: usize) {
    eventually("the table is gone", SOON, async || {
        let tables = lab.wire.nodes[node].run("nft", &["list", "tables"]).await?;
        ensure!(!tables.contains("groundcrew_nat"), "{tables}");
        Ok(())
    })
    .await
    .unwrap();
}
