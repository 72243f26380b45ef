//! Balancing by the agent itself, where no service proxy does it.

use anyhow::ensure;
use groundcrew_api::floating_ip::FloatingIP;
use groundcrew_testkit::eventually;
use groundcrew_testkit::process::Process;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::lab::{Lab, SOON, python};

const PORT: u16 = 80;
const TARGET_PORT: u16 = 9090;

/// Every connection and datagram is answered with the client's address.
const SERVER: &str = "
import socket, threading
def datagrams():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('0.0.0.0', 9090))
    while True:
        _, client = s.recvfrom(100); s.sendto(client[0].encode(), client)
threading.Thread(target=datagrams, daemon=True).start()
s = socket.create_server(('0.0.0.0', 9090))
print('serving', flush=True)
while True:
    c, client = s.accept(); c.sendall(client[0].encode()); c.close()
";

async fn serve(lab: &Lab, node: usize) -> Process {
    let server = lab.wire.nodes[node].spawn(&format!("server-{node}"), &python(SERVER)).unwrap();
    server
        .wait_ready(SOON, async || {
            ensure!(server.log().contains("serving"), "not yet");
            Ok(())
        })
        .await
        .unwrap();
    server
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
    let script = format!(
        "import socket\ns = socket.socket(socket.AF_INET, socket.{kind}); s.settimeout(2)\ntry:\n \
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

#[tokio::test]
async fn tcp_and_udp_on_one_port_reach_backends_on_another_port_and_none_means_refused() {
    let lab = Lab::started(2, &[]).await;
    let forwarding = "open('/proc/sys/net/ipv4/ip_forward', 'w').write('1')";
    lab.wire.nodes[0].run("python3", &["-I", "-c", forwarding]).await.unwrap();
    let _servers = (serve(&lab, 0).await, serve(&lab, 1).await);
    let backend = |node: usize| {
        let address = lab.wire.nodes[node].address();
        json!({ "address": address, "port": TARGET_PORT, "node": lab.name(node) })
    };
    lab.place(0).await;
    lab.until_held(0).await;

    let port = |protocol: &str, policy: &str, backends: Vec<Value>| json!({ "protocol": protocol, "port": PORT, "externalTrafficPolicy": policy, "backends": backends });
    // The backend on the other node sees the node as its client.
    let cluster = |protocol| port(protocol, "Cluster", vec![backend(1)]);
    set_ports(&lab, &json!([cluster("TCP"), cluster("UDP")])).await;
    let node = lab.wire.nodes[0].address().to_string();
    until_heard(&lab, false, &node).await;
    until_heard(&lab, true, &node).await;

    // The backend on the node itself sees the client.
    let local = |protocol| port(protocol, "Local", vec![backend(0), backend(1)]);
    set_ports(&lab, &json!([local("TCP"), local("UDP")])).await;
    until_heard(&lab, false, &lab.wire.outside.address().to_string()).await;

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
