//! A second installation in one cluster.

use groundcrew_testkit::controller::get;
use groundcrew_testkit::eventually;

use crate::harness::{Project, SOON};

const RIVAL: &str = "groundcrew_ovn_rival_bool";

#[tokio::test]
async fn a_leader_that_another_one_keeps_from_writing_is_not_ready_and_says_why() {
    let project = Project::new("rival").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    // Each with an election of its own, as with Leases in two namespaces.
    let first = project.controller(&northbound).await;
    project.served("web").await;
    assert!(first.metric(RIVAL).await < 0.5);
    let second = project.controller(&northbound).await;
    eventually("the first is not ready", SOON, async || match get(first.admin, "/readyz").await? {
        (503, why) if why.contains("Stop one of them and restart the other") => Ok(()),
        other => Err(anyhow::anyhow!("{other:?}")),
    })
    .await
    .unwrap();
    assert!(first.metric(RIVAL).await > 0.5);
    assert!(second.metric(RIVAL).await < 0.5);
    first.stop().await;
    project.served("other").await;
    second.until_ready().await;

    // The later one was a mistake: the earlier one goes on once it is restarted.
    let first = project.controller(&northbound).await;
    second.stop().await;
    project.served("third").await;
    first.until_ready().await;
    first.stop().await;
}

#[tokio::test]
async fn one_of_another_class_ends_and_leaves_the_first_alone() {
    let mut project = Project::new("two-classes").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let first = project.controller(&northbound).await;
    project.served("web").await;
    let class = std::mem::replace(&mut project.class, "test.example/other".to_owned());
    let why = project.refused(&northbound.remotes(), &[]).await;
    assert_eq!(why, "task OVN rivals ended");
    project.class = class;
    project.served("later").await;
    first.until_ready().await;
    assert!(first.metric(RIVAL).await < 0.5);
    first.stop().await;
}
