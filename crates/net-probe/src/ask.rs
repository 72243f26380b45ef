//! Asks other probes whether they are there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use tracing::debug;

/// Which nodes answered.
pub(crate) type Answers = BTreeMap<String, bool>;

pub(crate) struct Asker {
    client: reqwest::Client,
}

impl Asker {
    /// A new connection each time: an old one goes on in the tables of the devices in between when a new one would not. And
    /// no proxy, which would hide what is asked about.
    pub(crate) fn new(timeout: Duration) -> reqwest::Result<Self> {
        let client = reqwest::Client::builder()
            .timeout(timeout)
            .pool_max_idle_per_host(0)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none());
        Ok(Self { client: client.build()? })
    }

    /// All of them at once. A node has answered if it did at each of its addresses.
    pub(crate) async fn ask(&self, peers: &[(&str, &[SocketAddr])]) -> Answers {
        let asked = peers.iter().map(|(node, addresses)| async move {
            let answered = join_all(addresses.iter().map(|address| self.ask_one(*address))).await;
            ((*node).to_owned(), answered.into_iter().all(|answered| answered))
        });
        join_all(asked).await.into_iter().collect()
    }

    async fn ask_one(&self, address: SocketAddr) -> bool {
        match self.client.get(format!("http://{address}/healthz")).send().await {
            Ok(answer) if answer.status().is_success() => true,
            Ok(answer) => {
                debug!(%address, status = %answer.status(), "another probe is not well");
                false
            }
            Err(error) => {
                debug!(%address, %error, "no answer");
                false
            }
        }
    }
}
