//! Who we are, and for how long.

use std::time::Duration;

use futures::future::join_all;
use openstack_client::{Auth, Client, Config, Domain, Kind, Project, Secret, User};
use serde_json::json;

use crate::fake::{Cloud, PASSWORD, Reply, catalog};

fn empty(_: &crate::fake::Seen) -> Reply {
    Reply::ok(&json!({"routers": []}))
}

/// Jumps ahead. Before and after it time goes by, because sockets do not wait for a clock that stands still.
async fn later(minutes: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(minutes)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_wrong_password_is_tried_once_however_many_wait_for_it() {
    let cloud = Cloud::start(empty).await;
    let auth = Auth::Password {
        user: User::Name("demo".into(), Domain::Name("Default".into())),
        password: Secret::new("wrong-password"),
        project: Project::Id("p1".into()),
    };
    let client = Client::new(cloud.config_as(auth)).unwrap();
    let answers = join_all((0..20).map(|_| client.network().routers(&[]))).await;
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.status()), (Kind::Unauthorized, Some(401)));
        assert!(error.message().starts_with("keystone refuses user demo: "), "{error}");
        assert!(!format!("{error} {error:?}").contains("wrong-password"));
    }
    assert_eq!(cloud.logins(), 1);
    assert!(cloud.seen().is_empty());
    assert!(!format!("{client:?}").contains("wrong-password"));
}

#[tokio::test]
async fn an_application_credential_works_without_a_scope_and_its_end_is_told() {
    let cloud = Cloud::start(empty).await;
    let client = Client::new(cloud.config_as(Cloud::credential(PASSWORD))).unwrap();
    assert_eq!(client.session().await.unwrap().project_id(), "p1");

    // It expires: Keystone says 401 to it, and the services to its tokens.
    cloud.refuse(true);
    cloud.revoke();
    let error = client.network().routers(&[]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unauthorized);
    assert!(error.message().contains("refuses application credential cafe"), "{error}");
    assert!(error.message().contains("Expired, deleted, or the secret is wrong"), "{error}");
}

#[tokio::test]
async fn a_session_tells_project_and_roles() {
    let cloud = Cloud::start(empty).await;
    let session = cloud.client().session().await.unwrap();
    assert_eq!((session.project_name(), session.user_id()), ("kluster", "u1"));
    assert!(session.roles().contains("member"));
    assert!(!format!("{session:?}").contains("token-number"));
}

#[tokio::test]
async fn a_service_that_is_not_in_the_catalog_is_no_empty_listing() {
    let cloud = Cloud::start(empty).await;
    cloud.catalog(
        json!([{"type": "network", "endpoints": [{"interface": "public", "region_id": "lab", "url": cloud.url()}]}]),
    );
    let client = cloud.client();
    let error = client.block_storage().volumes(&[]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoService);
    assert_eq!(
        error.to_string(),
        "the catalog has no service block-storage or volumev3 or block-store; it has network"
    );
    assert_eq!(
        client.block_storage().delete_volume("v1").await.unwrap_err().kind(),
        Kind::NoService,
        "not gone: unknown"
    );
    assert!(client.network().routers(&[]).await.unwrap().is_complete());
}

#[tokio::test]
async fn a_region_that_is_not_in_the_catalog_is_told_with_those_that_are() {
    let cloud = Cloud::start(empty).await;
    let client = Client::new(cloud.config().region("moon")).unwrap();
    let error = client.network().routers(&[]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoService);
    assert_eq!(error.to_string(), "the catalog has no network in region moon; it has it in lab");
    assert!(cloud.seen().is_empty());
}

#[tokio::test]
async fn a_token_that_is_refused_is_renewed_once_for_all_callers() {
    let cloud = Cloud::start(empty).await;
    let client = cloud.client();
    client.session().await.unwrap();
    cloud.revoke();
    let answers = join_all((0..30).map(|_| client.network().routers(&[]))).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap().is_complete()));
    assert_eq!(cloud.logins(), 2);
}

#[tokio::test]
async fn a_service_that_refuses_every_token_gets_two_tries() {
    let cloud =
        Cloud::start(|_| Reply::json(401, &json!({"error": {"code": 401, "title": "Unauthorized", "message": "no"}})))
            .await;
    let error = cloud.client().network().routers(&[]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unauthorized);
    assert_eq!((cloud.seen().len(), cloud.logins()), (2, 2));
}

#[tokio::test]
async fn a_write_whose_token_was_refused_is_done_with_a_new_one() {
    let cloud = Cloud::start(|_| Reply::text(202, "")).await;
    let client = cloud.client();
    client.session().await.unwrap();
    cloud.revoke();
    client.compute().delete_server("s1").await.unwrap();
    assert_eq!(cloud.lines(), ["DELETE /compute/v2.1/servers/s1"; 2]);
}

#[tokio::test]
async fn a_token_is_renewed_before_its_end_so_that_no_call_fails_for_it() {
    let cloud = Cloud::start(empty).await;
    let client = cloud.client();
    let logins = async || {
        let calls = join_all((0..4).map(|_| client.network().routers(&[]))).await;
        assert!(calls.iter().all(Result::is_ok));
        cloud.logins()
    };
    // A token lasts an hour, and the last five minutes of it are for its renewal.
    for expected in 1..=3 {
        assert_eq!(logins().await, expected);
        later(54).await;
        assert_eq!(logins().await, expected, "renewed far too often");
        later(3).await;
    }
    let tokens: std::collections::BTreeSet<_> =
        cloud.seen().iter().filter_map(|seen| seen.header("x-auth-token").map(str::to_owned)).collect();
    assert_eq!(tokens.len(), 3);
}

#[tokio::test]
async fn while_keystone_is_away_a_token_that_still_works_is_used() {
    let cloud = Cloud::start(empty).await;
    let client = cloud.client();
    client.session().await.unwrap();
    cloud.refuse(true);
    later(57).await;
    assert!(client.network().routers(&[]).await.is_ok());
    assert_eq!(cloud.logins(), 2, "the renewal is tried");
}

#[tokio::test]
async fn a_web_page_in_the_place_of_keystone_is_told() {
    for status in [200, 404] {
        let cloud =
            Cloud::start(move |_| Reply::text(status, "<html><head><title>Dashboard</title></head></html>")).await;
        let config = Config::new(&format!("{}/horizon", cloud.url()), Cloud::credential(PASSWORD)).unwrap();
        let error = Client::new(config).unwrap().session().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Garbled);
        assert!(error.to_string().contains("/horizon/v3/auth/tokens: "), "{error}");
        assert!(error.message().contains("a web page titled \"Dashboard\" instead of an answer"), "{error}");
    }
}

#[tokio::test]
async fn a_catalog_in_an_older_form_is_understood() {
    let cloud = Cloud::start(empty).await;
    let mut old = catalog(&cloud.url());
    old[0]["endpoints"][0].as_object_mut().unwrap().remove("region_id");
    cloud.catalog(old);
    assert!(Client::new(cloud.config().region("lab")).unwrap().network().routers(&[]).await.is_ok());
}
