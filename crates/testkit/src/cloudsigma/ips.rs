//! Addresses.

use serde_json::{Value, json};

use super::account::{Account, OWNER, ip_reference};
use super::reply::Reply;

pub(super) const SHORT: &[&str] = &["uuid", "owner", "server", "resource_uri"];

/// Keys of `meta` are no longer than this.
const LONGEST_KEY: usize = 32;

impl Account {
    /// One as the API shows it.
    pub(super) fn ip(&self, address: &str) -> Option<Value> {
        let mut ip = self.ips.get(address)?.clone();
        let server = self.server_of(address);
        ip["server"] = server.map_or(Value::Null, |uuid| json!({ "uuid": uuid }));
        ip["resource_uri"] = ip_reference(address)["resource_uri"].clone();
        let tags = self.tags.iter().filter(|(_, tag)| super::account::resources(tag).any(|uuid| uuid == address));
        ip["tags"] = tags.map(|(uuid, tag)| json!({ "uuid": uuid, "name": tag["name"] })).collect();
        Some(ip)
    }

    pub(super) fn all_ips(&self) -> Vec<Value> {
        self.ips.keys().filter_map(|address| self.ip(address)).collect()
    }

    /// Takes `meta`, whole, and nothing else.
    pub(super) fn put_ip(&mut self, address: &str, body: &Value) -> Reply {
        let Some(ip) = self.ips.get_mut(address) else { return Reply::not_found(address) };
        if ip["owner"]["uuid"] != OWNER {
            return Reply::denied("You do not have permission to edit this object");
        }
        if let Some(meta) = body.get("meta") {
            let Some(entries) = meta.as_object() else { return Reply::invalid("meta", "meta must be an object") };
            if entries.keys().any(|key| key.len() > LONGEST_KEY) {
                return Reply::invalid("meta", "Keys must be no longer than 32 characters");
            }
            if entries.values().any(|value| !value.is_string()) {
                return Reply::invalid("meta", "Values must be strings");
            }
            ip["meta"] = meta.clone();
        }
        self.ip(address).map_or_else(|| Reply::not_found(address), |ip| Reply::ok(&ip))
    }
}
