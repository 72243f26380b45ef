//! Octavia.

use openstack_client::Kind;

use super::{Place, gone};

pub(crate) async fn load_balancers_are_found_by_their_whole_tag_and_deleted(place: &impl Place) {
    let own = place.balancer("kube_service_demo_default_web", &["kube_service_demo_default_web", "x"]).await;
    for near in ["kube_service_demo-2_default_web", "kube_service_demo_default_web2", "kube_service_demo"] {
        place.balancer(near, &[near]).await;
    }
    let balancers = place.client().load_balancers();
    let found = balancers.list(&[("tags", "kube_service_demo_default_web")]).await.unwrap();
    assert!(found.is_complete());
    assert_eq!(found.items.iter().map(|balancer| balancer.id.as_str()).collect::<Vec<_>>(), [own.as_str()]);
    let named = balancers.list(&[("name", "kube_service_demo")]).await.unwrap().items;
    assert_eq!(named.iter().map(|balancer| balancer.name.as_str()).collect::<Vec<_>>(), ["kube_service_demo"]);

    balancers.delete_cascade(&own).await.unwrap();
    gone("the load balancer is gone", async || balancers.get(&own).await).await;
    balancers.delete_cascade(&own).await.unwrap();
    let left = balancers.list(&[]).await.unwrap();
    assert!(left.is_complete() && left.items.len() == 3, "{left:?}");
}

pub(crate) async fn a_load_balancer_that_is_pending_refuses_and_stays(place: &impl Place) {
    let stuck = place.stuck_balancer("kube_service_demo_default_web").await;
    let balancers = place.client().load_balancers();
    assert!(balancers.get(&stuck).await.unwrap().is_pending());
    let error = balancers.delete_cascade(&stuck).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (Kind::Conflict, Some(409)), "{error}");
    let error = balancers.replace_tags(&stuck, &["mine".into()]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    assert_eq!(balancers.get(&stuck).await.unwrap().tags, [""; 0]);
}
