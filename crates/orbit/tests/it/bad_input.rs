//! Clouds that are wrong, half or gone: a clear word, and nothing deleted.

use std::time::Duration;

use groundcrew_core::leader::Term;
use groundcrew_core::provider::{ErrorKind, Routes};
use groundcrew_orbit::routegc::findings::Lock;
use groundcrew_orbit::routegc::observe::ObserveError;
use groundcrew_orbit::routegc::rules::Rules;
use groundcrew_testkit::openstack::Method;
use groundcrew_testkit::openstack::fake::{PASSWORD, Reply, catalog};
use openstack_client::{Auth, Credential, Secret};
use serde_json::{Value, json};

use crate::world::{Passes, World, address, own, rules};

/// Nodes n1 to n3 and an orphan that was seen often enough to go.
async fn about_to_collect() -> (World, Passes) {
    about_to_collect_in(World::model().await).await
}

async fn about_to_collect_in(mut world: World) -> (World, Passes) {
    for i in 1..=3 {
        world.join(i).await;
    }
    world.add(&[own(9)]).await;
    let mut passes = world.collect(rules());
    passes.pass(&world.nodes).await.unwrap();
    (world, passes)
}

/// Makes passes, each of which must fail with these words or be locked, and checks that nothing was written.
async fn nothing_goes(world: &World, passes: &mut Passes, words: &str) {
    let before = world.routes().await;
    // Ten minutes lie between two passes.
    for _ in 0..6 {
        match passes.pass(&world.nodes).await {
            Ok(pass) => {
                let said = pass.findings.lock.map(|lock| lock.to_string()).unwrap_or_default();
                assert!(said.contains(words), "{said:?} without {words:?}");
            }
            Err(error) => assert!(error.to_string().contains(words), "{error} without {words:?}"),
        }
    }
    assert_eq!(world.routes().await, before);
    let writes: Vec<_> = world.fake().fake.lines().into_iter().filter(|line| !line.starts_with("GET ")).collect();
    assert_eq!(writes, Vec::<String>::new());
}

fn page(status: u16) -> Reply {
    Reply::text(status, "<html><head><title>Bad Gateway</title></head></html>")
}

#[tokio::test]
async fn a_wrong_password_deletes_nothing() {
    let (world, mut passes) = about_to_collect().await;
    world.fake().fake.refuse(true);
    world.fake().fake.revoke();
    nothing_goes(&world, &mut passes, "keystone refuses").await;
    world.fake().fake.refuse(false);
    let pass = passes.pass(&world.nodes).await.unwrap();
    assert_eq!(pass.plan.steps, [], "every age begins anew");
}

#[tokio::test]
async fn an_application_credential_that_expired_deletes_nothing() {
    let credential = Credential::Id("credential-1".into());
    let auth = Auth::ApplicationCredential { credential, secret: Secret::new(PASSWORD) };
    let (world, mut passes) = about_to_collect_in(World::model_as(auth).await).await;
    world.fake().fake.refuse(true);
    world.fake().fake.revoke();
    nothing_goes(&world, &mut passes, "keystone refuses application credential credential-1").await;
    world.fake().fake.refuse(false);
    let pass = passes.pass(&world.nodes).await.unwrap();
    assert_eq!(pass.plan.steps, [], "every age begins anew");
}

#[tokio::test]
async fn a_locked_server_keeps_the_routes_through_it_and_its_lock() {
    let (mut world, mut passes) = about_to_collect().await;
    world.boot(7).await;
    world.fake().change("servers", "n7", &json!({"locked": true}));
    world.add(&[own(7)]).await;
    let removed = passes.settle(&world.nodes).await.removed;
    assert_eq!(removed.len(), 1, "nobody has the next hop of the other one");
    assert_eq!(world.routes().await, [1, 2, 3, 7].map(own).into());
    let calls = world.fake().fake.lines();
    let orders = calls.iter().filter(|line| line.contains("/servers/") && !line.starts_with("GET "));
    assert_eq!(orders.count(), 0, "{calls:?}");
}

#[tokio::test]
async fn a_catalog_without_neutron_or_nova_deletes_nothing() {
    for missing in ["network", "compute"] {
        let mut world = World::model().await;
        world.join(1).await;
        let mut services = catalog(&world.fake().fake.url());
        services.as_array_mut().unwrap().retain(|service| service["type"] != missing);
        world.fake().fake.catalog(services);
        let mut passes = world.collect(rules());
        nothing_goes(&world, &mut passes, missing).await;
        let Err(ObserveError::Cloud(error)) = passes.pass(&world.nodes).await else { panic!("it passed") };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "and never NotFound");
    }
}

#[tokio::test]
async fn a_region_that_is_not_there_deletes_nothing() {
    let mut world = World::model().await;
    world.join(1).await;
    let url = world.fake().fake.url();
    let mut services = catalog(&url);
    for service in services.as_array_mut().unwrap() {
        service["endpoints"][0]["region_id"] = json!("elsewhere");
        service["endpoints"][0]["region"] = json!("elsewhere");
    }
    world.fake().fake.catalog(services);
    let mut passes = world.collect(rules());
    nothing_goes(&world, &mut passes, "region").await;
}

#[tokio::test]
async fn a_proxy_that_answers_html_deletes_nothing_whatever_its_status() {
    for status in [200, 404, 502] {
        let (world, mut passes) = about_to_collect().await;
        world.fake().fault(move |seen| seen.line.contains("/servers/detail").then(|| page(status)));
        nothing_goes(&world, &mut passes, "proxy").await;
        world.fake().fault(move |seen| seen.line.contains("/v2.0/ports").then(|| page(status)));
        nothing_goes(&world, &mut passes, "proxy").await;
    }
}

#[tokio::test]
async fn a_second_page_that_fails_deletes_nothing() {
    let (world, mut passes) = about_to_collect().await;
    let first = world.fake().ask(&Method::GET, "v2.0/ports", &Value::Null).unwrap();
    let url = world.fake().fake.url();
    world.fake().fault(move |seen| {
        if seen.line.contains("marker=") {
            return Some(Reply::json(
                500,
                &json!({"NeutronError": {"type": "HTTPInternalServerError", "message": "no", "detail": ""}}),
            ));
        }
        seen.line.contains("/v2.0/ports").then(|| {
            let mut body = first.clone();
            body["ports_links"] = json!([{"rel": "next", "href": format!("{url}/v2.0/ports?marker=x")}]);
            Reply::ok(&body)
        })
    });
    nothing_goes(&world, &mut passes, "the list of ports is incomplete").await;
}

#[tokio::test]
async fn a_server_of_a_cell_that_is_down_deletes_nothing() {
    let (world, mut passes) = about_to_collect().await;
    world.fake().boot("lost", "10.180.1.250");
    world.fake().change("servers", "lost", &json!({"status": "UNKNOWN", "addresses": null}));
    nothing_goes(&world, &mut passes, "the list of servers is incomplete").await;
}

#[tokio::test]
async fn empty_lists_with_200_delete_nothing() {
    let (world, mut passes) = about_to_collect().await;
    world.fake().fault(|seen| {
        let empty = |word: &str, key: &str| seen.line.contains(word).then(|| Reply::ok(&json!({key: []})));
        empty("/servers/detail", "servers").or_else(|| empty("/v2.0/ports", "ports"))
    });
    // Without ports, the router is not found either.
    nothing_goes(&world, &mut passes, "router").await;
    let mut passes = named(&world);
    nothing_goes(&world, &mut passes, &Lock::Elsewhere.to_string()).await;
}

fn named(world: &World) -> Passes {
    world.collect_at(&world.router, rules())
}

#[tokio::test]
async fn a_router_that_is_gone_deletes_nothing_and_is_named() {
    let (world, _) = about_to_collect().await;
    let mut passes = world.collect_at("no-such-router", rules());
    let Err(error) = passes.pass(&world.nodes).await else { panic!("it passed") };
    assert!(error.to_string().contains("no-such-router"), "{error}");
}

#[tokio::test]
async fn an_hour_without_an_answer_deletes_nothing_and_then_it_goes_on() {
    let (world, mut passes) = about_to_collect().await;
    world.fake().fault(|_| Some(page(503)));
    nothing_goes(&world, &mut passes, "503").await;
    world.fake().heal();
    assert_eq!(passes.settle(&world.nodes).await.removed.len(), 1);
}

#[tokio::test]
async fn tokens_that_end_in_the_middle_of_a_pass_are_renewed() {
    let (world, mut passes) = about_to_collect().await;
    let fake = world.fake().fake.clone();
    let logins = fake.logins();
    let revoked = std::sync::atomic::AtomicBool::new(false);
    world.fake().fault(move |seen| {
        let first = seen.line.contains("/servers/detail") && !revoked.swap(true, std::sync::atomic::Ordering::Relaxed);
        first.then(|| Reply::json(401, &json!({"error": {"code": 401, "title": "Unauthorized", "message": "expired"}})))
    });
    let applied = passes.pass(&world.nodes).await.unwrap().applied.unwrap();
    assert_eq!((applied.removed.len(), fake.logins()), (1, logins + 1));
}

#[tokio::test]
async fn a_request_to_slow_down_is_obeyed() {
    let (world, mut passes) = about_to_collect_in(World::patient_model().await).await;
    let mut first = true;
    world.fake().fault(move |seen| {
        (seen.line.contains("/v2.0/ports") && std::mem::take(&mut first))
            .then(|| Reply::text(429, "slow down").header("retry-after", "1"))
    });
    assert_eq!(passes.pass(&world.nodes).await.unwrap().applied.unwrap().removed.len(), 1);
}

#[tokio::test]
async fn another_projects_network_keeps_every_route() {
    let (world, mut passes) = about_to_collect().await;
    let networks = world.fake().ask(&Method::GET, "v2.0/networks", &Value::Null).unwrap();
    world.fake().change(
        "networks",
        networks["networks"][0]["id"].as_str().unwrap(),
        &json!({"project_id": "provider"}),
    );
    assert!(passes.settle(&world.nodes).await.removed.is_empty());
    assert!(world.routes().await.contains(&own(9)));
}

#[tokio::test]
async fn a_foreign_route_off_the_routers_subnets_refuses_every_removal_and_is_named() {
    let (world, mut passes) = about_to_collect().await;
    let mut routes: Vec<_> = world
        .routes()
        .await
        .iter()
        .map(|route| json!({"destination": route.destination, "nexthop": route.next_hop}))
        .collect();
    routes.push(json!({"destination": "192.168.0.0/24", "nexthop": "172.16.0.1"}));
    world.fake().change("routers", &world.router, &json!({"routes": routes}));
    let applied = passes.pass(&world.nodes).await.unwrap().applied.unwrap();
    assert!(applied.failures[0].error.to_string().contains("172.16.0.1"), "{:?}", applied.failures);
}

#[tokio::test]
async fn a_neutron_without_single_routes_is_refused_and_with_the_switch_gets_whole_lists() {
    let (world, mut passes) = about_to_collect().await;
    world.fake().without_single_routes();
    let applied = passes.pass(&world.nodes).await.unwrap().applied.unwrap();
    assert!(applied.failures[0].error.to_string().contains("--allow-whole-list-writes"), "{:?}", applied.failures);

    let whole = Rules { whole_lists: true, ..rules() };
    let mut passes = world.collect(whole);
    // The first write finds that a cloud controller manager was quicker.
    let mut first = true;
    world.fake().fault(move |seen| {
        if seen.line.starts_with("PUT ") && std::mem::take(&mut first) {
            return Some(Reply::json(412, &json!({"NeutronError": {
                "type": "RevisionNumberConstraintFailed", "message": "Constrained to 6, but current revision is 7", "detail": ""}})));
        }
        None
    });
    assert_eq!(passes.settle(&world.nodes).await.removed.len(), 1);
    assert_eq!(world.routes().await, (1..=3).map(own).collect());
}

#[tokio::test]
async fn a_pass_over_31_routes_and_nodes_makes_six_calls() {
    let mut world = World::model().await;
    for i in 1..=31 {
        world.join(i).await;
    }
    world.client.session().await.unwrap();
    let before = world.fake().fake.lines().len();
    let pass = world.collect(rules()).pass(&world.nodes).await.unwrap();
    assert_eq!(pass.findings.routers[0].wanted, 31);
    let calls = world.fake().fake.lines().split_off(before);
    assert_eq!(calls.len(), 6, "{calls:#?}");
}

#[tokio::test]
async fn a_match_on_page_2_keeps_its_route() {
    let (world, mut passes) = about_to_collect().await;
    // n9's address is a server's after all, which only the second page shows.
    world.fake().boot("n9", &address(9));
    let (mut first, url) = (world.fake().everything()["servers"].clone(), world.fake().fake.url());
    let last = first.remove("n9").unwrap();
    let (first, last) = (first.into_values().collect::<Vec<_>>(), vec![last]);
    world.fake().fault(move |seen| {
        if seen.line.contains("marker=n3") {
            return Some(Reply::ok(&json!({"servers": last})));
        }
        let next = json!([{"rel": "next", "href": format!("{url}/compute/v2.1/servers/detail?marker=n3")}]);
        let page = || Reply::ok(&json!({"servers": first, "servers_links": next}));
        seen.line.contains("/servers/detail").then(page)
    });
    assert!(passes.settle(&world.nodes).await.removed.is_empty());
    assert!(world.routes().await.contains(&own(9)));
    world.fake().heal();
    world.fake().forget("servers", "n9");
    assert_eq!(passes.settle(&world.nodes).await.removed.len(), 1, "without it, the route goes");
}

#[tokio::test]
async fn a_limit_that_is_told_with_400_or_with_409_is_a_full_router() {
    let mut world = World::model().await;
    world.join(1).await;
    for (status, kind, message) in [
        (400, "RoutesExhausted", "Unable to complete operation for r. The number of routes exceeds the maximum 31."),
        (409, "OverQuota", "Quota exceeded for resources: ['router_route']."),
    ] {
        world.fake().fault(move |seen| {
            let body = json!({"NeutronError": {"type": kind, "message": message, "detail": ""}});
            seen.line.starts_with("PUT ").then(|| Reply::json(status, &body))
        });
        let cloud = world.cloud(Duration::from_secs(5));
        let full = cloud.add_routes(&world.router, &[own(9)], &Term::alone("test")).await.unwrap_err();
        assert_eq!((full.kind(), full.response().reason), (ErrorKind::Quota, "RouterFull"), "{full}");
        assert!(!full.maybe_applied());
    }
}
