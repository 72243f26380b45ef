//! The status page, as a browser and as anybody else on the network meets it.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use groundcrew_testkit::cloudsigma::{CloudSigma, PASSWORD, USER};
use groundcrew_testkit::controller::{Controller, get};
use groundcrew_testkit::openstack::fake::{self, Model};
use groundcrew_testkit::{Signal, eventually};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::browser::Browser;
use crate::lab::{Lab, SOON};

/// Where the page is, by the log.
pub(crate) async fn page_of(controller: &Controller) -> SocketAddr {
    eventually("the page is served", SOON, async || {
        let log = controller.process.log();
        let place = log.split("status page at http://").nth(1).and_then(|rest| rest.split('/').next());
        place.context("not yet")?.parse().map_err(anyhow::Error::from)
    })
    .await
    .unwrap()
}

async fn data(page: SocketAddr) -> Result<Value> {
    let (code, body) = get(page, "/data.json").await?;
    ensure!(code == 200, "{code}");
    Ok(serde_json::from_str(&body)?)
}

/// The whole answer to a request as it is written.
async fn raw(page: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(page).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn served(lab: &Lab, name: &str) -> Controller {
    let controller = lab.spawn(name, |command| command.args(["--status-address", "127.0.0.1:0"]));
    lab.until_leads(&controller).await;
    for service in ["web", "api"] {
        lab.endpoint(service, true).await;
        lab.create(service).await;
        lab.until_served(service).await;
    }
    lab.create_with("waiting", &serde_json::json!({ "groundcrew.dev/load-balancer-ips": "203.0.113.9" })).await;
    controller
}

/// Takes a row away behind the controller's back, and waits until the page tells.
async fn drift(lab: &Lab, page: SocketAddr) {
    let row = lab.rows().await.into_iter().find(|row| row.contains("-web-tcp-")).unwrap();
    lab.northbound().nbctl(["lb-del", &row]).await.unwrap();
    eventually("the drift is shown", SOON, async || {
        let data = data(page).await?;
        let web = format!("{}/web", lab.namespace);
        let drift = data["drifts"].as_array().and_then(|all| all.iter().find(|drift| drift["service"] == web.as_str()));
        let drift = drift.ok_or_else(|| anyhow!("{data:#}"))?;
        ensure!(drift["repairedMs"].is_u64() && drift["what"].to_string().contains("row_missing"), "{drift:#}");
        ensure!(data["plans"].as_array().is_some_and(|plans| !plans.is_empty()), "{data:#}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_page_shows_what_the_controller_holds_and_follows_it() {
    let lab = Lab::new("page").await;
    let controller = served(&lab, "shown").await;
    let page = page_of(&controller).await;
    eventually("everything is shown", SOON, async || {
        let data = data(page).await?;
        ensure!(data["controller"] == "ovn-lb" && data["leading"] == true, "{data:#}");
        ensure!(data["connections"][0]["up"] == true, "{data:#}");
        ensure!(data["services"]["total"] == 3 && data["services"]["served"] == 2, "{data:#}");
        let first = &data["services"]["shown"][0];
        ensure!(data["pools"].as_array().is_some_and(|pools| pools.iter().any(|pool| pool["used"] == 2)), "{data:#}");
        ensure!(!first["name"].as_str().unwrap_or_default().is_empty(), "{first:#}");
        let waiting = data["services"]["shown"]
            .as_array()
            .and_then(|all| all.iter().find(|s| s["reason"] == "AddressOutsidePools"));
        ensure!(waiting.is_some(), "{data:#}");
        Ok(())
    })
    .await
    .unwrap();
    drift(&lab, page).await;
}

#[tokio::test]
async fn the_pages_on_clouds_show_how_they_stand_and_what_is_left() {
    let lab = Lab::new("cloudy").await;
    let cloud = CloudSigma::start().await.unwrap();
    cloud.account(|account| (1..=3).for_each(|n| account.add_ip(IpAddr::from([198, 51, 100, n]))));
    let controller = lab.run("account", |command| {
        command.args(["cloudsigma-ccm", "--api-url", &cloud.url(), "--username", USER]);
        // The Services are those of other tests.
        command.args(["--leave-classless", "--status-address", "127.0.0.1:0", "--discovery-interval", "200ms"]);
        command.env("CLOUDSIGMA_PASSWORD", PASSWORD)
    });
    let page = page_of(&controller).await;
    let pool = serde_json::json!([{ "name": "static", "family": "IPv4", "used": 0, "free": 3 }]);
    eventually("the account is shown", SOON, async || {
        let data = data(page).await?;
        ensure!(data["connections"][0]["name"] == "CloudSigma" && data["connections"][0]["up"] == true, "{data:#}");
        ensure!(data["pools"] == pool, "{data:#}");
        Ok(())
    })
    .await
    .unwrap();
    let free = r#"groundcrew_pool_addresses{family="ipv4",pool="static",source="CloudSigma",state="free"}"#;
    controller.until_metric(free, SOON, |count| (count - 3.0).abs() < 0.5).await.unwrap();
    cloud.accept_password(false);
    eventually("it is told that the account cannot be read", SOON, async || {
        let connection = &data(page).await?["connections"][0];
        ensure!(connection["up"] == false && connection["state"].to_string().contains("; read at 20"), "{connection}");
        Ok(())
    })
    .await
    .unwrap();

    let model = Model::start().await.unwrap();
    let controller = lab.run("routes", |command| {
        command.args(["routegc", "--pod-cidr", "10.244.0.0/16", "--interval", "1s", "--status-address", "127.0.0.1:0"]);
        command.env("OS_AUTH_URL", model.fake.url()).env("OS_PASSWORD", fake::PASSWORD);
        command.env("OS_USERNAME", "kluster").env("OS_USER_DOMAIN_NAME", "Default");
        command.env("OS_PROJECT_NAME", "demo").env("OS_PROJECT_DOMAIN_NAME", "Default")
    });
    let page = page_of(&controller).await;
    eventually("the cloud is shown", SOON, async || {
        let connection = &data(page).await?["connections"][0];
        ensure!(connection["name"] == "OpenStack", "{connection}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_page_only_reads_loads_nothing_from_elsewhere_and_can_be_turned_off() {
    let lab = Lab::new("guarded").await;
    let controller = lab.spawn("guarded", |command| command.args(["--status-address", "127.0.0.1:0"]));
    let page = page_of(&controller).await;

    let answer = raw(page, &format!("GET / HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.to_lowercase().contains("content-security-policy: default-src 'none'"), "{answer}");
    for path in ["/", "/page.js", "/page.css"] {
        let (code, body) = get(page, path).await.unwrap();
        assert_eq!(code, 200);
        assert!(!body.contains("http://") && !body.contains("https://") && !body.contains("innerHTML"), "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let answer = raw(page, &format!("{method} / HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    }
    let rebound = raw(page, "GET /data.json HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").await;
    assert!(rebound.starts_with("HTTP/1.1 403"), "{rebound}");

    // Unless told otherwise it is this machine's alone. Another test may have the port.
    let silent = lab.spawn("silent", |command| command);
    eventually("it says where the page is", SOON, async || {
        let log = silent.process.log();
        let told = ["status page at http://127.0.0.1:8081/", "no status page: 127.0.0.1:8081 is taken"];
        ensure!(told.iter().any(|words| log.contains(words)), "{log}");
        Ok(())
    })
    .await
    .unwrap();

    let off = lab.spawn("off", |command| command.args(["--status-address", "off"]));
    eventually("it starts without the page", SOON, async || {
        ensure!(off.process.log().contains("ovn-lb starts"), "not yet");
        // The page comes before it.
        let (code, why) = off.get("/readyz").await?;
        ensure!(code == 200, "{why}");
        Ok(())
    })
    .await
    .unwrap();
    assert!(!off.process.log().contains("status page"), "{}", off.process.log());
}

/// Where pictures go that people look at.
fn pictures() -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_groundcrew")).ancestors().nth(2).unwrap().join("status-page");
    std::fs::create_dir_all(&target).unwrap();
    target
}

async fn browse(arguments: Vec<String>) -> String {
    let dir = groundcrew_testkit::Scratch::new("browser").unwrap();
    let mut command = Command::new("chromium-headless-shell");
    command.args(["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=6000"]);
    command.arg(format!("--user-data-dir={}", dir.path().display())).args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let output = output.unwrap_or_else(|error| panic!("chromium-headless-shell: {error}; run `hack/setup browser`"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
#[ignore = "needs a browser: make browser"]
async fn a_browser_shows_services_pools_and_drift_on_a_desk_and_on_a_phone() {
    let lab = Lab::new("browser").await;
    let controller = served(&lab, "browsed").await;
    let page = page_of(&controller).await;
    drift(&lab, page).await;
    let url = format!("http://{page}/");
    let web = format!("{}/web", lab.namespace);

    let dom = browse(vec!["--dump-dom".into(), url.clone()]).await;
    for word in [web.as_str(), "leading", "AddressOutsidePools", "row_missing", "<progress", "in sync"] {
        assert!(dom.contains(word), "no {word} in {dom}");
    }
    assert!(dom.contains(r#"id="lost" role="alert" hidden"#), "the script could not read its data: {dom}");

    for (name, size, dark) in [("desk", "1000,1100", false), ("phone", "390,1100", false), ("dark", "1000,1100", true)]
    {
        let picture = pictures().join(format!("{name}.png"));
        let mut arguments = vec![format!("--screenshot={}", picture.display()), format!("--window-size={size}")];
        if dark {
            arguments.push("--blink-settings=preferredColorScheme=0".into());
        }
        arguments.push(url.clone());
        browse(arguments).await;
        assert!(std::fs::metadata(&picture).unwrap().len() > 10_000, "{}", picture.display());
    }
}

/// How much wider the page is than its window.
const TOO_WIDE: &str = "Math.max(0, document.documentElement.scrollWidth - innerWidth)";

#[tokio::test]
#[ignore = "needs a browser: make browser"]
async fn a_browser_on_a_phone_need_not_scroll_sideways_and_sees_a_change_without_a_reload() {
    let lab = Lab::new("handheld").await;
    let controller = served(&lab, "handheld").await;
    let page = page_of(&controller).await;
    let mut browser = Browser::open(&format!("http://{page}/"), 360).await.unwrap();
    until_shows(&mut browser, &format!("{}/web", lab.namespace)).await;
    assert!(!shows(&mut browser, "row_missing").await.unwrap());
    assert_eq!(browser.ask(TOO_WIDE).await.unwrap(), 0);
    browser.ask("globalThis.same = 1").await.unwrap();
    drift(&lab, page).await;
    until_shows(&mut browser, "row_missing").await;
    assert_eq!(browser.ask("globalThis.same").await.unwrap(), 1, "the page was loaded anew");
    assert_eq!(browser.ask(TOO_WIDE).await.unwrap(), 0);

    // And it says when nobody answers any more.
    controller.process.end(Signal::SIGKILL).await.unwrap();
    until_shows(&mut browser, "No answer from the controller").await;
}

async fn shows(browser: &mut Browser, words: &str) -> Result<bool> {
    let text = browser.ask("document.body.innerText").await?;
    Ok(text.as_str().is_some_and(|text| text.contains(words)))
}

async fn until_shows(browser: &mut Browser, words: &str) {
    eventually(&format!("the page shows {words:?}"), SOON, async || {
        ensure!(shows(browser, words).await?, "it does not");
        Ok(())
    })
    .await
    .unwrap();
}
