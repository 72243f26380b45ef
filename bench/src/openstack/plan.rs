//! Plans for a large cluster, made in a process that does nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use groundcrew_core::leader::Moment;
use groundcrew_core::provider::{Instances, Ports, RouteLimit, Routes, SecurityGroup};
use groundcrew_orbit::flight::fleet::{Marks, fleet};
use groundcrew_orbit::flight::ladder::{self, View, climb};
use groundcrew_orbit::flight::observe::Observed;
use groundcrew_orbit::flight::plan::plan;
use groundcrew_orbit::flight::push::Signal;
use groundcrew_orbit::flight::routes::Table;
use groundcrew_orbit::flight::settings::{Label, Mode, OwnedBy, Settings};
use groundcrew_orbit::routegc::collector::Collector;
use ipnet::IpNet;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::large::{GROUP, Large, rules};
use crate::process::memory;
use crate::report::{Report, median, millis};

const SERVERS: usize = 5_000;
const ROUNDS: usize = 9;

/// Medians in milliseconds, and MiB.
#[derive(Debug, Serialize, Deserialize)]
struct Took {
    routegc: f64,
    routegc_floor: f64,
    flight: f64,
    flight_floor: f64,
    world: f64,
    peak: f64,
}

pub(super) fn run(report: &mut Report) -> Result<()> {
    let exe = std::env::current_exe()?;
    let mut child = Command::new(exe);
    child
        .args(["--openstack-plan-of", &SERVERS.to_string()])
        // As the image sets them.
        .envs([("MALLOC_ARENA_MAX", "2"), ("MALLOC_TRIM_THRESHOLD_", "131072"), ("MALLOC_MMAP_THRESHOLD_", "131072")]);
    let child = child.output()?;
    ensure!(child.status.success(), "planning: {}", String::from_utf8_lossy(&child.stderr));
    let took: Took = serde_json::from_slice(&child.stdout)?;
    report.below_beside("routegc: a pass, 10 000 routes", SERVERS, "ms", took.routegc, took.routegc_floor, 50.0);
    report.below_beside("flight: a plan, 10 000 routes", SERVERS, "ms", took.flight, took.flight_floor, 50.0);
    report.below("memory of that process, peak", SERVERS, "MiB", took.peak, 64.0);
    report.told("of it the cluster and its cloud", SERVERS, "MiB", took.world);
    Ok(())
}

/// Runs in the child.
#[allow(clippy::print_stdout, reason = "the answer to the parent")]
pub(crate) async fn print(servers: usize) -> Result<()> {
    let large = Arc::new(Large::new(servers));
    let world = memory(std::process::id(), "VmRSS:")?;
    let (routegc, routegc_floor) = collect(&large).await?;
    let (flight, flight_floor) = climb_all(&large)?;
    let peak = memory(std::process::id(), "VmHWM:")?;
    let took = Took { routegc, routegc_floor, flight, flight_floor, world, peak };
    println!("{}", serde_json::to_string(&took)?);
    Ok(())
}

/// A whole pass: the cloud hands its lists over, and everything that is stale is ripe and planned.
async fn collect(large: &Arc<Large>) -> Result<(f64, f64)> {
    let mut collector = Collector::new(large.clone(), vec![large.router.id.clone()], rules());
    let (mut ours, mut floor, mut now) = (Vec::new(), Vec::new(), Moment::now());
    for round in 0..=ROUNDS {
        floor.push(bare_pass(large).await?);
        now = now + rules().min_age;
        let started = Instant::now();
        let pass = collector.pass(&large.nodes, now, None).await?;
        let took = started.elapsed();
        let stale: usize = pass.findings.routers.iter().map(|found| found.stale.len()).sum();
        ensure!(stale == large.nodes.len() && pass.findings.lock.is_none(), "{stale} routes look stale");
        ensure!(pass.findings.pairs.len() == large.nodes.len(), "{} ports", pass.findings.pairs.len());
        // The first sighting plans nothing.
        if round > 0 {
            ensure!(!pass.plan.steps.is_empty(), "nothing is planned");
            ours.push(took);
        }
    }
    Ok((millis(median(&mut ours)), millis(median(&mut floor))))
}

/// The least that any collector has to do: take the same lists, and look each route up once.
async fn bare_pass(large: &Large) -> Result<Duration> {
    let started = Instant::now();
    let (_, ports) = (large.subnets().await?, large.ports(&[]).await?);
    let (table, servers) = (large.router("").await?, large.instances().await?);
    let mut held: HashSet<IpAddr> =
        ports.items.iter().flat_map(|port| &port.addresses).map(|own| own.address).collect();
    held.extend(servers.items.iter().flat_map(|server| &server.addresses));
    let wanted: HashSet<(IpNet, IpAddr)> =
        large.nodes.iter().map(|node| (node.pod_ranges[0], node.addresses[0])).collect();
    let routes = table.routes.iter().filter_map(|route| Some((route.range()?, route.hop()?)));
    let stale = routes.filter(|route| !wanted.contains(route) && !held.contains(&route.1)).count();
    ensure!(stale == large.nodes.len(), "{stale} routes look stale");
    Ok(started.elapsed())
}

fn settings() -> Settings {
    let (hour, mode) = (Duration::from_hours(1), Mode::Repair);
    Settings {
        pod_ranges: rules().pod_ranges,
        security_group: Some(GROUP.into()),
        routers: vec!["router".into()],
        route_limit: 31,
        owned_by: OwnedBy::default(),
        label: Label { tags: BTreeSet::from(["k8s".into()]), metadata: BTreeMap::new() },
        rules: mode,
        groups: mode,
        nodes: mode,
        labels: mode,
        routes: mode,
        nudge: mode,
        probes: None,
        unreachable_after: hour,
        push_every: hour,
        hook: None,
        required_roles: BTreeSet::new(),
        ladder: ladder::Rules {
            unready_after: hour,
            register_within: hour,
            cooldown: hour,
            steady_for: hour,
            max_repairs: usize::MAX,
            max_percent: 100,
            delete: false,
        },
    }
}

fn climb_all(large: &Large) -> Result<(f64, f64)> {
    let settings = settings();
    let observed = Observed {
        instances: large.instances.clone(),
        complete: true,
        group: Some(SecurityGroup { id: GROUP.into(), name: "nodes".into(), rules: Vec::new() }),
        ports: large.ports.clone(),
        marks: Marks::default(),
        tables: vec![Table { router: large.router.clone(), limit: RouteLimit::Unlimited }],
        ..Observed::default()
    };
    let (nobody, nothing) = (BTreeMap::new(), BTreeMap::new());
    let unready: BTreeMap<_, _> =
        large.members.iter().filter_map(|node| Some((node.spell()?, Duration::from_hours(2)))).collect();
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floor.push(bare_plan(large)?);
        let started = Instant::now();
        let fleet = fleet(&large.members, &observed.instances, &observed.marks);
        let view = View {
            fleet: &fleet,
            nodes: &large.members,
            complete: true,
            steady: Duration::from_hours(2),
            unready: &unready,
            nodeless: &nobody,
            taken: &nothing,
            now: Timestamp::now(),
        };
        let planned =
            plan(&large.members, &fleet, &observed, climb(view, &settings.ladder), Signal::default(), &settings);
        ours.push(started.elapsed());
        let count = |action: &str| planned.steps.iter().filter(|step| step.action() == action).count();
        let sick = large.members.len().div_ceil(50);
        ensure!(count("soft_reboot") == sick && count("add_group") == sick, "{} steps", planned.steps.len());
        ensure!(count("label") == large.members.len(), "{} labels", count("label"));
    }
    Ok((millis(median(&mut ours)), millis(median(&mut floor))))
}

/// The least: find the server and the port of each Node, and the routes to its pods.
fn bare_plan(large: &Large) -> Result<Duration> {
    let started = Instant::now();
    let servers: HashMap<_, _> = large.instances.iter().map(|server| (server.id.as_str(), server)).collect();
    let ports: HashMap<_, _> =
        large.ports.iter().flat_map(|port| port.addresses.iter().map(move |own| (own.address, port))).collect();
    let mut hops: HashMap<IpNet, Vec<IpAddr>> = HashMap::new();
    for (range, hop) in large.router.routes.iter().filter_map(|route| Some((route.range()?, route.hop()?))) {
        hops.entry(range).or_default().push(hop);
    }
    for node in &large.members {
        let server = servers.get(node.server.as_deref().unwrap_or_default()).context("a Node without a server")?;
        ports.get(&server.addresses[0]).context("a server without a port")?;
        hops.get(&node.pod_ranges[0]).context("a Node without a route")?;
    }
    Ok(started.elapsed())
}
