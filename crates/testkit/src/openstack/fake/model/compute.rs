//! Nova with a memory. What it is told, it has done by the time that it answers.

use serde_json::{Value, json};

use super::{Memory, merge};

type Replied = (u16, Value);

impl Memory {
    /// The answer to a request below `/compute/v2.1`.
    pub(super) fn nova(&mut self, method: &str, place: &[&str], body: &Value) -> Replied {
        match (method, place) {
            ("GET", ["servers", "detail"]) => {
                let all: Vec<_> = self.all("servers", "").iter().map(shown).collect();
                (200, json!({"servers": all}))
            }
            ("GET", ["os-server-groups"]) => (200, json!({"server_groups": self.all("server-groups", "")})),
            (_, ["servers", id, rest @ ..]) => {
                let Some(server) = self.things.get_mut("servers").and_then(|all| all.get_mut(*id)) else {
                    return refused(404, "itemNotFound", &format!("Instance {id} could not be found."));
                };
                match (method, rest) {
                    ("GET", []) => (200, json!({"server": shown(server)})),
                    _ if is_lost(server) => refused(500, "computeFault", "Unexpected API Error."),
                    ("DELETE", []) => locked(id, server).unwrap_or_else(|| {
                        self.things.entry("servers".into()).or_default().remove(*id);
                        (204, Value::Null)
                    }),
                    ("POST", ["action"]) => act(id, server, body),
                    ("PUT", ["tags", tag]) => {
                        let tag = super::decoded(tag);
                        let mut tags = server["tags"].as_array().cloned().unwrap_or_default();
                        let there = tags.iter().any(|old| *old == tag);
                        if !there {
                            tags.push(json!(tag));
                            server["tags"] = Value::Array(tags);
                        }
                        (if there { 204 } else { 201 }, Value::Null)
                    }
                    ("POST", ["metadata"]) => {
                        let mut metadata = server["metadata"].take();
                        if metadata.is_null() {
                            metadata = json!({});
                        }
                        merge(&mut metadata, &body["metadata"]);
                        server["metadata"] = metadata.clone();
                        (200, json!({"metadata": metadata}))
                    }
                    _ => refused(404, "itemNotFound", "The resource could not be found."),
                }
            }
            _ => refused(404, "itemNotFound", "The resource could not be found."),
        }
    }
}

fn act(id: &str, server: &mut Value, body: &Value) -> Replied {
    if let Some(refusal) = locked(id, server) {
        return refusal;
    }
    match body["reboot"]["type"].as_str() {
        Some("SOFT") if server["status"] != "ACTIVE" => {
            let state = server["status"].as_str().unwrap_or_default().to_lowercase();
            let message = format!("Cannot 'reboot' instance {id} while it is in vm_state {state}");
            refused(409, "conflictingRequest", &message)
        }
        Some("SOFT" | "HARD") => {
            server["status"] = json!("ACTIVE");
            (202, Value::Null)
        }
        _ => refused(400, "badRequest", "There is no such action."),
    }
}

fn locked(id: &str, server: &Value) -> Option<Replied> {
    (server["locked"] == true).then(|| refused(409, "conflictingRequest", &format!("Instance {id} is locked")))
}

fn is_lost(server: &Value) -> bool {
    server["lost"] == true
}

/// Of a server in a cell that is down, Nova knows no more than that there is one.
fn shown(server: &Value) -> Value {
    if is_lost(server) {
        return json!({"id": server["id"], "tenant_id": server["tenant_id"], "status": "UNKNOWN"});
    }
    server.clone()
}

fn refused(status: u16, kind: &str, message: &str) -> Replied {
    (status, json!({kind: {"code": status, "message": message}}))
}
