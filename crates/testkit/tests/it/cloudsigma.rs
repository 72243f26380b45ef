//! The simulated CloudSigma keeps to what is known of the real one.

use std::net::IpAddr;
use std::time::Duration;

use groundcrew_testkit::cloudsigma::{CLIENT_ID, CLIENT_SECRET, CloudSigma, Nic, OWNER, USER};
use groundcrew_testkit::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn ip(n: u8) -> IpAddr {
    [203, 0, 113, n].into()
}

/// A client that hides nothing: status and body.
async fn ask(cloud: &CloudSigma, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    // ops@example.com:not-a-real-password
    let basic = "Basic b3BzQGV4YW1wbGUuY29tOm5vdC1hLXJlYWwtcGFzc3dvcmQ=";
    send(&cloud.url(), &format!("{method} /api/2.0/{path}"), basic, "application/json", &body).await
}

/// The same to any host, as anybody.
async fn send(url: &str, line: &str, authorization: &str, kind: &str, body: &str) -> (u16, Value) {
    let host = url.trim_start_matches("http://").split('/').next().unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nAuthorization: {authorization}\r\n\
         Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or_default())
}

async fn get(cloud: &CloudSigma, path: &str) -> Value {
    let (status, body) = ask(cloud, "GET", path, &Value::Null).await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

#[tokio::test]
async fn a_list_has_twenty_objects_unless_all_are_asked_for() {
    let cloud = CloudSigma::start().await.unwrap();
    cloud.account(|account| (1..=25).for_each(|n| account.add_ip(ip(n))));
    let page = get(&cloud, "ips/").await;
    assert_eq!((page["objects"].as_array().unwrap().len(), &page["meta"]["total_count"]), (20, &json!(25)));
    assert!(page["objects"][0].get("subscription").is_none(), "the short view lacks it: {page}");
    assert_eq!(get(&cloud, "ips/detail/?limit=0").await["objects"].as_array().unwrap().len(), 25);
    assert_eq!(get(&cloud, "ips/?limit=10&offset=20").await["objects"].as_array().unwrap().len(), 5);
    assert_eq!(get(&cloud, "ips/?uuid=203.0.113.3,203.0.113.4").await["meta"]["total_count"], 2);
}

#[tokio::test]
async fn a_running_server_ignores_new_nics_and_takes_a_new_name() {
    let cloud = CloudSigma::start().await.unwrap();
    let uuid = cloud.account(|account| {
        account.add_ip(ip(7));
        account.add_server("node-1", Nic::Dhcp(ip(1)))
    });
    let path = format!("servers/{uuid}/");
    let mut server = get(&cloud, &path).await;
    assert_eq!(server["runtime"]["nics"][0]["ip_v4"]["uuid"], "203.0.113.1");
    server["name"] = "node-one".into();
    server["nics"].as_array_mut().unwrap().push(json!({ "ip_v4_conf": { "conf": "static", "ip": "203.0.113.7" } }));
    let (status, _) = ask(&cloud, "PUT", &path, &server).await;
    assert_eq!(status, 200);
    let after = get(&cloud, &path).await;
    assert_eq!((after["name"].as_str(), after["nics"].as_array().unwrap().len()), (Some("node-one"), 1));

    cloud.account(|account| account.set_status(&uuid, "stopped"));
    ask(&cloud, "PUT", &path, &server).await;
    let after = get(&cloud, &path).await;
    assert_eq!(after["nics"].as_array().unwrap().len(), 2);
    assert_eq!(get(&cloud, "ips/203.0.113.7/").await["server"]["uuid"], uuid);
}

#[tokio::test]
async fn a_nic_is_known_by_its_mac() {
    let cloud = CloudSigma::start().await.unwrap();
    let uuid = cloud.account(|account| {
        let uuid = account.add_server("node-1", Nic::Manual);
        account.set_status(&uuid, "stopped");
        uuid
    });
    let path = format!("servers/{uuid}/");
    let server = get(&cloud, &path).await;
    let mut unknown = server.clone();
    unknown["nics"][0]["mac"] = "22:99:99:99:99:99".into();
    assert_eq!(ask(&cloud, "PUT", &path, &unknown).await.0, 400);
    let mut fewer = server.clone();
    fewer["nics"] = json!([]);
    assert_eq!(ask(&cloud, "PUT", &path, &fewer).await.0, 200);
    assert_eq!(get(&cloud, &path).await["nics"], json!([]));
}

#[tokio::test]
async fn an_address_is_on_one_server_and_takes_meta_alone() {
    let cloud = CloudSigma::start().await.unwrap();
    let uuid = cloud.account(|account| {
        account.add_ip(ip(1));
        account.add_server("node-1", Nic::Static(ip(1)));
        let uuid = account.add_server("node-2", Nic::Manual);
        account.set_status(&uuid, "stopped");
        uuid
    });
    let mut server = get(&cloud, &format!("servers/{uuid}/")).await;
    server["nics"][0]["ip_v4_conf"] = json!({ "conf": "static", "ip": { "uuid": "203.0.113.1" } });
    let (status, error) = ask(&cloud, "PUT", &format!("servers/{uuid}/"), &server).await;
    assert_eq!((status, error[0]["error_type"].as_str()), (400, Some("validation")));

    let body = json!({ "meta": { "a": "b" }, "owner": { "uuid": "x" }, "netmask": 8 });
    assert_eq!(ask(&cloud, "PUT", "ips/203.0.113.1/", &body).await.0, 200);
    let after = get(&cloud, "ips/203.0.113.1/").await;
    assert_eq!(
        (&after["meta"]["a"], &after["owner"]["uuid"], &after["netmask"]),
        (&json!("b"), &json!(OWNER), &json!(24))
    );
    let long = json!({ "meta": { "k".repeat(33): "v" } });
    assert_eq!(ask(&cloud, "PUT", "ips/203.0.113.1/", &long).await.0, 400);
    assert_eq!(ask(&cloud, "DELETE", "ips/203.0.113.1/", &Value::Null).await.0, 405);
}

#[tokio::test]
async fn tags_take_objects_and_are_replaced_whole() {
    let cloud = CloudSigma::start().await.unwrap();
    cloud.account(|account| [1, 2].map(|n| account.add_ip(ip(n))));
    let text = json!({ "objects": [{ "name": "t", "resources": ["203.0.113.1"] }] });
    assert_eq!(ask(&cloud, "POST", "tags/", &text).await.0, 400);
    let objects = json!({ "objects": [{ "name": "t", "resources": [{ "uuid": "203.0.113.1" }] }] });
    let (status, made) = ask(&cloud, "POST", "tags/", &objects).await;
    assert_eq!(status, 201);
    let uuid = made["objects"][0]["uuid"].as_str().unwrap();
    assert_eq!(cloud.account(|account| account.tags_of(ip(1))), ["t"]);
    let other = json!({ "name": "t", "resources": [{ "uuid": "203.0.113.2" }] });
    ask(&cloud, "PUT", &format!("tags/{uuid}/"), &other).await;
    assert_eq!(cloud.account(|account| account.tags_of(ip(1))), [""; 0]);
    assert_eq!(get(&cloud, &format!("tags/{uuid}/ips/")).await["objects"][0]["uuid"], "203.0.113.2");
    assert_eq!(ask(&cloud, "DELETE", &format!("tags/{uuid}/"), &Value::Null).await.0, 204);
}

#[tokio::test]
async fn somebody_elses_address_is_refused_with_a_single_object() {
    let cloud = CloudSigma::start().await.unwrap();
    cloud.account(|account| account.add_shared_ip(ip(1)));
    let (status, error) = ask(&cloud, "PUT", "ips/203.0.113.1/", &json!({ "meta": {} })).await;
    assert_eq!((status, error["error_type"].as_str()), (403, Some("permission")));
}

#[tokio::test]
async fn a_path_without_its_slash_is_not_found() {
    let cloud = CloudSigma::start().await.unwrap();
    assert_eq!(ask(&cloud, "GET", "ips", &Value::Null).await.0, 404);
}

#[tokio::test]
async fn of_two_writes_of_one_object_at_a_time_one_is_refused() {
    let cloud = CloudSigma::start().await.unwrap();
    cloud.account(|account| account.add_ip(ip(1)));
    cloud.write_time(Duration::from_millis(300));
    let write = async |value: &str| ask(&cloud, "PUT", "ips/203.0.113.1/", &json!({ "meta": { "a": value } })).await;
    // On a busy machine the second may come when the first is done.
    let refused = eventually("they meet", Duration::from_mins(1), async || {
        let mut answers: [(u16, Value); 2] = tokio::join!(write("b"), write("c")).into();
        answers.sort_by_key(|(status, _)| *status);
        let [done, refused] = answers;
        assert_eq!(done.0, 200, "{done:?}");
        if refused.0 == 503 { Ok(refused.1) } else { Err(format!("{refused:?}")) }
    })
    .await
    .unwrap();
    assert_eq!(refused[0]["error_type"], "concurrency");
}

#[tokio::test]
async fn an_action_is_accepted_at_once_and_seen_to_begin_before_it_is_done() {
    let cloud = CloudSigma::start().await.unwrap();
    let uuid = cloud.account(|account| account.add_server("node-1", Nic::Manual));
    let (path, stop) = (format!("servers/{uuid}/"), format!("servers/{uuid}/action/?do=stop"));
    assert_eq!(ask(&cloud, "POST", &stop, &json!({})).await.0, 202);
    assert_eq!(get(&cloud, &path).await["status"], "stopping");
    assert_eq!(get(&cloud, &path).await["status"], "stopped");
    let (status, error) = ask(&cloud, "POST", &stop, &json!({})).await;
    assert_eq!((status, error["error_type"].as_str()), (403, Some("permission")), "it is stopped already");
}

/// There is no locking: the last PUT wins, and takes away what came since it was read.
#[tokio::test]
async fn a_put_of_what_was_read_before_a_volume_came_detaches_the_volume() {
    let cloud = CloudSigma::start().await.unwrap();
    let uuid = cloud.account(|account| account.add_server("node-1", Nic::Manual));
    let path = format!("servers/{uuid}/");
    let read = get(&cloud, &path).await;
    cloud.account(|account| {
        let drives = account.servers.get_mut(&uuid).unwrap()["drives"].as_array_mut().unwrap();
        drives.push(json!({ "dev_channel": "0:1", "device": "virtio", "drive": { "uuid": "a-volume" } }));
    });
    assert_eq!(get(&cloud, &path).await["drives"].as_array().unwrap().len(), 2);
    assert_eq!(ask(&cloud, "PUT", &path, &read).await.0, 200);
    assert_eq!(get(&cloud, &path).await["drives"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_token_for_a_user_is_that_users_on_the_direct_host_alone_and_ends() {
    const FORM: &str = "application/x-www-form-urlencoded";
    let cloud = CloudSigma::start().await.unwrap();
    cloud.account(|account| account.add_ip(ip(1)));
    let (plain, direct) = (cloud.url(), cloud.direct_url());
    let bearer = |answer: &Value| format!("Bearer {}", answer["access_token"].as_str().unwrap());
    let keycloak = "POST /auth/realms/cloudsigma/protocol/openid-connect/token";
    let form = format!("grant_type=client_credentials&client_id={CLIENT_ID}&client_secret={CLIENT_SECRET}");
    let (status, account) = send(&plain, keycloak, "", FORM, &form).await;
    assert_eq!((status, account["expires_in"].as_u64()), (200, Some(900)));
    let form = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Auma-ticket&audience=service_provider_api";
    let (_, ticket) = send(&plain, keycloak, &bearer(&account), FORM, form).await;
    let body = json!({ "user_email": USER, "subject_token": account["access_token"] }).to_string();
    let impersonate = "POST /service_provider/api/v1/user/impersonate";
    let (_, user) = send(&direct, impersonate, &bearer(&ticket), "application/json", &body).await;
    let ips = async |url: &str| send(url, "GET /api/2.0/ips/", &bearer(&user), "application/json", "").await;
    assert_eq!(ips(&direct).await.1["meta"]["total_count"], 1);
    let (status, elsewhere) = ips(&plain).await;
    assert_eq!((status, &elsewhere["meta"]["total_count"]), (200, &json!(0)), "without a word it is another's account");
    cloud.revoke_tokens();
    assert_eq!(ips(&direct).await.0, 401);
}
