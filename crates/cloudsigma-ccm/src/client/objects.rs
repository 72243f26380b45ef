//! What the API has, as far as it is read here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// Notes on an object: keys of at most 32 characters, replaced whole.
pub type Meta = BTreeMap<String, String>;

/// An address.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Ip {
    /// Its id is the address itself.
    #[serde(rename = "uuid")]
    pub address: IpAddr,
    /// Notes on it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub meta: Meta,
    /// Whose it is; an address that somebody shares with us has another's uuid.
    #[serde(default, deserialize_with = "reference")]
    pub owner: Option<String>,
    /// The server that it is attached to, by a static NIC or by DHCP.
    #[serde(default, deserialize_with = "reference")]
    pub server: Option<String>,
    /// Whether it is subscribed to, and thereby ours to place.
    #[serde(default, rename = "subscription", deserialize_with = "is_there")]
    pub subscribed: bool,
    /// Uuids of its tags.
    #[serde(default, deserialize_with = "references")]
    pub tags: Vec<String>,
}

/// What is paid for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Subscription {
    /// For an address, the address.
    #[serde(default)]
    pub subscribed_object: Option<String>,
    /// `active`, `inactive`, `expired`.
    #[serde(default)]
    pub status: String,
    /// When it ends.
    #[serde(default, deserialize_with = "moment")]
    pub end_time: Option<Timestamp>,
    /// Whether it is prolonged by itself.
    #[serde(default)]
    pub auto_renew: bool,
}

/// A tag, and what it is on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Tag {
    /// Empty while it is not made yet.
    #[serde(default)]
    pub uuid: String,
    /// Not unique.
    pub name: String,
    /// Notes on it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub meta: Meta,
    /// Uuids of what it is on.
    #[serde(default, deserialize_with = "references")]
    pub resources: Vec<String>,
}

impl Tag {
    /// As POST and PUT want it: objects, whatever the documentation shows.
    pub(super) fn body(&self) -> Value {
        let resources: Vec<_> = self.resources.iter().map(|uuid| json!({ "uuid": uuid })).collect();
        json!({ "name": self.name, "meta": self.meta, "resources": resources })
    }
}

/// A server: everything that the API says about it, so that a PUT loses nothing that came after this was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Its id.
    pub uuid: String,
    /// What people call it.
    pub name: String,
    /// `running`, `stopped` and what is between.
    pub status: String,
    raw: Value,
}

/// How a NIC gets its address of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conf {
    /// Chosen by the cloud at boot.
    Dhcp,
    /// One of the account's.
    Static,
    /// The guest may use every address that the account subscribes to.
    Manual,
    /// In a VLAN, or unknown.
    Other,
}

/// One of a server's NICs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// What it is known by.
    pub mac: String,
    /// How it gets its IPv4 address.
    pub conf: Conf,
    /// How it gets its IPv6 address.
    pub conf_v6: Conf,
    /// Addresses that it is configured with or has at the moment.
    pub addresses: BTreeSet<IpAddr>,
    /// Those of either family that it was given by configuration.
    pub fixed: BTreeSet<IpAddr>,
    /// Whether it is on the internet rather than in a VLAN.
    pub public: bool,
    /// Whether the running guest has it: one that was added since is there after the next start.
    pub live: bool,
}

impl Nic {
    /// Whether the guest may use every address of this family that the account subscribes to. In manual mode for IPv4 it
    /// may use IPv6 ones too, unless the NIC gets those in another way.
    #[must_use]
    pub fn takes_any(&self, v6: bool) -> bool {
        let manual = match (v6, self.conf_v6) {
            (false, _) | (true, Conf::Other) => self.conf == Conf::Manual,
            (true, conf) => conf == Conf::Manual,
        };
        self.public && manual
    }
}

impl Server {
    /// Its NICs in the guest's order.
    #[must_use]
    pub fn nics(&self) -> Vec<Nic> {
        let nics = self.raw["nics"].as_array().into_iter().flatten();
        nics.filter_map(|nic| {
            let [conf, conf_v6] = ["ip_v4_conf", "ip_v6_conf"].map(|family| match nic[family]["conf"].as_str() {
                Some("dhcp") => Conf::Dhcp,
                Some("static") => Conf::Static,
                Some("manual") => Conf::Manual,
                _ => Conf::Other,
            });
            let places = [
                &nic["ip_v4_conf"]["ip"],
                &nic["ip_v6_conf"]["ip"],
                &nic["runtime"]["ip_v4"],
                &nic["runtime"]["ip_v6"],
            ];
            let addresses = places.into_iter().filter_map(|place| id(place)?.parse().ok()).collect();
            let given = [&nic["ip_v4_conf"], &nic["ip_v6_conf"]].into_iter().filter(|conf| conf["conf"] == "static");
            let fixed = given.filter_map(|conf| id(&conf["ip"])?.parse().ok()).collect();
            let mac = nic["mac"].as_str()?.to_ascii_lowercase();
            let (public, live) = (nic["vlan"].is_null(), !nic["runtime"].is_null());
            Some(Nic { mac, conf, conf_v6, addresses, fixed, public, live })
        })
        .collect()
    }

    /// Uuids of its drives.
    #[must_use]
    pub fn drives(&self) -> BTreeSet<String> {
        let drives = self.raw["drives"].as_array().into_iter().flatten();
        drives.filter_map(|drive| id(&drive["drive"])).map(str::to_owned).collect()
    }

    /// When it was started, in the cloud's own words; none where it does not run.
    #[must_use]
    pub fn running_since(&self) -> Option<String> {
        self.raw["runtime"]["active_since"].as_str().map(str::to_owned)
    }

    /// Processor and memory in the words of an instance type, as `4000mhz-4096mb`: the cloud has no names for them.
    #[must_use]
    pub fn size(&self) -> Option<String> {
        let (cpu, mem) = (self.raw["cpu"].as_u64()?, self.raw["mem"].as_u64()?);
        Some(format!("{cpu}mhz-{}mb", mem / (1024 * 1024)))
    }

    /// The whole of it as a PUT takes it, with other NICs: everything but what is read-only.
    #[must_use]
    pub fn with_nics(&self, change: impl FnOnce(&mut Vec<Value>)) -> Value {
        let mut body = self.raw.clone();
        if let Some(fields) = body.as_object_mut() {
            for read_only in ["jobs", "owner", "resource_uri", "runtime", "status", "uuid", "permissions", "grantees"] {
                fields.remove(read_only);
            }
        }
        for list in ["nics", "drives"] {
            for part in body[list].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
                part.remove("runtime");
            }
        }
        if let Some(nics) = body["nics"].as_array_mut() {
            change(nics);
        }
        body
    }
}

impl<'de> Deserialize<'de> for Server {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let raw = Value::deserialize(deserializer)?;
        let field =
            |name: &str| raw[name].as_str().map(str::to_owned).ok_or_else(|| D::Error::custom(format!("no {name}")));
        Ok(Self { uuid: field("uuid")?, name: field("name")?, status: field("status")?, raw })
    }
}

/// A reference is an object with a uuid, or the uuid itself.
fn id(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["uuid"].as_str())
}

fn reference<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(id(&Value::deserialize(deserializer)?).map(str::to_owned))
}

fn references<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_array().into_iter().flatten().filter_map(id).map(str::to_owned).collect())
}

fn is_there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(!Value::deserialize(deserializer)?.is_null())
}

fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// One that cannot be read is not known.
fn moment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    Ok(text.and_then(|text| text.parse().or_else(|_| format!("{text}Z").parse()).ok()))
}
