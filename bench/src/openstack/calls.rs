//! What one pass asks the cloud. Counted at a model of it, which sees every request.

use anyhow::{Context, Result, ensure};

use super::world::{World, address, own, rules};
use crate::report::Report;

const NODES: u8 = 31;

pub(super) async fn run(report: &mut Report) -> Result<()> {
    let mut world = World::model().await;
    for i in 1..=NODES {
        world.join(i).await;
    }
    world.client.session().await?;
    let mut passes = world.collect(rules());
    let before = world.fake().fake.lines().len();
    let pass = passes.pass(&world.nodes).await?;
    let calls = world.fake().fake.lines().len() - before;
    ensure!(
        pass.findings.routers.iter().any(|found| found.wanted == usize::from(NODES)),
        "a pass that saw something else"
    );
    #[allow(clippy::cast_precision_loss, reason = "a count")]
    report.at_most("calls of a pass", NODES.into(), "", calls as f64, 6.0);

    // One of the routes is an orphan's now.
    world.nodes.retain(|node| node.name != "n31");
    world.fake().forget("servers", "n31");
    let ports = world.fake().everything().remove("ports").unwrap_or_default();
    let port = ports.iter().find(|(_, port)| port["fixed_ips"][0]["ip_address"] == address(NODES));
    world.fake().forget("ports", port.context("no port of n31")?.0);
    passes.pass(&world.nodes).await?;
    let before = world.fake().fake.lines().len();
    let pass = passes.pass(&world.nodes).await?;
    let calls = world.fake().fake.lines().len() - before;
    ensure!(pass.applied.is_some_and(|applied| applied.removed.len() == 1), "the orphan is there");
    ensure!(!world.routes().await.contains(&own(31)), "the orphan is there");
    // What the cloud can do is asked once an hour; then come the write and the look at what became of it.
    #[allow(clippy::cast_precision_loss, reason = "a count")]
    report.at_most("calls of a pass with a removal", NODES.into(), "", calls as f64, 9.0);
    Ok(())
}
