//! A cloud that never answers: the deadline around a whole look, which no call inside of it has kept.

use std::time::Duration;

use groundcrew_core::testing::MemoryCloud;
use groundcrew_testkit::eventually;
use serde_json::json;

use crate::drift::{serve, until_told};
use crate::harness::{Lab, SOON};

/// A little more than a look may take.
const TOO_LONG: Duration = Duration::from_secs(61);

/// That much time is over at once for everybody in this process.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_service_on_which_the_cloud_hangs_is_told_and_tried_again_and_others_go_on() {
    let lab = Lab::new("hung").await;
    let controller = lab.controller(&[]).await;
    lab.cloud.hang_on(Some(lab.key("stuck")));
    lab.create("stuck", json!({}), json!({})).await;
    lab.until_cloud("it waits for an answer", |cloud| cloud.unanswered() == 1).await;
    lab.create("other", json!({}), json!({})).await;
    lab.until_served("other").await;
    assert_eq!(lab.cloud.unanswered(), 1, "it still waits for the first answer");
    // The look at the other one is over, and no look that takes too long.
    eventually("it is counted", SOON, async || {
        match controller.metric("groundcrew_service_reconciles_total{outcome=\"ok\"}").await {
            looks if looks > 0.5 => Ok(()),
            looks => Err(looks),
        }
    })
    .await
    .unwrap();

    pass(TOO_LONG).await;
    assert_eq!(lab.until_reason("stuck", "ProviderUnavailable").await, "not done within 60 s");
    assert_eq!(until_told(&lab, "stuck", "ProviderUnavailable").await, "not done within 60 s");
    lab.until_cloud("it is tried again", |cloud| cloud.unanswered() == 2).await;
    let failed = controller.metric("groundcrew_service_reconciles_total{outcome=\"unavailable\"}").await;
    assert!((failed - 1.0).abs() < f64::EPSILON, "{failed} were counted");
    lab.create("another", json!({}), json!({})).await;
    lab.until_served("another").await;

    lab.cloud.hang_on(None);
    pass(TOO_LONG).await;
    lab.until_served("stuck").await;
    controller.stop().await;
}

#[tokio::test]
async fn a_repair_on_which_the_cloud_hangs_is_tried_again_and_others_go_on() {
    let mut lab = Lab::new("hung-repair").await;
    lab.cloud = MemoryCloud::sharing_writes();
    let controller = lab.controller(&[]).await;
    let (stuck, other) = (lab.key("stuck"), lab.key("other"));
    serve(&lab, "stuck").await;
    serve(&lab, "other").await;
    lab.cloud.hang_on(Some(stuck.clone()));
    lab.cloud.lose(&stuck, true);
    lab.until_cloud("its repair waits for an answer", |cloud| cloud.unanswered() == 1).await;
    lab.cloud.lose(&other, true);
    lab.until_cloud("the other one is back", |cloud| cloud.load_balancer(&other).is_some()).await;

    pass(TOO_LONG).await;
    lab.until_cloud("it is tried by itself", |cloud| cloud.unanswered() == 2).await;
    lab.cloud.hang_on(None);
    pass(TOO_LONG).await;
    lab.until_cloud("it is back, too", |cloud| cloud.load_balancer(&stuck).is_some()).await;
    until_told(&lab, "stuck", "DriftRepaired").await;
    controller.stop().await;
}
