//! The bodies of `routegc`'s tests with servers that are Nova's, and what only Nova can show.

use groundcrew_testkit::openstack::shared_full;

use crate::routes;
use crate::world::{World, own, rules};

async fn world(name: &str) -> World {
    World::on(shared_full().await.unwrap(), name).await
}

macro_rules! with_real_servers {
    ($($body:ident),*) => { $(#[tokio::test] async fn $body() {
        routes::$body(&mut world(stringify!($body)).await).await;
    })* };
}
with_real_servers!(
    an_orphan_goes_and_the_rest_stays,
    a_stale_duplicate_goes_and_its_twin_stays,
    what_has_a_living_next_hop_is_left_alone,
    a_range_that_a_node_had_once_is_taken_from_its_port,
    a_full_router_is_known_by_its_quota,
    the_same_pod_range_in_two_clusters_on_one_router_costs_neither_a_route
);

#[tokio::test]
async fn while_nova_does_not_reach_a_cell_no_route_goes() {
    let mut world = world("cell").await;
    for i in 1..=4 {
        world.join(i).await;
    }
    world.add(&[own(9)]).await;
    let cloud = shared_full().await.unwrap();
    let servers = world.client.compute().servers().await.unwrap();
    assert!(servers.is_complete() && servers.items.len() == 4, "{servers:?}");
    let lost = &servers.items[0].id;
    let mut passes = world.collect(rules());
    cloud.lose(lost).await.unwrap();
    for _ in 0..3 {
        let removed = passes.pass(&world.nodes).await.map(|pass| pass.applied.map(|applied| applied.removed.len()));
        assert!(!matches!(removed, Ok(Some(1..))), "something went");
    }
    assert!(world.routes().await.contains(&own(9)));
    cloud.find(lost).await.unwrap();
    passes.settle(&world.nodes).await;
    assert_eq!(world.routes().await, (1..=4).map(own).collect());
}
