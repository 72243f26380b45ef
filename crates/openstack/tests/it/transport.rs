//! What stands between us and a service, and what it does to requests.

use std::time::{Duration, Instant};

use groundcrew_testkit::ReservedPort;
use openstack_client::compute::Reboot;
use openstack_client::{Client, Config, Kind};
use serde_json::json;

use crate::fake::{Cloud, PASSWORD, Reply};

const PAGE: &str = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>corporate proxy</body></html>";

/// A client that has its token: the first answer is for its first question.
async fn logged_in(config: Config) -> Client {
    let client = Client::new(config).unwrap();
    client.network().routers(&[]).await.unwrap();
    client
}

#[tokio::test]
async fn a_get_is_repeated_until_the_service_is_back() {
    let mut answers = vec![
        Reply::ok(&json!({"routers": []})),
        Reply::cut("{\"routers\": ["),
        Reply::text(502, PAGE),
        Reply::json(
            500,
            &json!({"NeutronError": {"type": "HTTPInternalServerError", "message": "oops", "detail": ""}}),
        ),
        Reply::text(503, ""),
    ];
    let cloud = Cloud::start(move |_| answers.pop().unwrap()).await;
    assert!(cloud.client().network().routers(&[]).await.unwrap().is_complete());
    assert_eq!(cloud.seen().len(), 5);
}

#[tokio::test]
async fn the_pause_that_a_service_asks_for_is_kept() {
    let mut answers =
        vec![Reply::ok(&json!({"routers": []})), Reply::text(429, "slow down").header("retry-after", "1")];
    let cloud = Cloud::start(move |_| answers.pop().unwrap()).await;
    let begin = Instant::now();
    assert!(cloud.client().network().routers(&[]).await.is_ok());
    assert!(begin.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_pause_longer_than_our_patience_is_told_at_once() {
    let mut answers = vec![Reply::text(429, "").header("retry-after", "3600"), Reply::ok(&json!({"routers": []}))];
    let cloud = Cloud::start(move |_| answers.pop().unwrap()).await;
    let client = logged_in(cloud.config()).await;
    let begin = Instant::now();
    let error = client.network().routers(&[]).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (Kind::Throttled, Some(Duration::from_hours(1))));
    assert!(begin.elapsed() < Duration::from_secs(30));
    assert_eq!(cloud.seen().len(), 2);
}

#[tokio::test]
async fn a_service_that_stays_away_is_given_up_after_the_time_that_was_given() {
    let mut first = Some(Reply::ok(&json!({"routers": []})));
    let away = || Reply::text(503, "").header("x-openstack-request-id", "req-7");
    let cloud = Cloud::start(move |_| first.take().unwrap_or_else(away)).await;
    let client = logged_in(cloud.config().retry_for(Duration::from_secs(15))).await;
    let error = client.network().routers(&[]).await.unwrap_err();
    assert_eq!((error.kind(), error.status(), error.request_id()), (Kind::Unavailable, Some(503), Some("req-7")));
    assert!(
        error.to_string().ends_with("/v2.0/routers: Service Unavailable, without a word (503, request id req-7)"),
        "{error}"
    );
    assert!((3..=9).contains(&cloud.seen().len()), "{:?}", cloud.lines());
}

#[tokio::test]
async fn a_write_is_sent_once_whatever_happens_to_it() {
    // Only silence has to be waited out.
    for (answer, status, patience) in [
        (Reply::text(503, ""), Some(503), 30),
        (Reply::text(504, PAGE), Some(504), 30),
        (Reply::cut("{"), None, 30),
        (Reply::never(), None, 15),
    ] {
        let mut answer = Some(answer);
        let cloud = Cloud::start(move |_| answer.take().unwrap()).await;
        let client = Client::new(cloud.config().attempt_timeout(Duration::from_secs(patience))).unwrap();
        let error = client.compute().reboot("s1", Reboot::Hard).await.unwrap_err();
        assert_eq!((error.kind(), error.status()), (Kind::Unavailable, status));
        assert!(error.maybe_applied() && error.to_string().contains("it may or may not be done"), "{error}");
        assert_eq!(cloud.lines(), ["POST /compute/v2.1/servers/s1/action"]);
    }
}

#[tokio::test]
async fn a_write_that_is_to_wait_is_not_repeated_and_certainly_not_done() {
    let cloud = Cloud::start(|_| Reply::text(429, "").header("retry-after", "1")).await;
    let error = cloud.client().network().delete_floating_ip("f1").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.retry_after(), error.maybe_applied()),
        (Kind::Throttled, Some(Duration::from_secs(1)), false)
    );
    assert_eq!(cloud.seen().len(), 1);
}

#[tokio::test]
async fn a_write_to_nobody_is_certainly_not_done() {
    let cloud = Cloud::start(|_| Reply::text(204, "")).await;
    let nobody = ReservedPort::new().unwrap();
    cloud.catalog(crate::fake::catalog(&format!("http://{}", nobody.address())));
    let error = cloud.client().network().delete_floating_ip("f1").await.unwrap_err();
    assert_eq!((error.kind(), error.maybe_applied()), (Kind::Unavailable, false));
    assert!(error.message().starts_with("cannot connect: "), "{error}");
}

#[tokio::test]
async fn a_hung_service_holds_nobody_for_ever() {
    let cloud = Cloud::start(|_| Reply::never()).await;
    let config = cloud.config().attempt_timeout(Duration::from_millis(400)).retry_for(Duration::from_millis(800));
    let begin = Instant::now();
    let error = Client::new(config).unwrap().compute().servers().await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (Kind::Unavailable, "no answer within 400ms"));
    assert!(!error.maybe_applied(), "a read changes nothing");
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn a_hung_keystone_holds_nobody_for_ever() {
    let (_cloud, listener) = Cloud::bind("http", |_| Reply::never()).await;
    let url = format!("http://{}", listener.local_addr().unwrap());
    let config = Config::new(&url, Cloud::credential(PASSWORD)).unwrap();
    let config = config.attempt_timeout(Duration::from_millis(300)).retry_for(Duration::from_millis(300));
    let error = Client::new(config).unwrap().session().await.unwrap_err();
    assert_eq!(error.message(), "no answer within 300ms");
}

#[tokio::test]
async fn an_answer_that_is_cut_every_time_is_no_listing() {
    let cloud = Cloud::start(|_| Reply::cut("{\"routers\": []")).await;
    let client = Client::new(cloud.config().retry_for(Duration::from_millis(500))).unwrap();
    let error = client.network().routers(&[]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.message().starts_with("the connection was lost: "), "{error}");
}

#[tokio::test]
async fn a_page_of_a_proxy_is_no_listing_and_no_proof() {
    let cloud = Cloud::start(|seen| Reply::text(if seen.line.starts_with("GET") { 200 } else { 404 }, PAGE)).await;
    let client = cloud.client();
    let error = client.network().routers(&[]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Garbled);
    assert!(error.message().contains("a web page titled \"Sign in\" instead of an answer"), "{error}");
    assert_eq!(client.network().router("r1").await.unwrap_err().kind(), Kind::Garbled);
    assert_eq!(client.network().delete_floating_ip("f1").await.unwrap_err().kind(), Kind::Garbled, "not gone: unknown");
}

#[tokio::test]
async fn bytes_that_are_no_text_are_told_and_do_no_harm() {
    let mut answers =
        vec![Reply::text(400, [0xff, 0xfe, b'x']), Reply::text(200, *b"{\"routers\":[{\"id\":\"\xff\"}]}")];
    let cloud = Cloud::start(move |_| answers.pop().unwrap()).await;
    let client = cloud.client();
    assert_eq!(client.network().routers(&[]).await.unwrap_err().kind(), Kind::Garbled);
    assert_eq!(client.network().routers(&[]).await.unwrap_err().kind(), Kind::Invalid);
}

#[tokio::test]
async fn a_redirect_does_not_get_the_token() {
    let thief = Cloud::start(|_| Reply::ok(&json!({"routers": []}))).await;
    let place = format!("{}/v2.0/routers", thief.url());
    let cloud = Cloud::start(move |_| Reply::text(302, "").header("location", place.clone())).await;
    let error = cloud.client().network().routers(&[]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Garbled);
    assert!(error.message().starts_with("redirected to http://127.0.0.1:"), "{error}");
    assert!(thief.seen().is_empty());
}

#[tokio::test]
async fn a_token_that_comes_back_in_an_error_is_not_shown() {
    let cloud = Cloud::start(|seen| {
        let token = seen.header("x-auth-token").unwrap();
        Reply::json(
            400,
            &json!({"NeutronError": {"type": "Debug", "message": format!("you sent {token}"), "detail": ""}}),
        )
    })
    .await;
    let error = cloud.client().network().routers(&[]).await.unwrap_err();
    assert_eq!(error.message(), "you sent [hidden]");
}

#[tokio::test]
async fn a_nova_that_is_too_old_is_told() {
    let cloud = Cloud::start(|_| {
        Reply::json(
            406,
            &json!({"computeFault": {"code": 406, "message": "Version 2.69 is not supported by the API."}}),
        )
    })
    .await;
    let error = cloud.client().compute().servers().await.unwrap_err();
    assert!(error.message().starts_with("the cloud is too old for us, who need version compute 2.69: "), "{error}");
}
