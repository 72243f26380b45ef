//! What an account has.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::Serialize;
use serde_json::{Value, json};

/// The uuid of the account's user.
pub const OWNER: &str = "5b4a69a3-8e78-4c45-a8ba-8b13f0895e23";
/// The uuid of somebody else who shares an address with it.
pub const STRANGER: &str = "0b6d0cb6-44ff-4d13-9f6d-3f1bb8b6f6a1";

/// Servers, addresses, tags and subscriptions by their ids. What the API derives from them is not kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Account {
    /// As PUT takes them, and `status`.
    pub servers: BTreeMap<String, Value>,
    /// Without `server` and `tags`, which follow from the others.
    pub ips: BTreeMap<String, Value>,
    /// Name, meta and the uuids of what is tagged.
    pub tags: BTreeMap<String, Value>,
    /// What is paid for.
    pub subscriptions: BTreeMap<String, Value>,
    /// Addresses that DHCP gave to NICs, by MAC.
    pub leases: BTreeMap<String, String>,
    /// Whether changed NICs of a running server are taken. The documentation says no.
    pub live_nics: bool,
    /// Uuids of servers on the same physical host.
    pub hosts: Vec<Vec<String>>,
    /// What a server becomes once its present status was seen.
    #[serde(skip)]
    pub(super) becoming: BTreeMap<String, &'static str>,
    next: u32,
    /// Differs from account to account: no two have a server of the same uuid.
    number: u32,
}

/// How a server's public NIC gets its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nic {
    /// The cloud chooses one at boot.
    Dhcp(IpAddr),
    /// One of the account's own.
    Static(IpAddr),
    /// The guest may use every address that the account subscribes to; it has this one configured.
    Manual,
}

impl Account {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), ..Self::default() }
    }

    /// A running server with one public NIC and one drive; its uuid.
    pub fn add_server(&mut self, name: &str, nic: Nic) -> String {
        let n = self.number();
        let uuid = format!("{:08x}-0000-4000-8000-{n:012}", self.number);
        let mac = self.mac();
        let conf = match nic {
            Nic::Dhcp(address) => {
                self.add_ip_of(address, OWNER, false);
                self.leases.insert(mac.clone(), address.to_string());
                json!({ "conf": "dhcp", "ip": null })
            }
            Nic::Static(address) => json!({ "conf": "static", "ip": ip_reference(&address.to_string()) }),
            Nic::Manual => json!({ "conf": "manual", "ip": null }),
        };
        let drive = format!("{:08x}-0000-4000-9000-{n:012}", self.number);
        let server = json!({
            "name": name, "status": "running", "cpu": 4000, "mem": 4_294_967_296_u64, "smp": 2, "cpu_type": "intel",
            "vnc_password": "not-a-real-vnc-password", "meta": {}, "tags": [], "auto_start": true, "uefi_new_field": "kept",
            "nics": [{ "boot_order": null, "ip_v4_conf": conf, "ip_v6_conf": null, "mac": mac, "model": "virtio", "vlan": null }],
            "drives": [{ "boot_order": 1, "dev_channel": "0:0", "device": "virtio", "drive": { "uuid": drive } }],
        });
        self.servers.insert(uuid.clone(), server);
        uuid
    }

    /// An address that the account subscribes to until the end of the century.
    pub fn add_ip(&mut self, address: IpAddr) {
        self.add_ip_until(address, "2099-12-31T23:59:59Z", "active");
    }

    /// The same with an end, as `2026-01-31T00:00:00Z`, and a status: `active`, `inactive`, `expired`.
    pub fn add_ip_until(&mut self, address: IpAddr, end: &str, status: &str) {
        self.add_ip_of(address, OWNER, true);
        let id = format!("{}", 7_000 + self.number());
        self.ips.entry(address.to_string()).and_modify(|ip| {
            ip["subscription"] = json!({ "id": id, "resource_uri": format!("/api/2.0/subscriptions/{id}/") });
        });
        let subscription = json!({
            "id": id, "uuid": id, "resource": "ip", "subscribed_object": address.to_string(), "status": status,
            "start_time": "2025-01-01T00:00:00Z", "end_time": end, "auto_renew": false,
        });
        self.subscriptions.insert(id, subscription);
    }

    /// An address that somebody else lets the account use.
    pub fn add_shared_ip(&mut self, address: IpAddr) {
        self.add_ip_of(address, STRANGER, true);
    }

    /// An address without a subscription that nobody uses.
    pub fn add_dynamic_ip(&mut self, address: IpAddr) {
        self.add_ip_of(address, OWNER, false);
    }

    fn add_ip_of(&mut self, address: IpAddr, owner: &str, subscribed: bool) {
        let ip = json!({
            "uuid": address.to_string(), "gateway": "203.0.113.1", "netmask": 24, "nameservers": ["203.0.113.2"],
            "meta": {}, "owner": { "uuid": owner }, "grantees": [], "permissions": [],
            "subscription": if subscribed { json!({ "id": "0", "resource_uri": "/api/2.0/subscriptions/0/" }) } else { Value::Null },
        });
        self.ips.insert(address.to_string(), ip);
    }

    /// Sets a server's status at once.
    pub fn set_status(&mut self, uuid: &str, status: &str) {
        if let Some(server) = self.servers.get_mut(uuid) {
            server["status"] = status.into();
        }
    }

    /// Names of the tags that an address has, sorted.
    #[must_use]
    pub fn tags_of(&self, address: IpAddr) -> Vec<String> {
        let address = address.to_string();
        let tagged = self.tags.values().filter(|tag| resources(tag).any(|uuid| uuid == address));
        let mut names: Vec<_> = tagged.filter_map(|tag| tag["name"].as_str().map(str::to_owned)).collect();
        names.sort();
        names
    }

    /// The server whose NIC has the address, by configuration or by DHCP.
    pub(super) fn server_of(&self, address: &str) -> Option<&str> {
        let has = |nic: &Value| {
            ["ip_v4_conf", "ip_v6_conf"].iter().any(|conf| nic[conf]["ip"]["uuid"] == address)
                || nic["mac"].as_str().and_then(|mac| self.leases.get(mac)).is_some_and(|lease| lease == address)
        };
        let mut holding = self.servers.iter().filter(|(_, server)| nics(server).any(has));
        holding.next().map(|(uuid, _)| uuid.as_str())
    }

    pub(super) fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub(super) fn mac(&mut self) -> String {
        let n = self.number();
        format!("22:00:00:00:{:02x}:{:02x}", n / 256, n % 256)
    }
}

pub(super) fn nics(server: &Value) -> impl Iterator<Item = &Value> {
    server["nics"].as_array().into_iter().flatten()
}

/// Uuids of what a tag is on.
pub(super) fn resources(tag: &Value) -> impl Iterator<Item = &str> {
    tag["resources"].as_array().into_iter().flatten().filter_map(|resource| resource["uuid"].as_str())
}

pub(super) fn ip_reference(address: &str) -> Value {
    json!({ "uuid": address, "resource_uri": format!("/api/2.0/ips/{address}/") })
}
