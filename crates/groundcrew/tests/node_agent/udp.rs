//! What the kernel remembers of datagrams.

use anyhow::ensure;
use groundcrew_testkit::eventually;

use crate::lab::{Lab, SOON};

#[tokio::test]
async fn flows_of_an_address_are_forgotten_when_it_comes_and_when_it_goes_and_no_others() {
    let lab = Lab::started(1, &[]).await;
    let node = &lab.wire.nodes[0];
    let other = "198.51.100.99";
    let remember = async |destination: &str| {
        let flow = ["-I", "-p", "udp", "-s", "198.51.100.1", "-d", destination, "--sport", "4000", "--dport", "53"];
        node.run("conntrack", &[&flow[..], &["-t", "600"]].concat()).await.unwrap();
    };
    let address = lab.address.to_string();
    let until_forgotten = async || {
        eventually("the flow is forgotten", SOON, async || {
            let flows = node.run("conntrack", &["-L", "-p", "udp"]).await?;
            ensure!(!flows.contains(&format!("dst={address} ")), "{flows}");
            ensure!(flows.contains(&format!("dst={other} ")), "another's flow went: {flows}");
            Ok(())
        })
        .await
        .unwrap();
    };
    remember(other).await;
    remember(&address).await;
    lab.place(0).await;
    lab.until_held(0).await;
    until_forgotten().await;

    remember(&address).await;
    lab.release().await;
    lab.until_gone(0).await;
    until_forgotten().await;
}
