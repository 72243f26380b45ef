//! Nodes that fail in three ways, and who claims their address when.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use groundcrew_e2e::cloudsigma::{Options, World};
use groundcrew_testkit::Signal;
use groundcrew_testkit::wire::{Asking, Requesting, now};
use serde_json::json;

use super::{ADDRESS, ADDRESS_V6, served};
use crate::report::{Report, median};
use crate::rig::beside_us;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Speed {
    Default,
    Fast,
}

#[derive(Clone, Copy)]
enum Failure {
    /// Everything on it ends, and its link is down.
    Killed,
    /// Its agent hangs, and goes on when another node has the address.
    Hung,
    /// It does not reach the API server, until another node has the address.
    CutOff,
}

const FAILURES: [Failure; 3] = [Failure::Killed, Failure::Hung, Failure::CutOff];

/// How many claims there were by the old node after the new one's first.
pub(super) async fn run(speed: Speed, rounds: usize, report: &mut Report) -> Result<usize> {
    let flags: &'static [&'static str] = if speed == Speed::Fast { &["--fast-failover"] } else { &[] };
    let (mut world, asking, requesting) =
        served(Options { controller: flags, agents: flags, ..Options::default() }).await?;
    let (mut took, mut late) = (Vec::new(), 0);
    for round in 0..rounds {
        let failure = FAILURES[round % 3];
        let (outage, claims) = fail(&mut world, failure, &asking, &requesting).await?;
        late += claims;
        if matches!(failure, Failure::Killed) {
            took.push(outage);
        }
    }
    let kills = took.len();
    let longest = took.iter().max().copied().unwrap_or_default().as_secs_f64();
    let p50 = median(&mut took).as_secs_f64();
    if speed == Speed::Fast {
        report.below("node killed to first answer, fast", kills, "s", longest, 4.0);
        report.told("the same, p50", kills, "s", p50);
    } else {
        report.below("node killed to first answer", kills, "s", longest, 10.0);
        report.below("the same, p50", kills, "s", p50, 8.5);
    }
    Ok(late)
}

/// Fail-overs of an IPv6 address: how many claims there were by the old node after the new one's first.
pub(super) async fn run_v6(rounds: usize) -> Result<usize> {
    let flags: &'static [&'static str] = &["--fast-failover"];
    let options = Options { proxy: None, controller: flags, agents: flags, ..Options::default() };
    let mut world = World::start(beside_us("groundcrew")?, options).await?;
    world.subscribe(ADDRESS_V6).await?;
    world.create("web", &json!({ "ipFamilies": ["IPv6"] })).await?;
    world.until_served("web").await?;
    let asking = world.wire.ask(ADDRESS_V6).await?;
    let mut late = 0;
    for round in 0..rounds {
        let struck = strike(&mut world, ADDRESS_V6, FAILURES[round % 3], &asking).await?;
        late += late_claims(&world, &asking, &struck);
    }
    Ok(late)
}

struct Struck {
    /// Who had the address, and who has it now.
    old: usize,
    new: usize,
    at: f64,
    /// Answered until then, by a node that was not dead yet.
    dead: f64,
}

/// Lets the holder of an address fail, waits until another node has it, and lets the old one come back.
async fn strike(world: &mut World, address: IpAddr, failure: Failure, asking: &Asking) -> Result<Struck> {
    let old = world.until_held(address, |_| true).await?;
    world.until_answers(asking, old).await?;
    let at = now()?;
    match failure {
        Failure::Killed => world.kill(old).await?,
        Failure::Hung => world.signal_agent(old, Signal::SIGSTOP)?,
        Failure::CutOff => world.nodes[old].way.partition(),
    }
    let dead = now()?;
    let new = world.until_held(address, |node| node != old).await?;
    world.until_answers(asking, new).await?;
    match failure {
        Failure::Killed => world.revive(old).await?,
        Failure::Hung => world.signal_agent(old, Signal::SIGCONT)?,
        Failure::CutOff => world.nodes[old].way.heal(),
    }
    // The next one must not find two of three nodes late.
    world.until_heard(old).await?;
    world.until_not_at(old, address).await?;
    Ok(Struck { old, new, at, dead })
}

/// One fail-over: how long nobody answered, and how many claims came late.
async fn fail(
    world: &mut World,
    failure: Failure,
    asking: &Asking,
    requesting: &Requesting,
) -> Result<(Duration, usize)> {
    let struck = strike(world, ADDRESS, failure, asking).await?;
    world.until_steady(requesting, now()?, 50).await?;
    let requests = requesting.requests();
    let first = requests.iter().find(|request| request.sent > struck.dead && request.answer.is_some());
    let outage = first.context("nobody answered")?.ended - struck.at;
    Ok((Duration::from_secs_f64(outage), late_claims(world, asking, &struck)))
}

fn late_claims(world: &World, asking: &Asking, struck: &Struck) -> usize {
    let answers: Vec<_> = asking.answers().into_iter().filter(|answer| answer.at > struck.at).collect();
    let mac = |node: usize| world.wire.nodes[node].mac();
    let after = answers.iter().skip_while(|answer| answer.mac != mac(struck.new));
    after.filter(|answer| answer.mac == mac(struck.old)).count()
}
