//! Cinder.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use crate::catalog::Service;
use crate::client::{Ask, Client, Filters};
use crate::error::Error;
use crate::listing::Listing;
use crate::page::{Item, More};
use crate::{moment, null_as_default};

/// Cinder: volumes, snapshots, backups.
#[derive(Debug, Clone, Copy)]
pub struct BlockStorage<'a>(pub(crate) &'a Client);

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Volume {
    /// Its id.
    pub id: String,
    /// Its name, not unique.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// `available`, `in-use`, `deleting`, `error_deleting`, ...
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: String,
    /// In GiB.
    #[serde(default, deserialize_with = "null_as_default")]
    pub size: u64,
    /// What its makers noted on it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: BTreeMap<String, String>,
    /// The servers that have it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub attachments: Vec<Attachment>,
    /// Since when it has been there.
    #[serde(default, deserialize_with = "moment")]
    pub created_at: Option<Timestamp>,
}

/// A server that has a volume.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Attachment {
    /// The server.
    #[serde(default, deserialize_with = "null_as_default")]
    pub server_id: String,
}

/// A snapshot of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Snapshot {
    /// Its id.
    pub id: String,
    /// Its name, not unique.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// `available`, `deleting`, `error_deleting`, ...
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: String,
    /// In GiB.
    #[serde(default, deserialize_with = "null_as_default")]
    pub size: u64,
    /// The volume, which cannot be deleted before.
    #[serde(default, deserialize_with = "null_as_default")]
    pub volume_id: String,
    /// What its makers noted on it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: BTreeMap<String, String>,
    /// Since when it has been there.
    #[serde(default, deserialize_with = "moment")]
    pub created_at: Option<Timestamp>,
}

/// A backup of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Backup {
    /// Its id.
    pub id: String,
    /// Its name, not unique.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// What its maker wrote on it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub description: String,
    /// `available`, `deleting`, `error_deleting`, ...
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: String,
    /// In GiB.
    #[serde(default, deserialize_with = "null_as_default")]
    pub size: u64,
    /// The volume, which may be long gone.
    #[serde(default, deserialize_with = "null_as_default")]
    pub volume_id: String,
    /// Whether others build on it, so that it cannot be deleted before them.
    #[serde(default, deserialize_with = "null_as_default")]
    pub has_dependent_backups: bool,
    /// What its makers noted on it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: BTreeMap<String, String>,
    /// Since when it has been there.
    #[serde(default, deserialize_with = "moment")]
    pub created_at: Option<Timestamp>,
}

macro_rules! items {
    ($($kind:ty),*) => { $(impl Item for $kind { fn id(&self) -> &str { &self.id } })* };
}
items!(Volume, Snapshot, Backup);

impl BlockStorage<'_> {
    /// Volumes. A filter by `metadata` is JSON, as `{"cinder.csi.openstack.org/cluster":"a"}`.
    pub async fn volumes(self, filters: Filters<'_>) -> Result<Listing<Volume>, Error> {
        self.list("volumes", filters).await
    }

    /// One volume.
    pub async fn volume(self, id: &str) -> Result<Volume, Error> {
        self.0.get(&Ask::new(Service::BlockStorage, &["volumes", id]), "volume").await
    }

    /// Orders a volume's end. Gone already is fine. One that is attached, has snapshots or is in a wrong state is
    /// [`Kind::Invalid`](crate::Kind::Invalid) to Cinder. Look until it is gone or in `error_deleting`.
    pub async fn delete_volume(self, id: &str) -> Result<(), Error> {
        self.0.delete(&Ask::new(Service::BlockStorage, &["volumes", id])).await
    }

    /// Snapshots.
    pub async fn snapshots(self, filters: Filters<'_>) -> Result<Listing<Snapshot>, Error> {
        self.list("snapshots", filters).await
    }

    /// One snapshot.
    pub async fn snapshot(self, id: &str) -> Result<Snapshot, Error> {
        self.0.get(&Ask::new(Service::BlockStorage, &["snapshots", id]), "snapshot").await
    }

    /// Orders a snapshot's end. Gone already is fine.
    pub async fn delete_snapshot(self, id: &str) -> Result<(), Error> {
        self.0.delete(&Ask::new(Service::BlockStorage, &["snapshots", id])).await
    }

    /// Backups. Clouds without the backup service answer with an error and not with an empty list.
    pub async fn backups(self, filters: Filters<'_>) -> Result<Listing<Backup>, Error> {
        self.list("backups", filters).await
    }

    /// One backup.
    pub async fn backup(self, id: &str) -> Result<Backup, Error> {
        self.0.get(&Ask::new(Service::BlockStorage, &["backups", id]), "backup").await
    }

    /// Orders a backup's end. Gone already is fine.
    pub async fn delete_backup(self, id: &str) -> Result<(), Error> {
        self.0.delete(&Ask::new(Service::BlockStorage, &["backups", id])).await
    }

    async fn list<T: Item>(self, collection: &str, filters: Filters<'_>) -> Result<Listing<T>, Error> {
        let path = [collection, "detail"];
        self.0.list(&Ask::new(Service::BlockStorage, &path).query(filters), collection, More::Links).await
    }
}
