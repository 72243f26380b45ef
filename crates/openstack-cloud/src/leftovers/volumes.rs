//! What the Cinder driver leaves: volumes, their snapshots and their backups.

use std::collections::BTreeMap;

use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{
    Leftover, LeftoverClass, LeftoverKind, Leftovers, Listing, Named, Presence, ProviderError, User,
};
use jiff::Timestamp;
use openstack_client::block_storage::{Backup, Snapshot, Volume};
use serde_json::json;

use super::services::there;
use super::{Absent, in_use, marks, not_ours};
use crate::OpenStack;
use crate::error::told;
use crate::listing::translate;

const SNAPSHOT: LeftoverKind = LeftoverKind { name: "cinder-snapshot", class: LeftoverClass::Snapshot };
const BACKUP: LeftoverKind = LeftoverKind { name: "cinder-backup", class: LeftoverClass::Backup };
const VOLUME: LeftoverKind = LeftoverKind { name: "cinder-volume", class: LeftoverClass::Volume };

/// The driver writes its `--cluster` here.
const CLUSTER: &str = "cinder.csi.openstack.org/cluster";

/// Metadata by which somebody asks that a volume, a snapshot or a backup outlives its cluster.
const KEEP: &str = "groundcrew.dev/keep";

const CSI: &str = "cinder.csi.openstack.org";
const IN_TREE: &str = "kubernetes.io/cinder";

/// What carries this `--cluster` of the Cinder driver.
pub struct VolumeLeftovers {
    /// The project.
    pub cloud: OpenStack,
    /// The name.
    pub cluster: String,
    /// What the cloud does not have.
    pub absent: Vec<Absent>,
}

/// What the three kinds have in common.
struct Thing {
    id: String,
    name: String,
    status: String,
    gib: u64,
    metadata: BTreeMap<String, String>,
    created: Option<Timestamp>,
}

impl From<Volume> for Thing {
    fn from(volume: Volume) -> Self {
        let Volume { id, name, status, size: gib, metadata, created_at: created, .. } = volume;
        Self { id, name, status, gib, metadata, created }
    }
}

impl From<Snapshot> for Thing {
    fn from(snapshot: Snapshot) -> Self {
        let Snapshot { id, name, status, size: gib, metadata, created_at: created, .. } = snapshot;
        Self { id, name, status, gib, metadata, created }
    }
}

impl From<Backup> for Thing {
    fn from(backup: Backup) -> Self {
        let Backup { id, name, status, size: gib, metadata, created_at: created, .. } = backup;
        Self { id, name, status, gib, metadata, created }
    }
}

impl VolumeLeftovers {
    fn leftover(&self, kind: LeftoverKind, thing: Thing) -> Option<Leftover> {
        let Thing { id, name, status, gib, metadata, created } = thing;
        if metadata.get(CLUSTER) != Some(&self.cluster) {
            return None;
        }
        let note = |key: &str| metadata.get(key).map(String::as_str);
        let claim = note("csi.storage.k8s.io/pvc/namespace").zip(note("csi.storage.k8s.io/pvc/name"));
        let users: Vec<_> =
            claim.map(|(namespace, name)| User::Claim(ServiceKey::new(namespace, name))).into_iter().collect();
        let noun = match kind.class {
            LeftoverClass::Snapshot => "volume snapshot",
            LeftoverClass::Backup => "volume backup",
            _ => "volume",
        };
        let (doubt, kept) = (marks::doubt(&self.cluster), note(KEEP).is_some_and(|keep| keep != "false"));
        let verb = match (&doubt, status.as_str()) {
            (Some(_), _) => "show",
            // Cinder refuses it otherwise, for good.
            (None, "error_deleting") => "delete --force",
            (None, _) => "delete",
        };
        let command = format!("openstack {noun} {verb} {id}");
        let about = match users.first() {
            Some(claim) => format!("of {claim}, {status}"),
            None => status,
        };
        Some(Leftover { kind, id, name, about, gib: Some(gib), users, created, doubt, kept, command })
    }

    /// Whether it still carries the mark, and nobody has asked for it meanwhile.
    fn check(&self, leftover: &Leftover, thing: Thing) -> Result<(), ProviderError> {
        match self.leftover(leftover.kind, thing) {
            None => Err(not_ours(leftover)),
            Some(Leftover { kept: true, .. }) => Err(in_use(format!("{KEEP} asks to keep {}", leftover.id))),
            Some(Leftover { doubt: Some(doubt), .. }) => Err(in_use(doubt)),
            Some(_) => Ok(()),
        }
    }
}

impl Leftovers for VolumeLeftovers {
    fn kinds(&self) -> &'static [LeftoverKind] {
        &[SNAPSHOT, BACKUP, VOLUME]
    }

    fn drivers(&self) -> &'static [&'static str] {
        &[CSI, IN_TREE]
    }

    async fn find(&self) -> Result<Listing<Leftover>, ProviderError> {
        let cinder = self.cloud.client.block_storage();
        let mark = json!({ CLUSTER: self.cluster }).to_string();
        let marked = [("metadata", mark.as_str())];
        let backups = async {
            if self.absent.contains(&Absent::Backups) {
                return Ok(openstack_client::Listing { items: Vec::new(), gaps: Vec::new() });
            }
            cinder.backups(&[]).await
        };
        let (snapshots, backups, volumes) =
            futures::try_join!(cinder.snapshots(&marked), backups, cinder.volumes(&marked)).map_err(told)?;
        let snapshots = translate("snapshots", snapshots, |one| Ok::<_, String>(Thing::from(one)));
        let backups = translate("backups", backups, |one| Ok::<_, String>(Thing::from(one)));
        let volumes = translate("volumes", volumes, |one| Ok::<_, String>(Thing::from(one)));
        let complete = snapshots.complete && backups.complete && volumes.complete;
        let mut items = Vec::new();
        for (kind, things) in [(SNAPSHOT, snapshots.items), (BACKUP, backups.items), (VOLUME, volumes.items)] {
            items.extend(things.into_iter().filter_map(|thing| self.leftover(kind, thing)));
        }
        Ok(Listing { items, complete })
    }

    async fn presence(&self, named: &Named) -> Result<Presence, ProviderError> {
        match named {
            Named::Volume { driver, handle } if self.drivers().contains(&driver.as_str()) && !handle.is_empty() => {
                let found = there(self.cloud.client.block_storage().volume(handle).await)?;
                Ok(if found.is_some() { Presence::There } else { Presence::Gone })
            }
            // The driver makes backups of snapshots if it is told to, and then names those.
            Named::Snapshot { driver, handle } if self.drivers().contains(&driver.as_str()) && !handle.is_empty() => {
                let cinder = self.cloud.client.block_storage();
                let mut found = there(cinder.snapshot(handle).await)?.is_some();
                if !found && !self.absent.contains(&Absent::Backups) {
                    found = there(cinder.backup(handle).await)?.is_some();
                }
                Ok(if found { Presence::There } else { Presence::Gone })
            }
            _ => Ok(Presence::Unknown),
        }
    }

    async fn remove(&self, leftover: &Leftover, term: &Term) -> Result<(), ProviderError> {
        let cinder = self.cloud.client.block_storage();
        let id = leftover.id.as_str();
        match leftover.kind {
            SNAPSHOT => {
                let Some(snapshot) = there(cinder.snapshot(id).await)? else { return Ok(()) };
                if snapshot.status == "deleting" {
                    return Ok(());
                }
                self.check(leftover, snapshot.into())?;
                self.cloud.write(term, cinder.delete_snapshot(id)).await
            }
            BACKUP => {
                let Some(backup) = there(cinder.backup(id).await)? else { return Ok(()) };
                if backup.status == "deleting" {
                    return Ok(());
                }
                if backup.has_dependent_backups {
                    return Err(in_use(format!("other backups build on {id}")));
                }
                self.check(leftover, backup.into())?;
                self.cloud.write(term, cinder.delete_backup(id)).await
            }
            _ => {
                let Some(volume) = there(cinder.volume(id).await)? else { return Ok(()) };
                if volume.status == "deleting" {
                    return Ok(());
                }
                if let Some(user) = volume.attachments.first() {
                    return Err(in_use(format!("volume {id} is attached to server {}", user.server_id)));
                }
                self.check(leftover, volume.into())?;
                self.cloud.write(term, cinder.delete_volume(id)).await
            }
        }
    }
}
