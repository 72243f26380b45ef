//! Octavia with a memory. What it is told, it has done by the time that it answers.

use serde_json::{Value, json};

use super::{Memory, filters, merge};

type Replied = (u16, Value);

/// The provider whose load balancers stay as they are asked for.
const STUCK: &str = "noop_driver";

impl Memory {
    /// The answer to a request below `/lb/v2/lbaas`.
    pub(super) fn octavia(&mut self, method: &str, place: &[&str], query: &str, body: &Value) -> Replied {
        match (method, place) {
            ("GET", ["loadbalancers"]) => {
                let wanted = filters(query);
                let mut found = self.all("loadbalancers", "");
                found.retain(|balancer| {
                    wanted.iter().all(|(key, values)| match key.as_str() {
                        "tags" => values.iter().all(|tag| has_tag(balancer, tag)),
                        key => balancer[key].as_str().is_some_and(|value| values.iter().any(|wanted| wanted == value)),
                    })
                });
                (200, json!({"loadbalancers": found}))
            }
            ("POST", ["loadbalancers"]) => {
                let id = self.make("loadbalancers", body)["loadbalancer"]["id"].clone();
                let balancer = self.balancer(id.as_str().unwrap_or_default());
                let stuck = body["loadbalancer"]["provider"] == STUCK;
                let status = if stuck { "PENDING_CREATE" } else { "ACTIVE" };
                let Some(balancer) = balancer else { return refused(500, "it was not made") };
                let port = format!("vip-{}", id.as_str().unwrap_or_default());
                let fields = json!({"provisioning_status": status, "operating_status": "ONLINE", "vip_port_id": port});
                merge(balancer, &fields);
                (201, json!({"loadbalancer": balancer}))
            }
            (_, ["loadbalancers", id]) => {
                let Some(balancer) = self.balancer(id) else {
                    return refused(404, &format!("Load Balancer {id} not found."));
                };
                let status = balancer["provisioning_status"].as_str().unwrap_or_default();
                match method {
                    "GET" => (200, json!({"loadbalancer": balancer})),
                    _ if status.starts_with("PENDING_") => {
                        refused(409, &format!("Invalid state {status} of loadbalancer resource {id}"))
                    }
                    "PUT" => {
                        merge(balancer, &body["loadbalancer"]);
                        (200, json!({"loadbalancer": balancer}))
                    }
                    _ => {
                        // With it goes the port of its address, and what led there leads nowhere.
                        let port = balancer["vip_port_id"].clone();
                        self.things.entry("loadbalancers".into()).or_default().remove(*id);
                        for address in self.things.entry("floatingips".into()).or_default().values_mut() {
                            if address["port_id"] == port {
                                address["port_id"] = Value::Null;
                            }
                        }
                        (204, Value::Null)
                    }
                }
            }
            _ => refused(404, "The resource could not be found."),
        }
    }

    fn balancer(&mut self, id: &str) -> Option<&mut Value> {
        self.things.get_mut("loadbalancers")?.get_mut(id)
    }
}

fn has_tag(balancer: &Value, tag: &str) -> bool {
    balancer["tags"].as_array().is_some_and(|tags| tags.iter().any(|there| there == tag))
}

fn refused(status: u16, message: &str) -> Replied {
    (status, json!({"faultcode": "Client", "faultstring": message, "debuginfo": null}))
}
