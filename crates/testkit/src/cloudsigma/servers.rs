//! Servers: what a PUT takes, and when.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::account::{Account, OWNER, ip_reference, nics};
use super::reply::Reply;

pub(super) const SHORT: &[&str] = &["uuid", "name", "owner", "runtime", "status", "resource_uri"];

const REQUIRED: &[&str] = &["name", "cpu", "mem", "vnc_password"];
/// Sent along or not, they stay as they are.
const READ_ONLY: &[&str] = &["jobs", "owner", "resource_uri", "runtime", "status", "uuid"];
/// All that a running server takes. Drives are not in the documentation, but do change.
const LIVE: &[&str] = &["name", "meta", "tags", "drives"];

impl Account {
    /// One as the API shows it.
    pub(super) fn server(&self, uuid: &str) -> Option<Value> {
        let mut server = self.servers.get(uuid)?.clone();
        server["uuid"] = uuid.into();
        server["owner"] = json!({ "uuid": OWNER });
        server["resource_uri"] = format!("/api/2.0/servers/{uuid}/").into();
        server["jobs"] = json!([]);
        server["runtime"] = Value::Null;
        let running = server["status"] == "running";
        let mut shown = Vec::new();
        for nic in server["nics"].as_array_mut().into_iter().flatten() {
            let runtime = if running { self.runtime(nic) } else { Value::Null };
            if running {
                shown.push(runtime.clone());
            }
            nic["runtime"] = runtime;
        }
        if running {
            server["runtime"] = json!({ "active_since": "2025-01-01T00:00:00Z", "nics": shown });
        }
        Some(server)
    }

    fn runtime(&self, nic: &Value) -> Value {
        let lease = nic["mac"].as_str().and_then(|mac| self.leases.get(mac)).map(String::as_str);
        let address = nic["ip_v4_conf"]["ip"]["uuid"].as_str().or(lease);
        json!({
            "interface_type": if nic["vlan"].is_null() { "public" } else { "private" },
            "io": {}, "mac": nic["mac"], "ip_v4": address.map(ip_reference), "ip_v6": nic["ip_v6_conf"]["ip"],
        })
    }

    pub(super) fn all_servers(&self) -> Vec<Value> {
        self.servers.keys().filter_map(|uuid| self.server(uuid)).collect()
    }

    pub(super) fn put_server(&mut self, uuid: &str, body: &Value) -> Reply {
        let Some(before) = self.servers.get(uuid).cloned() else { return Reply::not_found(uuid) };
        if let Some(missing) = REQUIRED.iter().find(|field| body.get(**field).is_none_or(Value::is_null)) {
            return Reply::invalid(missing, "This field is required");
        }
        let mut wanted = body.clone();
        match self.checked_nics(uuid, &before, body) {
            Ok(nics) => wanted["nics"] = nics,
            Err(refused) => return refused,
        }
        let running = before["status"] != "stopped";
        let takes = |field: &str| {
            !READ_ONLY.contains(&field) && (!running || LIVE.contains(&field) || (field == "nics" && self.live_nics))
        };
        let mut after = before.clone();
        for (field, value) in wanted.as_object().into_iter().flatten().filter(|(field, _)| takes(field)) {
            after[field] = value.clone();
        }
        for drive in after["drives"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            drive.remove("runtime");
        }
        // What the new list of drives does not have is detached: this is how a stale PUT loses a volume.
        self.servers.insert(uuid.to_owned(), after);
        Reply::ok(&self.server(uuid).unwrap_or_default())
    }

    fn checked_nics(&mut self, uuid: &str, before: &Value, body: &Value) -> Result<Value, Reply> {
        let known: BTreeSet<String> = nics(before).filter_map(|nic| nic["mac"].as_str()).map(str::to_owned).collect();
        let mut checked = Vec::new();
        for nic in nics(body) {
            let mut nic = nic.clone();
            if let Some(nic) = nic.as_object_mut() {
                nic.remove("runtime");
            }
            match nic["mac"].as_str() {
                Some(mac) if !known.contains(mac) => return Err(Reply::invalid("nics", "Unknown mac")),
                Some(_) => {}
                None => nic["mac"] = self.mac().into(),
            }
            for (family, conf) in ["ip_v4_conf", "ip_v6_conf"].map(|family| (family, nic[family].clone())) {
                if conf.is_null() {
                    continue;
                }
                if !nic["vlan"].is_null() {
                    return Err(Reply::invalid("nics", "A NIC in a VLAN has no IP configuration"));
                }
                nic[family] = self.checked_conf(uuid, &conf)?;
            }
            checked.push(nic);
        }
        Ok(checked.into())
    }

    fn checked_conf(&self, uuid: &str, conf: &Value) -> Result<Value, Reply> {
        let address = conf["ip"].as_str().or_else(|| conf["ip"]["uuid"].as_str());
        match (conf["conf"].as_str(), address) {
            (Some("dhcp"), Some(_)) => Err(Reply::invalid("nics", "ip can not be set with dhcp")),
            (Some("static"), None) => Err(Reply::invalid("nics", "ip is required with static")),
            (Some("static"), Some(address)) => {
                if !self.ips.contains_key(address) {
                    return Err(Reply::invalid("nics", "No such IP"));
                }
                if self.server_of(address).is_some_and(|holder| holder != uuid) {
                    return Err(Reply::invalid("nics", &format!("IP {address} is already attached to another server")));
                }
                Ok(json!({ "conf": "static", "ip": ip_reference(address) }))
            }
            (Some(mode @ ("dhcp" | "manual")), _) => Ok(json!({ "conf": mode, "ip": null })),
            _ => Err(Reply::invalid("nics", "Unknown conf")),
        }
    }

    /// Accepted at once, seen to begin by who asks next, and done after that.
    pub(super) fn act(&mut self, uuid: &str, action: &str) -> Reply {
        let Some(server) = self.servers.get_mut(uuid) else { return Reply::not_found(uuid) };
        let (now, then) = match (action, server["status"].as_str()) {
            ("start", Some("stopped")) => ("starting", "running"),
            ("stop" | "shutdown", Some("running")) => ("stopping", "stopped"),
            _ => return Reply::denied("Cannot do this to a server in its present state"),
        };
        server["status"] = now.into();
        self.becoming.insert(uuid.to_owned(), then);
        Reply::json(202, &json!({ "action": action, "result": "success", "uuid": uuid }))
    }

    /// Somebody saw the present status; the next sees what becomes of it.
    pub(super) fn seen(&mut self, uuid: &str) {
        if let Some(then) = self.becoming.remove(uuid) {
            self.set_status(uuid, then);
        }
    }
}
