//! What a client outside notices: requests through a real data path, while the load balancer is deleted again and again.

use std::io::Read;
use std::net::{Shutdown, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use groundcrew_api::address_pool::{AddressPool, AddressPoolSpec};
use groundcrew_testkit::eventually;
use groundcrew_testkit::ovn::Host;
use groundcrew_testkit::ovn::lab::{Lab, ROUTER};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::ovsdb::raw::Raw;
use crate::report::Report;
use crate::rig::ovn::{Ovn, succeed};
use crate::rig::{PATIENCE, Rig};
use crate::world::CLASS;

/// About 140 a second.
const EVERY: Duration = Duration::from_millis(7);
/// What load generators wait for an answer; a request without one by then has failed.
const PATIENT: Duration = Duration::from_secs(2);
/// Who waited longer had a packet lost: a SYN is sent again after a second. Counted apart, so that patience does not hide an
/// outage.
const IN_TIME: Duration = Duration::from_millis(900);
const DELETIONS: usize = 10;
const BETWEEN: Duration = Duration::from_millis(400);
const SERVICE: &str = "web";
/// What the client says of each request.
const ANSWERED: &str = "answered";
const LATE: &str = "late";
const FAILED: &str = "failed";

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let (rig, lab) = tokio::try_join!(Rig::empty(), Lab::start())?;
    let lab = Arc::new(lab);
    make(&rig.client, &lab).await?;
    let ovn = Ovn::of_lab(lab.clone()).await?;
    let running = rig.start_at(&ovn.endpoint(), &[])?;
    let services: Api<Service> = Api::namespaced(rig.client.clone(), ROUTER);
    let address = eventually("the Service has an address", PATIENCE, async || {
        let status = services.get(SERVICE).await?.status.unwrap_or_default();
        let ingress = status.load_balancer.and_then(|status| status.ingress).unwrap_or_default();
        ingress.into_iter().find_map(|ingress| ingress.ip).context("no address")
    })
    .await?;
    lab.wait_hypervisor().await?;
    let server = format!("{address}:80");
    let ours = lost(&ovn, &lab, &server).await?;
    running.stop().await?;

    let [row] = &ovn.rows().await?[..] else { bail!("one load balancer was expected") };
    let stop = ovn.stand_in()?;
    let (ending, repairing) = (stop.try_clone()?, bare(stop, ovn.insert(std::slice::from_ref(row))?));
    let floor = lost(&ovn, &lab, &server).await?;
    ending.shutdown(Shutdown::Both)?;
    let repairs = tokio::task::block_in_place(|| repairing.join()).map_err(|_| anyhow!("the bare repairer died"))??;
    ensure!(repairs == DELETIONS, "the bare repairer was needed {repairs} times");
    report.at_most("requests failed in 10 deletions", ours.all, "", f64::from(ours.failed), 5.0);
    report.told("answered after a packet was sent again", ours.all, "", f64::from(ours.late));
    report.told("bare repairer: failed", floor.all, "", f64::from(floor.failed));
    report.told("bare repairer: answered late", floor.all, "", f64::from(floor.late));
    Ok(())
}

/// What became of the requests.
#[derive(Default)]
struct Requests {
    all: usize,
    /// Answered, but only after something was sent again.
    late: u32,
    failed: u32,
}

/// Puts the row back each time that it goes, until its socket is closed; then says how often.
fn bare(mut stand_in: Raw, repair: Vec<u8>) -> JoinHandle<Result<usize>> {
    thread::spawn(move || {
        let mut repairs = 0;
        while stand_in.read_until(br#""delete""#).is_ok() {
            succeed(&stand_in.transact(&repair)?)?;
            repairs += 1;
        }
        Ok(repairs)
    })
}

/// Sends requests while the load balancer is deleted again and again.
async fn lost(ovn: &Ovn, lab: &Lab, server: &str) -> Result<Requests> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--drift-requests-to", server]);
    let mut command = tokio::process::Command::from(lab.client().command(&command)?);
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let stdin = client.stdin.take();
    let mut lines = BufReader::new(client.stdout.take().context("no output")?).lines();
    // The neighbours learn about each other first.
    for _ in 0..50 {
        ensure!(lines.next_line().await?.as_deref() == Some(ANSWERED), "the load balancer does not answer");
    }
    let name = ovn.server().nbctl(["--bare", "--columns=name", "list", "Load_Balancer"]).await?;
    let deleting = async {
        for _ in 0..DELETIONS {
            tokio::time::sleep(BETWEEN).await;
            ovn.server().nbctl(["lb-del", name.trim()]).await?;
        }
        tokio::time::sleep(BETWEEN).await;
        drop(stdin);
        anyhow::Ok(())
    };
    let counting = async {
        let mut counted = Requests::default();
        while let Some(line) = lines.next_line().await? {
            counted.all += 1;
            match &*line {
                ANSWERED => {}
                LATE => counted.late += 1,
                _ => counted.failed += 1,
            }
        }
        Ok(counted)
    };
    let ((), counted) = tokio::try_join!(deleting, counting)?;
    Ok(counted)
}

/// A project as the lab has it: the first two pods are the backends.
async fn make(client: &Client, lab: &Lab) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": ROUTER } }))?;
    namespaces.create(&PostParams::default(), &namespace).await?;
    let pools: Api<AddressPool> = Api::all(client.clone());
    let addresses = vec!["198.51.100.55-198.51.100.62".into()];
    let spec =
        AddressPoolSpec { addresses, namespaces: vec![ROUTER.into()], priority: 1, ..AddressPoolSpec::default() };
    pools.create(&PostParams::default(), &AddressPool::new("lab", spec)).await?;
    let endpoints: Vec<_> =
        (0..2).map(|pod| json!({ "addresses": [lab.pod(pod).address()], "conditions": { "ready": true } })).collect();
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": { "name": SERVICE, "labels": { "kubernetes.io/service-name": SERVICE } },
        "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{ "name": "http", "protocol": "TCP", "port": Host::HTTP }],
    }))?;
    Api::namespaced(client.clone(), ROUTER).create(&PostParams::default(), &slice).await?;
    let service: Service = serde_json::from_value(json!({
        "metadata": { "name": SERVICE },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": CLASS, "allocateLoadBalancerNodePorts": false,
            "ports": [{ "name": "http", "port": 80, "targetPort": Host::HTTP }],
        },
    }))?;
    Api::namespaced(client.clone(), ROUTER).create(&PostParams::default(), &service).await?;
    Ok(())
}

/// What `--drift-requests-to` runs in the client's network namespace: a line for each request, until the input ends.
#[allow(clippy::print_stdout, reason = "the other process reads it")]
pub(crate) async fn send(server: SocketAddr) -> Result<()> {
    let mut ticks = interval(EVERY);
    // Late ones are left out: a burst would measure the backends, not the way to them.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (ended, mut end) = oneshot::channel();
    // A thread, which nobody has to wait for if the requests fail first.
    std::thread::spawn(move || ended.send(std::io::stdin().read(&mut [0])));
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            _ = ticks.tick() => { open.spawn(ask(server)); }
            Some(became) = open.join_next() => println!("{}", became?),
            _ = &mut end => break,
        }
    }
    while let Some(became) = open.join_next().await {
        println!("{}", became?);
    }
    Ok(())
}

/// What becomes of one request.
async fn ask(server: SocketAddr) -> &'static str {
    let started = Instant::now();
    match timeout(PATIENT, get(server)).await {
        Ok(Ok(())) if started.elapsed() < IN_TIME => ANSWERED,
        Ok(Ok(())) => LATE,
        Ok(Err(_)) | Err(_) => FAILED,
    }
}

async fn get(server: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(format!("GET / HTTP/1.0\r\nHost: {server}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.split(' ').nth(1) == Some("200"), "{answer}");
    Ok(())
}
