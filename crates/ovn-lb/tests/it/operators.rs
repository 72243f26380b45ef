//! The commands that operators of such clouds know by heart.

use kube::ResourceExt;
use serde_json::json;

use crate::harness::Project;

/// `... | grep word`
fn grep<'a>(said: &'a str, word: &str) -> Vec<&'a str> {
    said.lines().filter(|line| line.contains(word)).collect()
}

#[tokio::test]
async fn the_usual_commands_find_a_services_rows_and_addresses() {
    let project = Project::new("ops").await;
    let northbound = project.northbound().await;
    project.pool(8).await;
    let _controller = project.controller(&northbound).await;
    let namespace = project.namespace.as_str();
    let long = "a-service-with-a-name-of-some-length";
    project.endpoints(long, 8080, &["10.1.0.41"]).await;
    let ports = json!([
        { "name": "http", "port": 80, "protocol": "TCP" },
        { "name": "dns", "port": 53, "protocol": "UDP" },
    ]);
    project.create(long, json!({ "ports": ports })).await;
    let address = project.until_served(long).await;

    // `lb-list` and its sisters cut names at sixteen characters: the namespace is in them if it is no longer than that,
    // the address is always there.
    let all = northbound.nbctl(["lb-list"]).await.unwrap();
    assert!(namespace.len() <= 16 && grep(&all, namespace).len() == 2, "{all}");
    let switch = format!("{namespace}-default");
    for list in [["lr-lb-list", namespace], ["ls-lb-list", &switch]] {
        let attached = northbound.nbctl(list).await.unwrap();
        // A row has a line for each of its addresses and ports.
        assert_eq!(grep(&attached, &format!("{address}:80")).len(), 1, "{attached}");
        assert_eq!(grep(&attached, &format!("{address}:53")).len(), 1, "{attached}");
    }

    // What finds them whatever their length.
    let (by_namespace, by_service) =
        (format!("external_ids:groundcrew-namespace={namespace}"), format!("external_ids:groundcrew-service={long}"));
    let find = ["--bare", "--columns=name", "find", "Load_Balancer", &by_namespace, &by_service];
    let names = northbound.nbctl(find).await.unwrap();
    let names: Vec<_> = names.split_whitespace().collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for protocol in ["tcp", "udp"] {
        let start = format!("{namespace}-{long}-{protocol}-");
        let name = names.iter().find(|name| name.starts_with(&start)).unwrap();
        let one = northbound.nbctl(["lb-list", name]).await.unwrap();
        assert_eq!(grep(&one, &address).len(), 1, "a full name works wherever a name is taken: {one}");
    }

    // `kubectl get eip | grep slb-`
    let eips = project.eip_list().await;
    assert_eq!(eips.iter().filter(|eip| eip.name_any().starts_with("slb-")).count(), 1);
}
