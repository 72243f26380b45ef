//! Nova.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use crate::catalog::Service;
use crate::client::{Ask, Client};
use crate::error::Error;
use crate::listing::Listing;
use crate::page::{Item, More};
use crate::{moment, null_as_default};

/// Nova: servers.
#[derive(Debug, Clone, Copy)]
pub struct Compute<'a>(pub(crate) &'a Client);

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Server {
    /// Its id.
    pub id: String,
    /// Its name, not unique. Empty while its cell is down.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// Whose it is.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tenant_id: String,
    /// `ACTIVE`, `ERROR`, `SHUTOFF`, `SOFT_DELETED`, ...; `UNKNOWN` while its cell is down.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: String,
    /// Since when it has been there.
    #[serde(default, deserialize_with = "moment")]
    pub created: Option<Timestamp>,
    /// Its addresses by the name of the network, floating ones too. `None` if Nova does not know, as while its cell is down.
    #[serde(default)]
    pub addresses: Option<BTreeMap<String, Vec<ServerAddress>>>,
    /// The names of its security groups, which are not unique.
    #[serde(default, deserialize_with = "null_as_default")]
    pub security_groups: Vec<GroupName>,
    /// What its makers noted on it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: BTreeMap<String, String>,
    /// Its tags.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
    /// `active`, `error`, `building`, ...
    #[serde(default, rename = "OS-EXT-STS:vm_state")]
    pub vm_state: Option<String>,
    /// What is being done to it, as `rebooting` or `deleting`.
    #[serde(default, rename = "OS-EXT-STS:task_state")]
    pub task_state: Option<String>,
    /// 1 runs, 4 is shut down, 0 is not known.
    #[serde(default, rename = "OS-EXT-STS:power_state")]
    pub power_state: Option<i64>,
    /// Whether only an administrator may touch it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub locked: bool,
    /// What went wrong, of one in `ERROR`.
    #[serde(default)]
    pub fault: Option<ServerFault>,
}

/// An address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServerAddress {
    /// The address.
    pub addr: IpAddr,
    /// `fixed` or `floating`.
    #[serde(default, rename = "OS-EXT-IPS:type", deserialize_with = "null_as_default")]
    pub kind: String,
}

/// A security group as Nova shows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GroupName {
    /// Its name, not unique.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
}

/// What went wrong with a server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServerFault {
    /// Nova's words.
    #[serde(default, deserialize_with = "null_as_default")]
    pub message: String,
}

impl Server {
    /// Whether Nova knows only that it exists, because the part of the cloud that has it is down. Nothing follows from what is not said.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.status == "UNKNOWN" || self.addresses.is_none()
    }

    /// All its addresses. None of one that [is unknown](Self::is_unknown).
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().flat_map(BTreeMap::values).flatten().map(|address| address.addr)
    }
}

impl Item for Server {
    fn id(&self) -> &str {
        &self.id
    }

    fn gap(&self) -> Option<String> {
        self.is_unknown().then(|| format!("nova knows nothing about server {} now: a cell may be down", self.id))
    }
}

/// How to reboot a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reboot {
    /// Asks its system to. Only of one that is `ACTIVE`.
    Soft,
    /// Turns it off and on. Also of one in `ERROR` or `SHUTOFF`, as far as the cloud's release allows.
    Hard,
}

/// Servers that are placed near to or away from each other.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServerGroup {
    /// Its id.
    pub id: String,
    /// Its name, not unique.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// The ids of its servers.
    #[serde(default, deserialize_with = "null_as_default")]
    pub members: Vec<String>,
    /// `affinity`, `anti-affinity`, ...
    #[serde(default, deserialize_with = "null_as_default")]
    pub policy: String,
}

impl Item for ServerGroup {
    fn id(&self) -> &str {
        &self.id
    }
}

/// A volume at a server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VolumeAttachment {
    /// The volume.
    #[serde(rename = "volumeId")]
    pub volume_id: String,
    /// The device as the server sees it.
    #[serde(default)]
    pub device: Option<String>,
}

impl Item for VolumeAttachment {
    fn id(&self) -> &str {
        &self.volume_id
    }
}

impl Compute<'_> {
    /// All servers of the project. There is no filter on purpose: with one, or with a page size, Nova leaves out the servers of a
    /// cell that is down without a word. So does every page but the first, which is why more than one costs a look at the first again.
    pub async fn servers(self) -> Result<Listing<Server>, Error> {
        self.0.list(&Ask::new(Service::Compute, &["servers", "detail"]), "servers", More::LinksAndFirstAgain).await
    }

    /// One server.
    pub async fn server(self, id: &str) -> Result<Server, Error> {
        self.0.get(&Ask::new(Service::Compute, &["servers", id]), "server").await
    }

    /// Orders a reboot. A conflict if the server's state or a lock forbids it.
    pub async fn reboot(self, id: &str, how: Reboot) -> Result<(), Error> {
        let how = match how {
            Reboot::Soft => "SOFT",
            Reboot::Hard => "HARD",
        };
        self.action(id, &json!({"reboot": {"type": how}})).await
    }

    /// Orders a server's end. Gone already is fine.
    pub async fn delete_server(self, id: &str) -> Result<(), Error> {
        self.0.delete(&Ask::new(Service::Compute, &["servers", id])).await
    }

    /// Adds a security group, by id or name, to all ports of a server.
    pub async fn add_security_group(self, id: &str, group: &str) -> Result<(), Error> {
        self.action(id, &json!({"addSecurityGroup": {"name": group}})).await
    }

    /// Adds one tag. There already is fine.
    pub async fn add_tag(self, id: &str, tag: &str) -> Result<(), Error> {
        self.0.order(Method::PUT, &Ask::new(Service::Compute, &["servers", id, "tags", tag]), None).await
    }

    /// Sets some keys of the metadata and leaves the others alone.
    pub async fn set_metadata(self, id: &str, metadata: &BTreeMap<String, String>) -> Result<(), Error> {
        let body = json!({"metadata": metadata});
        self.0.order(Method::POST, &Ask::new(Service::Compute, &["servers", id, "metadata"]), Some(&body)).await
    }

    /// The server groups of the project.
    pub async fn server_groups(self) -> Result<Listing<ServerGroup>, Error> {
        self.0.list(&Ask::new(Service::Compute, &["os-server-groups"]), "server_groups", More::Offset).await
    }

    /// The volumes at a server.
    pub async fn volume_attachments(self, server: &str) -> Result<Listing<VolumeAttachment>, Error> {
        let path = ["servers", server, "os-volume_attachments"];
        self.0.list(&Ask::new(Service::Compute, &path), "volumeAttachments", More::Links).await
    }

    /// Orders a volume to be taken from a server. Gone already is fine.
    pub async fn detach_volume(self, server: &str, volume: &str) -> Result<(), Error> {
        self.0.delete(&Ask::new(Service::Compute, &["servers", server, "os-volume_attachments", volume])).await
    }

    async fn action(self, id: &str, body: &serde_json::Value) -> Result<(), Error> {
        self.0.order(Method::POST, &Ask::new(Service::Compute, &["servers", id, "action"]), Some(body)).await
    }
}
