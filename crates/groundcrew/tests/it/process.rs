//! How `groundcrew ovn-lb` behaves as a process.

use groundcrew_testkit::{ReservedPort, Signal, eventually};
use serde_json::Value;

use crate::lab::{Lab, SOON};

/// What it logs while it waits for an API server that is not there, and then is told to go.
async fn log_of_one_that_waits(lab: &Lab, name: &str, format: &[&str]) -> String {
    let nobody = ReservedPort::new().unwrap();
    let waiting = lab.astray(name, nobody.address(), format);
    eventually("it says what it waits for", SOON, async || match waiting.get("/readyz").await? {
        (503, why) if why.contains("what it serves: ") => Ok(()),
        other => Err(anyhow::anyhow!("{other:?}")),
    })
    .await
    .unwrap();
    waiting.process.signal(Signal::SIGTERM).unwrap();
    let ended = waiting.process.wait_exit(SOON).await.unwrap();
    assert!(ended.success(), "told to stop while it waits, it stops: {}", waiting.process.last_words());
    waiting.process.log()
}

#[tokio::test]
async fn told_to_stop_while_it_waits_for_the_api_server_it_does_and_its_log_is_json_or_text() {
    let lab = Lab::new("waiting").await;
    // Not a terminal, as in a pod.
    let log = log_of_one_that_waits(&lab, "json", &[]).await;
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["timestamp", "level", "message"] {
            assert!(line[field].is_string(), "{line}");
        }
    }
    assert!(log.contains("ovn-lb starts"), "{log}");
    let log = log_of_one_that_waits(&lab, "text", &["--log-format", "text"]).await;
    let first = log.lines().next().unwrap();
    assert!(first.contains(" INFO ") && first.contains("ovn-lb starts"), "{first}");
    assert!(!first.contains('\u{1b}'), "colours are for terminals");
}
