//! What happens in the demo, in its order.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use groundcrew_testkit::ovn::lab::{ROUTER, SWITCH};
use groundcrew_testkit::{HeldLogs, eventually};
use ovsdb_client::ops::Function;
use ovsdb_client::{Client, Condition, Config, Op, parse_list};

use crate::requests::{EVERY, Requests, now};
use crate::story::{Story, ms};
use crate::world::{ADDRESSES, PROJECT, SERVICE, SOON, World, timed};

const LOAD_BALANCERS: &str = "--columns=name,vips,protocol list Load_Balancer";
/// One of the load balancers that kube-ovn makes for a VPC, and knows as its own.
const OF_KUBE_OVN: &str = "vpc-proj-tcp-load";
/// How often the watcher looks that kube-dc has for this.
const POLL: Duration = Duration::from_mins(2);

pub(crate) async fn play(story: &mut Story, logs: &HeldLogs, keep: bool) -> Result<()> {
    story.step("A cluster, its network and groundcrew start")?;
    let world = Box::pin(World::start(logs)).await?;
    tell_start(story, &world)?;

    story.step("A tenant creates a Service of type LoadBalancer")?;
    let vip = serve(story, &world).await?;

    story.step("A client outside sends requests, and goes on with it")?;
    let requests = ask(story, &world, vip).await?;

    story.step("The row is deleted, as kube-ovn's garbage collector does whenever kube-ovn restarts")?;
    collect_garbage(story, &world, requests).await?;

    if keep {
        story.step("It is yours: Ctrl-C ends everything and cleans up")?;
        tell_how_to_look_around(story, &world, logs, vip)?;
        return tokio::signal::ctrl_c().await.context("wait for Ctrl-C");
    }

    story.step("The tenant deletes the Service")?;
    take_down(story, &world).await
}

fn tell_start(story: &Story, world: &World) -> Result<()> {
    let started = &world.started;
    story.say(format_args!("etcd and kube-apiserver                 ready after {:>7}", ms(started.control_plane)))?;
    story.say(format_args!("OVN: databases, northd, a hypervisor    ready after {:>7}", ms(started.lab)))?;
    story.say(format_args!("groundcrew ovn-lb                       ready after {:>7}", ms(started.groundcrew)))?;
    story.say("")?;
    story.say("client ---- [ext-public] ---- (proj) ---- [proj-default] ---- pod1      pod2")?;
    story.say(format_args!(
        "{:<30}router      switch              {:<10}{}",
        world.lab.client().address(),
        world.lab.pod(0).address(),
        world.lab.pod(1).address()
    ))?;
    story.say("")?;
    story.say(format_args!("AddressPool public: {ADDRESSES}"))
}

/// Answers where the Service can be reached.
async fn serve(story: &Story, world: &World) -> Result<SocketAddr> {
    world.create_endpoints().await?;
    let created = Instant::now();
    world.create_service().await?;
    let address = world.address().await?;
    story.say(format_args!(
        "{PROJECT}/{SERVICE} has the address {address} {} after its creation",
        ms(created.elapsed())
    ))?;
    story.shell(format_args!("ovn-nbctl {LOAD_BALANCERS}"), &world.nbctl(LOAD_BALANCERS).await?)?;
    // The status says that northd has it; the switches of this machine follow.
    world.lab.wait_hypervisor().await?;
    Ok((address.parse::<std::net::IpAddr>()?, 80).into())
}

async fn ask(story: &Story, world: &World, vip: SocketAddr) -> Result<Requests> {
    let client = world.lab.client();
    let url = format!("http://{}/", vip.ip());
    // The first packet makes the router ask who the client is; that may cost it, and on a busy machine the next one.
    let answer = eventually(&format!("GET {url} from outside"), SOON, async || client.get(&url).await).await?;
    story.say(format_args!("{} gets {url} and reads \"{answer}\"", client.address()))?;
    let mut requests = Requests::start(client, vip)?;
    requests.until_steady(Duration::ZERO).await?;
    story.say(format_args!("from now on it does so every {}; answers so far:", ms(EVERY)))?;
    for (backend, answers) in requests.by_backend() {
        story.say(format_args!("{backend} {answers:>4}"))?;
    }
    Ok(requests)
}

async fn collect_garbage(story: &Story, world: &World, mut requests: Requests) -> Result<()> {
    let name = world.nbctl("--bare --columns=name list Load_Balancer").await?.trim().to_owned();
    let client = Client::open(Config::new(parse_list(&world.lab.northbound().remotes())?), "OVN_Northbound");
    let there = |name: &str| Op::wait("Load_Balancer", [Condition::eq("name", name)]).has("name", name);
    let deadline = || (Instant::now() + SOON).into();
    // Also connects, so that the deletion does not wait for that.
    client.transact(&[there(&name).into()], deadline()).await.context("find the row")?;

    // As kube-ovn does it: what is not named like one of its own goes, all of it in one transaction.
    let unknown = Condition::new("name", Function::Different, OF_KUBE_OVN);
    let collected_at = now()?;
    let deleted = client.transact(&[Op::delete("Load_Balancer", [unknown])], deadline()).await;
    let deleted = deleted.context("delete the rows")?;
    let gone = Instant::now();
    client.transact(&[there(&name).timeout(SOON).into()], deadline()).await.context("wait for the row to be back")?;
    let away = gone.elapsed();
    ensure!(deleted.iter().map(|op| op.count).eq([1]), "OVN deleted {deleted:?}");
    story.say(format_args!("one transaction: delete from Load_Balancer where name != {OF_KUBE_OVN}"))?;
    story.say(format_args!("{name} is gone, and {} later it is back:", ms(away)))?;
    story.shell(format_args!("ovn-nbctl {LOAD_BALANCERS}"), &world.nbctl(LOAD_BALANCERS).await?)?;

    requests.until_steady(now()?).await?;
    let tally = requests.finish(collected_at).await?;
    story.say("")?;
    story.say(format_args!(
        "of {} requests since, {} had no answer; the slowest of the others took {}",
        tally.sent(),
        tally.failed(),
        ms(tally.slowest_answer())
    ))?;
    story.say("")?;
    story.say(format_args!("the outage took              {:>9}", ms(tally.outage()?)))?;
    story.say(format_args!("polling every two minutes    {:>9} at worst (its interval, not measured)", ms(POLL)))
}

async fn take_down(story: &Story, world: &World) -> Result<()> {
    let ((), took) = timed(world.delete_service()).await?;
    story.say(format_args!("{PROJECT}/{SERVICE} is gone after {}, and OVN is empty:", ms(took)))?;
    for list in ["lb-list", &format!("lr-lb-list {ROUTER}"), &format!("ls-lb-list {SWITCH}")] {
        let said = world.nbctl(list).await?;
        story.shell(format_args!("ovn-nbctl {list}"), &said)?;
        ensure!(said.trim().is_empty(), "something was left in OVN");
    }
    Ok(())
}

fn tell_how_to_look_around(story: &Story, world: &World, logs: &HeldLogs, vip: SocketAddr) -> Result<()> {
    let mut curl = Command::new("curl");
    curl.args(["-s", &format!("http://{}/", vip.ip())]);
    let curl = typed(&world.lab.client().command(&curl)?);
    let nbctl = format!("ovn-nbctl --db={}", world.lab.northbound().remotes());
    for (what, command) in [
        ("ask Kubernetes", format!("export KUBECONFIG={}", world.control_plane.kubeconfig_path().display())),
        ("", format!("$(hack/setup which kubectl) --namespace {PROJECT} get services,eips,events")),
        ("ask OVN", format!("{nbctl} {LOAD_BALANCERS}")),
        ("delete the rows again", format!("{nbctl} --all destroy Load_Balancer")),
        ("send a request", curl),
        ("metrics", format!("curl -s http://{}/metrics", world.groundcrew.admin())),
        ("logs", format!("ls {}/*.log {}/*/*.log", logs.path().display(), logs.path().display())),
    ] {
        story.say(format_args!("{what:<22} {command}"))?;
    }
    Ok(())
}

pub(crate) fn typed(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
