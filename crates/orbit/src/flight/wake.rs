//! Nodes that come, go, or change their mind about being ready: a reason to look at once, and nothing more.

use std::collections::BTreeMap;
use std::sync::Arc;

use groundcrew_core::watch::Sink;
use k8s_openapi::api::core::v1;
use tokio::sync::Notify;

use super::nodes::Node;

/// What of a Node is worth a look: its uid, its server, and whether it is ready.
type Mark = (String, Option<String>, bool);

/// Wakes whoever waits for `notify`.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    pub(crate) notify: Arc<Notify>,
    /// Nothing before the first list, which is news: it may be later than the first pass, and have a change in it.
    known: Option<BTreeMap<String, Mark>>,
    /// What a list that is not complete has shown so far.
    listed: BTreeMap<String, Mark>,
}

fn mark(node: v1::Node) -> (String, Mark) {
    let Node { name, uid, server, unready_since, .. } = node.into();
    (name, (uid, server, unready_since.is_none()))
}

impl Sink<v1::Node> for Wake {
    fn apply(&mut self, object: v1::Node) {
        let (name, mark) = mark(object);
        if self.known.get_or_insert_default().insert(name, mark.clone()) != Some(mark) {
            self.notify.notify_one();
        }
    }

    fn delete(&mut self, object: v1::Node) {
        self.known.get_or_insert_default().remove(&mark(object).0);
        self.notify.notify_one();
    }

    fn list_begins(&mut self) {
        self.listed.clear();
    }

    fn listed(&mut self, object: v1::Node) {
        let (name, mark) = mark(object);
        self.listed.insert(name, mark);
    }

    fn list_complete(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        if self.known.as_ref() != Some(&listed) {
            self.notify.notify_one();
        }
        self.known = Some(listed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::{from_value, json};

    use super::*;

    fn node(ready: bool, heartbeat: &str) -> v1::Node {
        let status = if ready { "True" } else { "False" };
        let condition = json!({"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat});
        let meta = json!({"name": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"});
        from_value(json!({"metadata": meta, "status": {"conditions": [condition]}})).unwrap()
    }

    #[test]
    fn a_node_that_changes_wakes_and_its_heartbeat_does_not() {
        let mut wake = Wake::default();
        let notify = wake.notify.clone();
        let woken = || notify.notified().now_or_never().is_some();
        wake.list_begins();
        wake.listed(node(true, "2026-01-01T00:00:00Z"));
        wake.list_complete();
        assert!(woken(), "the first pass may have been before it");
        wake.apply(node(true, "2026-01-01T00:01:00Z"));
        assert!(!woken());
        wake.apply(node(false, "2026-01-01T00:02:00Z"));
        assert!(woken());
        wake.list_begins();
        wake.listed(node(false, "2026-01-01T00:03:00Z"));
        wake.list_complete();
        assert!(!woken(), "a watch that broke has missed nothing");
        wake.delete(node(false, "2026-01-01T00:03:00Z"));
        assert!(woken());
    }
}
