//! The client against the services themselves. What the fake answers elsewhere is no more than our idea of them.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use groundcrew_testkit::eventually;
use groundcrew_testkit::openstack::{self as cloud, Lan, Method, PASSWORD, REGION, Service};
use openstack_client::network::{AddressPair, Direction, Ethertype, NewRule, PortUpdate, Route};
use openstack_client::{Auth, Client, Config, Credential, Domain, Kind, Project, Secret, User};
use serde_json::json;

/// What services may take on a busy machine.
const SOON: Duration = Duration::from_mins(3);

fn login(project: &cloud::Project, password: &str) -> Auth {
    Auth::Password {
        user: User::Name(project.name.clone(), Domain::Id("default".into())),
        password: Secret::new(password),
        project: Project::Id(project.id.clone()),
    }
}

async fn client(auth: Auth) -> Client {
    let url = cloud::shared().await.unwrap().auth_url();
    Client::new(Config::new(&url, auth).unwrap().region(REGION)).unwrap()
}

async fn project(prefix: &str) -> (cloud::Project, Client) {
    let project = cloud::shared().await.unwrap().project(prefix).await.unwrap();
    let client = client(login(&project, PASSWORD)).await;
    (project, client)
}

async fn routed(prefix: &str) -> (Client, Lan) {
    let (project, client) = project(prefix).await;
    let lan = project.lan("10.180.0.0/16").await.unwrap();
    (client, lan)
}

fn route(number: u8) -> Route {
    Route { destination: format!("198.19.{number}.0/24"), nexthop: format!("10.180.1.{number}") }
}

#[tokio::test]
async fn keystone_refuses_a_wrong_password_in_words_that_name_the_user() {
    let (project, _) = project("wrong").await;
    let error = client(login(&project, "not-that-one")).await.network().routers(&[]).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (Kind::Unauthorized, Some(401)));
    assert!(error.message().starts_with(&format!("keystone refuses user {}: ", project.name)), "{error}");
}

#[tokio::test]
async fn keystone_gives_no_token_for_an_application_credential_that_was_deleted_and_that_is_told() {
    let (project, by_password) = project("credential").await;
    let session = by_password.session().await.unwrap();
    let credentials = format!("v3/users/{}/application_credentials", session.user_id());
    let asked = json!({"application_credential": {"name": "cluster"}});
    // While others get theirs, Keystone now and then does not find the user's own role for a moment.
    let made = eventually("an application credential is made", SOON, async || {
        project.ask(Service::Identity, Method::POST, &credentials, Some(&asked)).await?.ok()
    });
    let made = made.await.unwrap();
    let (id, secret) = (&made["application_credential"]["id"], &made["application_credential"]["secret"]);
    let id = id.as_str().unwrap();
    let secret = Secret::new(secret.as_str().unwrap());
    let auth = Auth::ApplicationCredential { credential: Credential::Id(id.into()), secret };
    let by_credential = client(auth.clone()).await;
    assert_eq!(by_credential.session().await.unwrap().project_id(), project.id);
    assert!(by_credential.network().routers(&[]).await.unwrap().is_complete());

    let deleted = format!("{credentials}/{id}");
    assert_eq!(project.ask(Service::Identity, Method::DELETE, &deleted, None).await.unwrap().status, 204);
    // Neutron may believe what it remembers of a token; Keystone gives out no other.
    let error = client(auth.clone()).await.session().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unauthorized);
    assert!(error.message().contains(&format!("refuses application credential {id}")), "{error}");
    let error = client(auth).await.network().delete_rule("any").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unauthorized, "not gone: unknown");
}

#[tokio::test]
async fn neutron_says_what_it_can_and_that_a_router_has_room_for_31_routes() {
    let (_, client) = project("extensions").await;
    let extensions = client.network().extensions().await.unwrap();
    assert!(extensions.atomic_routes() && extensions.if_match(), "{extensions:?}");
    assert_eq!(client.network().quota().await.unwrap().get("router_route"), Some(&31));
}

#[tokio::test]
async fn neutron_adds_and_removes_single_routes_however_often_it_is_asked() {
    let (client, lan) = routed("single").await;
    let network = client.network();
    for _ in 0..2 {
        let router = network.add_routes(&lan.router, &[route(1), route(2)]).await.unwrap();
        assert_eq!(BTreeSet::from_iter(router.routes), BTreeSet::from([route(1), route(2)]));
    }
    // The same destination through another next hop is another route.
    let twin = Route { nexthop: "10.180.1.9".into(), ..route(1) };
    assert_eq!(network.add_routes(&lan.router, std::slice::from_ref(&twin)).await.unwrap().routes.len(), 3);
    for _ in 0..2 {
        let router = network.remove_routes(&lan.router, &[route(1)]).await.unwrap();
        assert_eq!(BTreeSet::from_iter(router.routes), BTreeSet::from([twin.clone(), route(2)]));
    }
}

#[tokio::test]
async fn neutron_refuses_a_route_too_many_and_a_next_hop_off_the_link() {
    let (client, lan) = routed("full").await;
    let network = client.network();
    let off = Route { nexthop: "10.99.0.1".into(), ..route(1) };
    let error = network.add_routes(&lan.router, &[off]).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Invalid, Some("InvalidRoutes")));

    network.add_routes(&lan.router, &(1..=31).map(route).collect::<Vec<_>>()).await.unwrap();
    let error = network.add_routes(&lan.router, &[route(32)]).await.unwrap_err();
    assert!(error.is_router_full() && error.kind() == Kind::Quota, "{error}");
    assert!(error.request_id().is_some_and(|id| id.starts_with("req-")), "{error}");
}

#[tokio::test]
async fn racing_writers_of_single_routes_lose_none() {
    let (client, lan) = routed("race").await;
    let adding = (1..=8).map(|number| {
        let (client, lan) = (&client, &lan);
        // A Neutron that is written to from all sides refuses some and says so; whoever keeps routes tries again.
        async move {
            let add = async || client.network().add_routes(&lan.router, &[route(number)]).await;
            eventually(&format!("route {number} is taken"), SOON, add).await
        }
    });
    for added in join_all(adding).await {
        added.unwrap();
    }
    let routes = client.network().router(&lan.router).await.unwrap().routes;
    assert_eq!(BTreeSet::from_iter(routes), (1..=8).map(route).collect());
}

#[tokio::test]
async fn neutron_refuses_a_list_for_a_router_that_changed() {
    let (client, lan) = routed("stale").await;
    let network = client.network();
    let before = network.router(&lan.router).await.unwrap().revision_number;
    network.add_routes(&lan.router, &[route(1)]).await.unwrap();
    let error = network.replace_routes(&lan.router, &[], before).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (Kind::Conflict, Some(412)));
    assert_eq!(network.router(&lan.router).await.unwrap().routes, [route(1)]);
}

#[tokio::test]
async fn neutron_has_a_rule_once_whatever_its_description() {
    let (_, client) = project("rules").await;
    let group = client.network().security_groups(&[("name", "default")]).await.unwrap().items.remove(0);
    let mut rule = NewRule {
        security_group_id: group.id.clone(),
        direction: Direction::Ingress,
        ethertype: Ethertype::IPv4,
        protocol: Some("tcp".into()),
        port_range_min: None,
        port_range_max: None,
        remote_ip_prefix: Some("10.1.0.0/16".into()),
        description: "pods".into(),
    };
    let made = client.network().create_rule(&rule).await.unwrap().unwrap();
    rule.description = "the same in other words".into();
    assert_eq!(client.network().create_rule(&rule).await.unwrap(), None);
    for _ in 0..2 {
        client.network().delete_rule(&made.id).await.unwrap();
    }
    let left = client.network().security_group(&group.id).await.unwrap().rules;
    assert!(left.len() == group.rules.len() && left.iter().all(|rule| rule.id != made.id), "{left:?}");
}

#[tokio::test]
async fn neutron_gives_all_pages_and_a_port_takes_a_change_of_the_revision_that_was_read() {
    let (project, client) = project("ports").await;
    let lan = project.lan("10.180.0.0/16").await.unwrap();
    let ports = vec![json!({"network_id": lan.network}); 7];
    let made = project.ask(Service::Network, Method::POST, "v2.0/ports", Some(&json!({"ports": ports}))).await.unwrap();
    made.ok().unwrap();
    let listing = client.network().ports(&[("limit", "3"), ("device_owner", "")]).await.unwrap();
    assert!(listing.is_complete(), "{:?}", listing.gaps);
    assert_eq!(listing.items.iter().map(|port| &port.id).collect::<BTreeSet<_>>().len(), 7);

    let port = &listing.items[0];
    let bare = PortUpdate { security_groups: Some(vec![]), ..PortUpdate::default() };
    let changed = client.network().update_port(&port.id, &bare, port.revision_number).await.unwrap();
    assert_eq!(changed.security_groups, Some(vec![]));
    // One that changes nothing would not be compared.
    let pairs = vec![AddressPair { ip_address: "198.19.1.0/24".into(), mac_address: None }];
    let wider = PortUpdate { allowed_address_pairs: Some(pairs), ..PortUpdate::default() };
    let error = client.network().update_port(&port.id, &wider, port.revision_number).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
}

#[tokio::test]
async fn what_another_project_has_is_not_found() {
    let (_, lan) = routed("mine").await;
    let (_, other) = project("other").await;
    let error = other.network().router(&lan.router).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::NotFound, Some("RouterNotFound")));
}
