//! Clouds that are wrong, half or gone: a clear word, and no server is rebooted or deleted.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use groundcrew_openstack_cloud::OpenStack;
use groundcrew_testkit::controller::metric;
use groundcrew_testkit::eventually;
use groundcrew_testkit::openstack::fake::{Model, PASSWORD, Reply, catalog};
use groundcrew_testkit::openstack::{Method, REGION};
use openstack_client::{Auth, Client, Config, Credential, Domain, Project, Secret, User};
use serde_json::{Value, json};

use crate::{Lab, Running, SOON};

/// A fault, the condition of which one of these passes may come to, and what is done to the model for it.
type Fault = (&'static str, &'static str, fn(&Model));

const UNAVAILABLE: &str = "CloudUnavailable";
const HELD: &str = "RepairsHeld";

fn html(status: u16) -> Reply {
    Reply::text(status, "<html><head><title>Bad Gateway</title></head></html>")
}

fn servers_are(model: &Model, reply: impl Fn() -> Reply + Send + 'static) {
    model.fault(move |seen| seen.line.contains("/servers/detail").then(&reply));
}

fn with_catalog(model: &Model, change: impl Fn(&mut Vec<Value>)) {
    let mut services = catalog(&model.fake.url());
    change(services.as_array_mut().unwrap());
    model.fake.catalog(services);
}

/// The first that the model makes.
const ROUTER: &str = "router-1";

const FAULTS: [Fault; 14] = [
    ("a wrong password", UNAVAILABLE, |model| model.fake.refuse(true)),
    ("a catalog without Nova", UNAVAILABLE, |model| {
        with_catalog(model, |services| services.retain(|service| service["type"] != "compute"));
    }),
    ("a region that is not there", UNAVAILABLE, |model| {
        with_catalog(model, |services| {
            for service in services {
                service["endpoints"][0]["region_id"] = json!("elsewhere");
                service["endpoints"][0]["region"] = json!("elsewhere");
            }
        });
    }),
    ("a proxy that answers HTML with 200", UNAVAILABLE, |model| servers_are(model, || html(200))),
    ("a proxy that answers HTML with 404", UNAVAILABLE, |model| servers_are(model, || html(404))),
    ("a Nova that is down", UNAVAILABLE, |model| servers_are(model, || html(503))),
    ("a cloud that is down", UNAVAILABLE, |model| model.fault(|_| Some(html(503)))),
    ("a cell that is down", HELD, |model| model.lose("c")),
    ("a second page that fails", HELD, |model| {
        let (all, url) = (model.everything()["servers"].clone(), model.fake.url());
        model.fault(move |seen| {
            let next = format!("{url}/compute/v2.1/servers/detail?marker=x");
            let first = json!({"servers": all.values().collect::<Vec<_>>(),
                "servers_links": [{"rel": "next", "href": next}]});
            if seen.line.contains("marker=") {
                return Some(html(500));
            }
            seen.line.contains("/servers/detail").then(|| Reply::ok(&first))
        });
    }),
    ("an empty list with 200", HELD, |model| servers_are(model, || Reply::ok(&json!({"servers": []})))),
    ("a locked server", HELD, |model| model.change("servers", "a", &json!({"locked": true}))),
    ("another project's server", HELD, |model| model.forget("servers", "a")),
    ("a router that Neutron does not show", UNAVAILABLE, |model| model.forget("routers", ROUTER)),
    ("a Neutron that is down", UNAVAILABLE, |model| {
        model.fault(|seen| seen.line.contains("/v2.0/").then(|| html(503)));
    }),
];

fn openstack(model: &Model) -> Arc<OpenStack> {
    let domain = || Domain::Id("default".into());
    openstack_as(
        model,
        Auth::Password {
            user: User::Name("demo".into(), domain()),
            password: Secret::new(PASSWORD),
            project: Project::Name("kluster".into(), domain()),
        },
    )
}

fn openstack_as(model: &Model, auth: Auth) -> Arc<OpenStack> {
    // Little patience with faults that are meant to last.
    let config = Config::new(&model.fake.url(), auth).unwrap().region(REGION);
    let config = config.attempt_timeout(Duration::from_secs(10)).retry_for(Duration::from_secs(1));
    Arc::new(OpenStack::new(Client::new(config).unwrap(), Duration::from_secs(10)))
}

impl Running {
    /// Waits until it has looked so many times, whatever came of it.
    async fn looks(&self, least: f64) {
        eventually("some passes", SOON, async || {
            let passes = async |outcome: &str| {
                metric(self.admin, &format!("groundcrew_flight_passes_total{{outcome=\"{outcome}\"}}")).await
            };
            let passes = passes("ok").await? + passes("failed").await?;
            ensure!(passes >= least, "{passes}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

fn orders(model: &Model) -> Vec<String> {
    model.fake.lines().into_iter().filter(|line| !line.starts_with("GET ")).collect()
}

/// Everything that holds a repair up is off but what the fault is: without one, the same flags have the server rebooted.
#[tokio::test]
async fn bad_clouds_are_told_and_no_server_is_touched() {
    let lab = Lab::new().await;
    for (server, ready) in [("a", false), ("b", true), ("c", true)] {
        lab.node(server, "10.180.0.7", ready).await;
    }
    let flags = ["--nodes", "repair", "--delete-servers", "--steady-for", "0s", "--unready-after", "1s"];
    let flags = [&flags[..], &["--cooldown", "1s", "--router", ROUTER]].concat();
    let model = || async {
        let model = Model::start().await.unwrap();
        let made = model.ask(&Method::POST, "v2.0/routers", &json!({"router": {"name": "router"}})).unwrap();
        assert_eq!(made["router"]["id"], ROUTER);
        for server in ["a", "b", "c"] {
            model.boot(server, "10.180.0.7");
        }
        model
    };
    for (name, condition, strike) in FAULTS {
        let model = model().await;
        strike(&model);
        let running = lab.start_on(openstack(&model), &flags).await;
        running.looks(4.0).await;
        let series = format!("groundcrew_flight_condition_bool{{condition=\"{condition}\"}}");
        running.until_metric(&series, |so| so > 0.5).await;
        running.stop().await;
        assert_eq!(orders(&model), [""; 0], "{name}");
    }
    let expired = model().await;
    expired.fake.refuse(true);
    let credential = Credential::Id("credential-1".into());
    let auth = Auth::ApplicationCredential { credential, secret: Secret::new(PASSWORD) };
    let running = lab.start_on(openstack_as(&expired, auth), &flags).await;
    running.looks(4.0).await;
    // A shutdown waits for the last Events only so long.
    eventually("the end of the credential is told", SOON, async || {
        let told = lab.events("groundcrew-flight", "CloudUnavailable").await?;
        ensure!(told.iter().any(|note| note.contains("refuses application credential credential-1")), "{told:?}");
        Ok(())
    })
    .await
    .unwrap();
    running.stop().await;
    assert_eq!(orders(&expired), [""; 0]);

    let model = model().await;
    let running = lab.start_on(openstack(&model), &flags).await;
    eventually("without a fault the sick server is rebooted", SOON, async || {
        ensure!(orders(&model).iter().any(|order| order.contains("/servers/a/action")), "{:?}", orders(&model));
        Ok(())
    })
    .await
    .unwrap();
    running.stop().await;
    assert!(orders(&model).iter().all(|order| order.contains("/servers/a")), "{:?}", orders(&model));
}
