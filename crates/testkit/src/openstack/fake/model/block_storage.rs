//! Cinder with a memory. What it is told, it has done by the time that it answers.

use serde_json::{Value, json};

use super::{Memory, filters, singular};

type Replied = (u16, Value);

impl Memory {
    /// The answer to a request below `/volume/v3/p1`.
    pub(super) fn cinder(&mut self, method: &str, place: &[&str], query: &str, body: &Value) -> Replied {
        let kinds = ["volumes", "snapshots", "backups"];
        match (method, place) {
            ("GET", [all, "detail"]) if kinds.contains(all) => {
                let wanted: Option<Value> = filters(query)
                    .get("metadata")
                    .and_then(|values| serde_json::from_str(values.first().map_or("", String::as_str)).ok());
                let mut things = self.all(all, "");
                things.retain(|thing| {
                    let wanted = wanted.as_ref().and_then(Value::as_object);
                    wanted.into_iter().flatten().all(|(key, value)| thing["metadata"][key] == *value)
                });
                (200, json!({*all: things}))
            }
            ("POST", [all]) if kinds.contains(all) => {
                let mut made = self.make(all, body);
                let made = made[singular(all)].take();
                let id = made["id"].as_str().unwrap_or_default().to_owned();
                let mut thing = json!({"status": "available", "metadata": {}, "size": 1, "attachments": [],
                    "created_at": "2026-01-01T00:00:00.000000"});
                super::merge(&mut thing, &made);
                thing["status"] = json!("available");
                self.things.entry((*all).into()).or_default().insert(id, thing.clone());
                (202, json!({singular(all): thing}))
            }
            ("GET", [all, id]) if kinds.contains(all) => match self.one(all, id) {
                Ok(found) => (200, found),
                Err(_) => missing(all, id),
            },
            ("DELETE", [all, id]) if kinds.contains(all) => self.discard(all, id),
            _ => refused(404, "itemNotFound", "The resource could not be found."),
        }
    }

    fn discard(&mut self, all: &str, id: &str) -> Replied {
        let Ok(found) = self.one(all, id) else { return missing(all, id) };
        let thing = &found[singular(all)];
        let snapshots = self.all("snapshots", &format!("volume_id={id}"));
        let attached = thing["attachments"].as_array().is_some_and(|servers| !servers.is_empty());
        // What failed to be deleted once, only somebody with more rights can delete.
        let deletable = matches!(thing["status"].as_str(), Some("available" | "error"));
        if all == "volumes" && (attached || !deletable || !snapshots.is_empty()) {
            let message = "Invalid volume: Volume status must be available or error or error_restoring or \
                error_extending or error_managing and must not be migrating, attached, belong to a group, have \
                snapshots or be disassociated from snapshots after volume transfer.";
            return refused(400, "badRequest", message);
        }
        self.things.entry(all.into()).or_default().remove(id);
        (202, Value::Null)
    }
}

fn missing(all: &str, id: &str) -> Replied {
    let kind = singular(all);
    let name = format!("{}{}", kind[..1].to_uppercase(), &kind[1..]);
    refused(404, "itemNotFound", &format!("{name} {id} could not be found."))
}

fn refused(status: u16, kind: &str, message: &str) -> Replied {
    (status, json!({kind: {"code": status, "message": message}}))
}
