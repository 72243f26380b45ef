//! The simulated API is one to a client that knows only the real one.

use std::net::IpAddr;
use std::process::Command;

use groundcrew_testkit::cloudsigma::{CloudSigma, Nic, PASSWORD, USER, foreign_python};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make e2e-cloudsigma"]
async fn a_well_known_client_of_the_api_works_on_the_simulator_unchanged() {
    let cloud = CloudSigma::start().await.unwrap();
    cloud.account(|account| {
        (1..=25).for_each(|n| account.add_ip(IpAddr::from([198, 51, 100, n])));
        account.add_server("node", Nic::Manual);
    });
    let mut client = Command::new(foreign_python().await.unwrap());
    // Not the configuration of whoever runs the test.
    client.env("CLOUDSIGMA_CONFIG", "/dev/null").args(["-c", include_str!("client.py"), &cloud.url(), USER, PASSWORD]);
    let ended = tokio::task::spawn_blocking(move || client.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(said.contains("all is as it should be"), "{said}\n{}", String::from_utf8_lossy(&ended.stderr));
}
