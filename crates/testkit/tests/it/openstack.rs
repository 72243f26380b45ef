use groundcrew_testkit::openstack::Service::Network;
use groundcrew_testkit::openstack::{Method, shared};
use serde_json::json;

#[tokio::test]
async fn tests_share_a_cloud_and_keep_apart_by_project() {
    let cloud = shared().await.unwrap();
    let (mine, yours) = (cloud.project("apart").await.unwrap(), cloud.project("apart").await.unwrap());
    let lan = mine.lan("10.180.0.0/16").await.unwrap();
    let router = format!("v2.0/routers/{}", lan.router);
    assert_eq!(mine.get(Network, &router).await.unwrap()["router"]["project_id"], mine.id.as_str());
    assert_eq!(yours.ask(Network, Method::GET, &router, None).await.unwrap().status, 404);
}

#[tokio::test]
async fn a_route_is_in_neutron_and_in_ovn_and_the_thirty_second_is_refused() {
    let cloud = shared().await.unwrap();
    let project = cloud.project("routes").await.unwrap();
    let lan = project.lan("10.180.0.0/16").await.unwrap();
    let add = async |numbers: std::ops::Range<u8>| {
        let routes: Vec<_> = numbers
            .map(|n| json!({"destination": format!("198.19.{n}.0/24"), "nexthop": format!("10.180.1.{n}")}))
            .collect();
        let path = format!("v2.0/routers/{}/add_extraroutes", lan.router);
        project.ask(Network, Method::PUT, &path, Some(&json!({"router": {"routes": routes}}))).await.unwrap()
    };
    assert_eq!(add(1..32).await.status, 200);
    let ovn = cloud.northbound().nbctl(["lr-route-list", &format!("neutron-{}", lan.router)]).await.unwrap();
    assert!(ovn.contains("198.19.31.0/24"), "{ovn}");

    let refused = add(32..33).await;
    assert_eq!((refused.status, &refused.body["NeutronError"]["type"]), (409, &json!("OverQuota")));
}
