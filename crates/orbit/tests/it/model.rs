//! The same bodies on the model.

use crate::routes;
use crate::world::World;

macro_rules! on_the_model {
    ($($body:ident),*) => { $(#[tokio::test] async fn $body() {
        routes::$body(&mut World::model().await).await;
    })* };
}
on_the_model!(
    an_orphan_goes_and_the_rest_stays,
    a_stale_duplicate_goes_and_its_twin_stays,
    what_has_a_living_next_hop_is_left_alone,
    a_range_that_a_node_had_once_is_taken_from_its_port,
    a_full_router_is_known_by_its_quota,
    the_same_pod_range_in_two_clusters_on_one_router_costs_neither_a_route
);
