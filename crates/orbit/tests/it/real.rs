//! The same bodies on a real Keystone and Neutron, and what only those can show: writers that race.

use std::collections::BTreeSet;

use futures::future::join_all;
use groundcrew_core::provider::Route;

use crate::routes;
use crate::world::{World, own, rules};

macro_rules! on_real_services {
    ($($body:ident),*) => { $(#[tokio::test] async fn $body() {
        routes::$body(&mut World::real(stringify!($body)).await).await;
    })* };
}
on_real_services!(
    an_orphan_goes_and_the_rest_stays,
    a_stale_duplicate_goes_and_its_twin_stays,
    what_has_a_living_next_hop_is_left_alone,
    a_range_that_a_node_had_once_is_taken_from_its_port,
    a_full_router_is_known_by_its_quota
);

/// Rounds of eight writers; `GROUNDCREW_ROUNDS` is for more.
fn rounds() -> usize {
    std::env::var("GROUNDCREW_ROUNDS").map_or(2, |rounds| rounds.parse().unwrap())
}

#[tokio::test]
async fn eight_writers_that_race_with_us_lose_no_route_and_orphans_go_within_three_passes() {
    let mut world = World::real("race").await;
    for i in 1..=8 {
        world.join(i).await;
    }
    let living: BTreeSet<Route> = (1..=8).map(own).collect();
    for round in 0..rounds() {
        world.add(&[own(101), own(102)]).await;
        let mut passes = world.collect(rules());
        for _ in 0..3 {
            // As a cloud controller manager that loses and finds its routes again.
            let writers = (1..=8).map(|i| {
                let world = &world;
                async move {
                    world.change("remove_extraroutes", &[own(i)]).await;
                    world.add(&[own(i)]).await;
                }
            });
            let (pass, _) = futures::join!(passes.pass(&world.nodes), join_all(writers));
            pass.unwrap();
        }
        assert_eq!(world.routes().await, living, "round {round}");
    }
}
