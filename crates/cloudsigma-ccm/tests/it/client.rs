//! The API client against a cloud that misbehaves on request.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_cloudsigma_ccm::client::{Client, Conf, Config, Credentials, Error, Ip, Kind, Meta, Secret};
use groundcrew_testkit::cloudsigma::{
    Account, CLIENT_ID, CLIENT_SECRET, Call, CloudSigma, Effect, Fault, Nic, PASSWORD, USER,
};
use groundcrew_testkit::{Scratch, eventually};
use serde_json::json;

const SOON: Duration = Duration::from_mins(1);

fn ip(n: u8) -> IpAddr {
    [203, 0, 113, n].into()
}

fn password(cloud: &CloudSigma) -> Config {
    Config {
        api: cloud.url().parse().unwrap(),
        credentials: Credentials::Password { user: USER.to_owned(), password: Secret::new(PASSWORD) },
        timeout: Duration::from_secs(30),
        retry_for: Duration::from_mins(1),
    }
}

fn impersonation(cloud: &CloudSigma) -> Config {
    let credentials = Credentials::Impersonation {
        oauth: cloud.oauth_url().parse().unwrap(),
        client_id: CLIENT_ID.to_owned(),
        client_secret: Secret::new(CLIENT_SECRET),
        user_email: USER.to_owned(),
    };
    Config { api: cloud.direct_url().parse().unwrap(), credentials, ..password(cloud) }
}

async fn start() -> (CloudSigma, Client) {
    let cloud = CloudSigma::start().await.unwrap();
    let client = Client::new(password(&cloud)).unwrap();
    (cloud, client)
}

fn mark(value: &str) -> Meta {
    Meta::from([("owner".to_owned(), value.to_owned())])
}

#[tokio::test]
async fn a_list_of_more_than_twenty_is_whole() {
    let (cloud, client) = start().await;
    cloud.account(|account| (1..=45).for_each(|n| account.add_ip(ip(n))));
    let ips = client.ips().await.unwrap();
    assert!(ips.complete);
    assert_eq!(ips.items.len(), 45);
    assert_eq!(client.ip_subscriptions().await.unwrap().items.len(), 45);
}

#[tokio::test]
async fn a_list_that_ends_early_says_so() {
    let (cloud, client) = start().await;
    cloud.account(|account| (1..=5).for_each(|n| account.add_ip(ip(n))));
    cloud.fault(Fault::on("GET", "ips/detail/", Effect::CutList(3)));
    let ips = client.ips().await.unwrap();
    assert_eq!((ips.items.len(), ips.complete), (3, false));
}

#[tokio::test]
async fn a_list_that_names_one_twice_lacks_another() {
    let (cloud, client) = start().await;
    let twice = |last: u8| {
        let objects = [1, last].map(|n| json!({ "uuid": ip(n), "meta": {} }));
        json!({ "meta": { "limit": 0, "offset": 0, "total_count": 2 }, "objects": objects }).to_string()
    };
    cloud.fault(Fault::on("GET", "ips/detail/", Effect::Answer(200, twice(2))).times(1));
    assert!(client.ips().await.unwrap().complete);
    cloud.fault(Fault::on("GET", "ips/detail/", Effect::Answer(200, twice(1))).times(1));
    assert!(!client.ips().await.unwrap().complete);
}

#[tokio::test]
async fn an_object_that_cannot_be_read_makes_the_list_incomplete_and_takes_no_other_with_it() {
    let (cloud, client) = start().await;
    cloud.account(|account| {
        account.add_ip(ip(1));
        account.ips.insert("odd".into(), json!({ "meta": {}, "owner": null }));
    });
    let ips = client.ips().await.unwrap();
    assert_eq!((ips.items.len(), ips.complete), (1, false));
}

#[tokio::test]
async fn a_read_survives_a_service_that_is_down_for_a_moment() {
    let (cloud, client) = start().await;
    cloud.account(|account| account.add_ip(ip(1)));
    cloud.fault(Fault::down("GET", "ips/").times(2));
    cloud.fault(Fault::on("GET", "ips/", Effect::LoseAnswer).times(3));
    cloud.fault(Fault::on("GET", "ips/", Effect::Answer(429, String::new())).times(1));
    assert_eq!(client.ip(ip(1)).await.unwrap().address, ip(1));
}

#[tokio::test]
async fn a_write_without_an_answer_is_not_sent_twice() {
    let (cloud, client) = start().await;
    cloud.account(|account| account.add_ip(ip(1)));
    cloud.fault(Fault::on("PUT", "ips/", Effect::LoseAnswer));
    let lost = client.edit_meta::<Error>(ip(1), |_| Ok(Some(mark("a")))).await.unwrap_err();
    assert_eq!(lost.kind(), Kind::Unavailable);
    assert_eq!(cloud.writes().len(), 1);
    // It had happened, which only reading again shows.
    assert_eq!(client.ip(ip(1)).await.unwrap().meta, mark("a"));
}

/// The mark, and what the address had before.
fn marked(now: &Ip, value: &str) -> Meta {
    now.meta.clone().into_iter().chain([(value.to_owned(), "here".to_owned())]).collect()
}

#[tokio::test]
async fn a_write_that_is_refused_for_another_one_is_built_anew_on_what_that_one_left() {
    let (cloud, client) = start().await;
    cloud.account(|account| account.add_ip(ip(1)));
    // Another writer's, which is done by the time that ours is tried again.
    let theirs = |account: &mut Account| account.ips.get_mut("203.0.113.1").unwrap()["meta"] = json!({ "b": "here" });
    cloud.fault(Fault::on("PUT", "ips/", Effect::Before(Box::new(theirs))).times(1));
    let refused = json!([{ "error_type": "concurrency", "error_message": "being changed", "error_point": null }]);
    cloud.fault(Fault::on("PUT", "ips/", Effect::Answer(503, refused.to_string())).times(1));
    let edited = client.edit_meta::<Error>(ip(1), |now| Ok(Some(marked(now, "a")))).await.unwrap();
    assert_eq!(edited.now.meta.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(cloud.writes().iter().map(|write| write.status).collect::<Vec<_>>(), [503, 200]);
}

#[tokio::test]
async fn a_write_that_meets_another_process_is_tried_again() {
    let (cloud, client) = start().await;
    cloud.account(|account| account.add_ip(ip(1)));
    let other = Client::new(password(&cloud)).unwrap();
    // Long enough that they meet, and short enough that none is given up.
    cloud.write_time(Duration::from_millis(300));
    let refused = |call: &Call| call.status == 503;
    eventually("they meet", SOON, async || {
        let edits = [(&client, "a"), (&other, "b")]
            .map(|(client, letter)| client.edit_meta::<Error>(ip(1), move |now| Ok(Some(marked(now, letter)))));
        for edited in futures::future::join_all(edits).await {
            edited.unwrap();
        }
        if cloud.calls().iter().any(refused) { Ok(()) } else { Err(format!("{:?}", cloud.calls())) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn what_is_right_already_is_not_written() {
    let (cloud, client) = start().await;
    cloud.account(|account| account.add_ip(ip(1)));
    client.edit_meta::<Error>(ip(1), |_| Ok(None)).await.unwrap();
    assert_eq!(cloud.writes(), []);
}

#[tokio::test]
async fn the_answer_of_a_put_is_not_believed() {
    let (cloud, client) = start().await;
    cloud.account(|account| account.add_ip(ip(1)));
    cloud.fault(Fault::on("PUT", "ips/", Effect::Ignore));
    let read = client.edit_meta::<Error>(ip(1), |_| Ok(Some(mark("a")))).await.unwrap();
    assert_eq!(read.now.meta, Meta::new());
}

#[tokio::test]
async fn gone_is_told_from_denied_and_from_a_proxys_page() {
    let (cloud, client) = start().await;
    assert_eq!(client.server("nobody").await.unwrap_err().kind(), Kind::NotFound);
    let page = "<html>404 Not Found</html>".to_owned();
    cloud.fault(Fault::on("GET", "servers/", Effect::Answer(404, page)).times(1));
    assert_eq!(client.server("nobody").await.unwrap_err().kind(), Kind::Garbled);
    let denied = json!({ "error_type": "permission", "error_message": "no" }).to_string();
    cloud.fault(Fault::on("GET", "servers/", Effect::Answer(403, denied)).times(1));
    let error = client.server("nobody").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied);
    assert!(error.to_string().contains("GET /api/2.0/servers/nobody/: 403: no"), "{error}");
    assert!(error.to_string().contains("(request test-request)"), "{error}");
}

#[tokio::test]
async fn a_hanging_service_is_given_up_on() {
    let (cloud, _) = start().await;
    let client = Client::new(Config {
        timeout: Duration::from_millis(200),
        retry_for: Duration::from_millis(300),
        ..password(&cloud)
    });
    cloud.fault(Fault::on("GET", "ips/", Effect::Hang));
    let error = client.unwrap().ips().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("no answer in time"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_tried_once() {
    let (cloud, client) = start().await;
    cloud.accept_password(false);
    assert_eq!(client.ips().await.unwrap_err().kind(), Kind::Unauthorized);
    assert_eq!(cloud.calls().len(), 1);
}

#[tokio::test]
async fn a_server_is_put_back_with_everything_that_it_had() {
    let (cloud, client) = start().await;
    let uuid = cloud.account(|account| {
        let uuid = account.add_server("node-1", Nic::Dhcp(ip(9)));
        account.set_status(&uuid, "stopped");
        uuid
    });
    let before = cloud.snapshot();
    let server = client
        .edit_server::<Error>(&uuid, |now| {
            Ok(Some(now.with_nics(|nics| {
                nics[0]["ip_v4_conf"] = json!({ "conf": "manual", "ip": null });
            })))
        })
        .await
        .unwrap();
    assert_eq!(server.now.nics()[0].conf, Conf::Manual);
    let mut expected = before;
    expected.servers.get_mut(&uuid).unwrap()["nics"][0]["ip_v4_conf"] = json!({ "conf": "manual", "ip": null });
    assert_eq!(cloud.snapshot(), expected, "nothing else changed, unknown fields and drives included");
}

/// A CSI driver attaches a volume while our reading is on its way back, or while this process is stopped.
#[tokio::test]
async fn a_server_that_was_read_long_ago_is_read_again_before_it_is_put_back() {
    let (cloud, _) = start().await;
    let uuid = cloud.account(|account| account.add_server("node-1", Nic::Manual));
    // Half of the time-out is long.
    let client = Client::new(Config { timeout: Duration::from_secs(20), ..password(&cloud) }).unwrap();
    let path = format!("servers/{uuid}/");
    cloud.fault(Fault::on("GET", path.clone(), Effect::Late(Duration::from_secs(11))).times(1));
    let edit = client.edit_server::<Error>(&uuid, |now| Ok(Some(now.with_nics(|_| {}))));
    let attach = async {
        eventually("it was read", SOON, async || if cloud.calls().is_empty() { Err("not yet") } else { Ok(()) })
            .await
            .unwrap();
        cloud.account(|account| {
            let drives = account.servers.get_mut(&uuid).unwrap()["drives"].as_array_mut().unwrap();
            drives.push(json!({ "dev_channel": "0:1", "device": "virtio", "drive": { "uuid": "a-volume" } }));
        });
    };
    let (edited, ()) = tokio::join!(edit, attach);
    assert!(edited.unwrap().now.drives().contains("a-volume"));
    assert_eq!(cloud.writes().len(), 1, "{:?}", cloud.calls());
}

#[tokio::test]
async fn a_cloud_that_is_always_slow_is_not_written_to_and_says_so() {
    let (cloud, _) = start().await;
    let uuid = cloud.account(|account| account.add_server("node-1", Nic::Manual));
    let client = Client::new(Config { timeout: Duration::from_secs(3), ..password(&cloud) }).unwrap();
    cloud.fault(Fault::on("GET", "servers/", Effect::Late(Duration::from_millis(1_600))));
    let slow = client.edit_server::<Error>(&uuid, |now| Ok(Some(now.with_nics(|_| {})))).await.unwrap_err();
    assert!(slow.to_string().contains("read too long ago"), "{slow}");
    assert_eq!(cloud.writes(), []);
}

/// Services that share an address mark it at the same time.
#[tokio::test]
async fn changes_of_one_object_wait_for_each_other_and_none_is_lost() {
    let (cloud, client) = start().await;
    cloud.account(|account| account.add_ip(ip(1)));
    cloud.write_time(Duration::from_millis(30));
    let letters = ["a", "b", "c", "d"];
    let edits = letters.map(|letter| client.edit_meta::<Error>(ip(1), move |now| Ok(Some(marked(now, letter)))));
    for edited in futures::future::join_all(edits).await {
        edited.unwrap();
    }
    assert_eq!(client.ip(ip(1)).await.unwrap().meta.keys().collect::<Vec<_>>(), letters);
    assert!(cloud.calls().iter().all(|call| call.status == 200), "{:?}", cloud.calls());
}

#[tokio::test]
async fn an_impersonated_user_sees_its_own_account() {
    let cloud = CloudSigma::start().await.unwrap();
    cloud.account(|account| account.add_ip(ip(1)));
    let client = Client::new(impersonation(&cloud)).unwrap();
    assert_eq!(client.ips().await.unwrap().items.len(), 1);
    assert_eq!(cloud.token_counts(), [1, 1, 1]);
    assert!(!format!("{client:?}").contains(CLIENT_SECRET), "secrets are not printed");
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_however_many_were_refused() {
    let cloud = CloudSigma::start().await.unwrap();
    cloud.account(|account| account.add_ip(ip(1)));
    let client = Client::new(impersonation(&cloud)).unwrap();
    client.ips().await.unwrap();
    cloud.revoke_tokens();
    let calls = (0..8).map(|_| client.ips());
    for listed in futures::future::join_all(calls).await {
        assert_eq!(listed.unwrap().items.len(), 1);
    }
    assert_eq!(cloud.token_counts(), [2, 2, 2]);
}

#[tokio::test]
async fn tokens_are_renewed_again_and_again() {
    let cloud = CloudSigma::start().await.unwrap();
    cloud.token_life(Duration::from_secs(3));
    let client = Client::new(impersonation(&cloud)).unwrap();
    eventually("the user's token was renewed twice", SOON, async || {
        client.ips().await.map_err(|error| error.to_string())?;
        if cloud.token_counts()[2] >= 3 { Ok(()) } else { Err(format!("{:?}", cloud.token_counts())) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_token_for_nobody_is_an_error_that_names_who_refused() {
    let cloud = CloudSigma::start().await.unwrap();
    let Credentials::Impersonation { oauth, client_id, user_email, .. } = impersonation(&cloud).credentials else {
        unreachable!()
    };
    let wrong = Credentials::Impersonation { oauth, client_id, user_email, client_secret: Secret::new("wrong-one") };
    let client = Client::new(Config { credentials: wrong, ..impersonation(&cloud) }).unwrap();
    let error = client.ips().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unauthorized);
    assert!(error.to_string().contains("openid-connect/token: 401"), "{error}");
    assert!(!error.to_string().contains("wrong-one"), "{error}");
}

#[tokio::test]
async fn a_password_that_was_changed_in_its_file_is_used_without_a_restart() {
    let (cloud, _) = start().await;
    cloud.account(|account| account.add_ip(ip(1)));
    let scratch = Scratch::new("password").unwrap();
    let file = scratch.join("password");
    std::fs::write(&file, "the-old-one\n").unwrap();
    let credentials = Credentials::Password { user: USER.to_owned(), password: Secret::from_file(&file).unwrap() };
    let client = Client::new(Config { credentials, ..password(&cloud) }).unwrap();
    assert_eq!(client.ips().await.unwrap_err().kind(), Kind::Unauthorized);
    assert_eq!(cloud.calls().len(), 1, "what its file still has is not tried again");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    assert_eq!(client.ips().await.unwrap().items.len(), 1);
    let before = cloud.calls().len();
    client.ips().await.unwrap();
    assert_eq!(cloud.calls().len(), before + 1, "it is the one that is tried from then on");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(client.ips().await.unwrap().items.len(), 1, "a file that goes takes nothing away");
    assert!(!format!("{client:?}").contains(PASSWORD), "secrets are not printed");
}

#[tokio::test]
async fn a_client_secret_that_was_changed_in_its_file_is_used_without_a_restart() {
    let cloud = CloudSigma::start().await.unwrap();
    let scratch = Scratch::new("client-secret").unwrap();
    let file = scratch.join("client-secret");
    std::fs::write(&file, "the-old-one\n").unwrap();
    let Credentials::Impersonation { oauth, client_id, user_email, .. } = impersonation(&cloud).credentials else {
        unreachable!()
    };
    let client_secret = Secret::from_file(&file).unwrap();
    let credentials = Credentials::Impersonation { oauth, client_id, user_email, client_secret };
    let client = Client::new(Config { credentials, ..impersonation(&cloud) }).unwrap();
    assert_eq!(client.ips().await.unwrap_err().kind(), Kind::Unauthorized);
    std::fs::write(&file, format!("{CLIENT_SECRET}\n")).unwrap();
    assert!(client.ips().await.unwrap().complete);
}

#[tokio::test]
async fn a_stopped_server_is_seen_to_stop_before_it_has() {
    let (cloud, client) = start().await;
    let uuid = Arc::new(cloud.account(|account| account.add_server("node-1", Nic::Manual)));
    client.stop_server(&uuid).await.unwrap();
    assert_eq!(client.server(&uuid).await.unwrap().status, "stopping");
    assert_eq!(client.server(&uuid).await.unwrap().status, "stopped");
}
