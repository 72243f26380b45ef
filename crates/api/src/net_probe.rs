//! What the probes of the pod network write down: a Lease each, which `groundcrew flight` reads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

/// On the Lease of a probe: `"true"`.
pub const LABEL: &str = "groundcrew.dev/net-probe";
/// On the Lease of a probe: the nodes whose probes it reaches, separated by commas.
pub const REACHED: &str = "groundcrew.dev/reached";
/// On the Lease of a probe: the nodes whose probes it does not reach, separated by commas.
pub const UNREACHED: &str = "groundcrew.dev/unreached";

/// The name of the Lease of the probe on this node.
#[must_use]
pub fn lease_of(node: &str) -> String {
    format!("groundcrew-net-probe-{node}")
}

/// Whom the probe of a node reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Whose probe it is.
    pub node: String,
    /// The nodes whose probes answered.
    pub reached: BTreeSet<String>,
    /// The nodes whose probes did not.
    pub unreached: BTreeSet<String>,
}

impl Report {
    /// As a Lease that counts for so long.
    #[must_use]
    pub fn lease(&self, now: Timestamp, fresh: Duration) -> Lease {
        let join = |nodes: &BTreeSet<String>| nodes.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        let annotations = [(REACHED, join(&self.reached)), (UNREACHED, join(&self.unreached))];
        Lease {
            metadata: ObjectMeta {
                name: Some(lease_of(&self.node)),
                labels: Some(BTreeMap::from([(LABEL.to_owned(), "true".to_owned())])),
                annotations: Some(annotations.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.node.clone()),
                renew_time: Some(MicroTime(now)),
                lease_duration_seconds: Some(i32::try_from(fresh.as_secs()).unwrap_or(i32::MAX)),
                ..LeaseSpec::default()
            }),
        }
    }

    /// What a Lease says, if it is a probe's and still counts.
    #[must_use]
    pub fn from_lease(lease: Lease, now: Timestamp) -> Option<Self> {
        let spec = lease.spec?;
        let fresh = u64::try_from(spec.lease_duration_seconds?).ok()?;
        let age = now.duration_since(spec.renew_time?.0).unsigned_abs();
        if !lease.metadata.labels?.contains_key(LABEL) || age.as_secs() > fresh {
            return None;
        }
        // One Lease a Node: nobody gets a second voice by another name.
        let node = spec.holder_identity.filter(|node| lease.metadata.name.as_ref() == Some(&lease_of(node)))?;
        let annotations = lease.metadata.annotations.unwrap_or_default();
        let split = |key: &str| {
            let names = annotations.get(key).map(String::as_str).unwrap_or_default();
            names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        Some(Self { node, reached: split(REACHED), unreached: split(UNREACHED) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written_while_it_is_fresh() {
        let (now, fresh) = (Timestamp::UNIX_EPOCH, Duration::from_mins(3));
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let report = Report { node: "a".into(), reached: names(&["b", "c.example"]), unreached: names(&[]) };
        let lease = report.lease(now, fresh);
        assert_eq!(Report::from_lease(lease.clone(), now + fresh), Some(report.clone()));
        assert_eq!(Report::from_lease(lease.clone(), now + fresh + Duration::from_secs(1)), None);
        let somebodys = Lease { metadata: ObjectMeta::default(), ..lease };
        assert_eq!(Report::from_lease(somebodys, now), None);
        let mut second = report.lease(now, fresh);
        second.metadata.name = Some(lease_of("b"));
        assert_eq!(Report::from_lease(second, now), None, "not in the name of another");
    }
}
