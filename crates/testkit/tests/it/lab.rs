use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use groundcrew_testkit::ovn::lab::{Lab, Part, ROUTER, ROUTER_MAC, SWITCH};
use groundcrew_testkit::ovn::{Host, NoAnswer};
use groundcrew_testkit::{Signal, eventually};

const VIP: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 55);
const UNUSED: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 56);
const SOON: Duration = Duration::from_mins(1);

fn url() -> String {
    format!("http://{VIP}/")
}

async fn add_load_balancers(lab: &Lab) {
    let backends = |port: u16| format!("{}:{port},{}:{port}", lab.pod(0).address(), lab.pod(1).address());
    for (name, vip, backends, protocol) in [
        ("web", format!("{VIP}:80"), backends(Host::HTTP), "tcp"),
        ("dns", format!("{VIP}:53"), backends(Host::UDP), "udp"),
        ("web6", "[2001:db8:51::55]:80".into(), "[fd00:10:1::41]:31416,[fd00:10:1::42]:31416".into(), "tcp"),
    ] {
        lab.northbound().nbctl(["lb-add", name, &vip, &backends, protocol]).await.unwrap();
        lab.northbound().nbctl(["lr-lb-add", ROUTER, name, "--", "ls-lb-add", SWITCH, name]).await.unwrap();
    }
    lab.wait_hypervisor().await.unwrap();
    answers(lab.client()).await;
}

/// Asks until the VIP answers. What answers at all answers soon; a single question may be lost where many labs share two
/// cores.
async fn answers(host: &Host) {
    eventually(&format!("the VIP answers {}", host.name()), SOON, async || host.get(&url()).await).await.unwrap();
}

/// Asks until a host inside hears this from a backend's port.
async fn hears(host: &Host, address: IpAddr, wanted: Result<(), NoAnswer>) {
    eventually(&format!("{}: {wanted:?}", host.name()), SOON, async || {
        let heard = host.tcp(address, Host::HTTP).await;
        if heard == wanted { Ok(()) } else { Err(format!("{heard:?}")) }
    })
    .await
    .unwrap();
}

/// Asks until the VIP has stopped to answer in just this way: `hv_cfg` says that the flows are there, and the data path
/// drops what it has cached of the old ones a moment later.
async fn fails_with(host: &Host, wanted: NoAnswer) {
    eventually(&format!("{}: {wanted}", host.name()), SOON, async || {
        host.forget_neighbours().await.unwrap();
        let answer = host.get(&url()).await;
        if answer.as_ref() == Err(&wanted) { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await
    .unwrap();
}

/// Asks until both backends have answered.
async fn reaches_both(mut ask: impl AsyncFnMut() -> Result<String, NoAnswer>) {
    let mut seen = BTreeSet::new();
    eventually("both backends answer", SOON, async || {
        seen.insert(ask().await.map_err(|error| error.to_string())?);
        if seen.len() == 2 { Ok(()) } else { Err(format!("only {seen:?}")) }
    })
    .await
    .unwrap();
    assert_eq!(seen, BTreeSet::from(["pod1".to_owned(), "pod2".to_owned()]));
}

#[tokio::test]
async fn a_vip_answers_from_outside_and_inside() {
    let lab = Lab::start().await.unwrap();
    assert_eq!(lab.client().arp(VIP).await, Err(NoAnswer::Timeout));
    add_load_balancers(&lab).await;
    let who = eventually("somebody says that he has the VIP", SOON, async || lab.client().arp(VIP).await);
    assert_eq!(who.await.unwrap(), ROUTER_MAC);
    assert_eq!(lab.client().arp(UNUSED).await, Err(NoAnswer::Timeout));

    let (client, inside, backend) = (lab.client(), lab.pod(2), lab.pod(0));
    reaches_both(async || client.get(&url()).await).await;
    reaches_both(async || client.get("http://[2001:db8:51::55]/").await).await;
    reaches_both(async || client.udp(VIP.into(), 53).await).await;
    reaches_both(async || inside.get(&url()).await).await;
    reaches_both(async || backend.get(&url()).await).await;
}

#[tokio::test]
async fn a_load_balancer_has_to_be_on_the_router_and_on_the_switch() {
    let lab = Lab::start().await.unwrap();
    add_load_balancers(&lab).await;
    let nb = lab.northbound();

    nb.nbctl(["--wait=hv", "ls-lb-del", SWITCH, "web"]).await.unwrap();
    answers(lab.client()).await;
    fails_with(lab.pod(2), NoAnswer::Timeout).await;

    nb.nbctl(["--wait=hv", "ls-lb-add", SWITCH, "web", "--", "lr-lb-del", ROUTER, "web"]).await.unwrap();
    answers(lab.pod(2)).await;
    // Another load balancer on the router still makes it answer for the address.
    fails_with(lab.client(), NoAnswer::Timeout).await;
    nb.nbctl(["--wait=hv", "lb-del", "dns"]).await.unwrap();
    fails_with(lab.client(), NoAnswer::NoRoute).await;
    answers(lab.pod(2)).await;
}

#[tokio::test]
async fn a_dead_backend_refuses_and_a_stuck_northd_realises_nothing() {
    let mut lab = Lab::start().await.unwrap();
    add_load_balancers(&lab).await;
    lab.set_serving(0, false).await.unwrap();
    let address = IpAddr::from(lab.pod(0).address());
    hears(lab.pod(2), address, Err(NoAnswer::Refused)).await;
    lab.set_serving(0, true).await.unwrap();
    hears(lab.pod(2), address, Ok(())).await;

    lab.signal(Part::Northd, Signal::SIGSTOP).unwrap();
    lab.northbound().nbctl(["lb-del", "web"]).await.unwrap();
    lab.northbound().nbctl(["--timeout=1", "--wait=sb", "sync"]).await.unwrap_err();
    // Committed is not realised.
    answers(lab.client()).await;
    lab.signal(Part::Northd, Signal::SIGCONT).unwrap();
    lab.wait_hypervisor().await.unwrap();
    fails_with(lab.client(), NoAnswer::Timeout).await;
}

#[tokio::test]
async fn the_data_path_outlives_its_controller_and_comes_back_itself() {
    let mut lab = Lab::start().await.unwrap();
    add_load_balancers(&lab).await;
    lab.stop(Part::Controller, Signal::SIGKILL).await.unwrap();
    answers(lab.client()).await;
    lab.restart(Part::Controller).await.unwrap();
    lab.wait_hypervisor().await.unwrap();

    lab.stop(Part::Switch, Signal::SIGKILL).await.unwrap();
    lab.client().get(&url()).await.unwrap_err();
    lab.restart(Part::Switch).await.unwrap();
    answers(lab.client()).await;
}

/// The network namespaces of every process on the machine that we may look at. While its file is open, a namespace that
/// is in no process any more keeps its number: another lab that starts just then would be given it.
fn namespaces() -> BTreeMap<String, File> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let namespace = |process: fs::DirEntry| {
        let file = File::open(process.path().join("ns/net")).ok()?;
        Some((format!("net:[{}]", file.metadata().ok()?.ino()), file))
    };
    processes.filter_map(namespace).collect()
}

#[tokio::test]
async fn no_namespace_is_left_behind() {
    let lab = Lab::start().await.unwrap();
    let inside: Vec<_> = [lab.client(), lab.pod(0), lab.pod(1), lab.pod(2)]
        .map(|host| {
            let mut readlink = std::process::Command::new("readlink");
            readlink.arg("/proc/self/ns/net");
            let output = host.command(&readlink).unwrap().output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
        })
        .into();
    let before = namespaces();
    assert!(inside.iter().all(|netns| before.contains_key(netns)), "{inside:?} in {before:?}");
    drop(lab);
    let after = namespaces();
    assert!(inside.iter().all(|netns| !after.contains_key(netns)), "{inside:?} in {after:?}");
}
