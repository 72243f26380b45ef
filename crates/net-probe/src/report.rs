//! The Lease in which this probe says whom it reaches.

use std::time::Duration;

use groundcrew_api::net_probe::{self, Report};
use groundcrew_core::leader::{Moment, Term};
use groundcrew_core::provider::ProviderError;
use groundcrew_core::runtime::Runtime;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{Patch, PatchParams};
use tracing::{info, warn};

use super::args::Args;
use super::tally::Tally;

/// A report that says nothing new is written this often, so that it stays fresh.
const RENEWAL: Duration = Duration::from_mins(1);
/// How long a report counts: two renewals may be lost.
const FRESH: Duration = Duration::from_mins(3);

pub(crate) struct Reporter {
    leases: Api<Lease>,
    deadline: Duration,
    node: String,
    owner: Option<OwnerReference>,
    written: Option<(Moment, Report)>,
}

impl Reporter {
    pub(crate) fn new(runtime: &Runtime, namespace: &str, args: &Args) -> Self {
        let owner = args.pod_name.clone().zip(args.pod_uid.clone());
        let owner = owner.map(|(name, uid)| OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name,
            uid,
            ..OwnerReference::default()
        });
        Self {
            leases: Api::namespaced(runtime.client.clone(), namespace),
            deadline: runtime.write_deadline,
            node: args.node_name.clone(),
            owner,
            written: None,
        }
    }

    /// Writes if there is something new, or the last report grows old. What fails is written with the next round.
    pub(crate) async fn report(&mut self, tally: &Tally, term: &Term) {
        let names = |reached| tally.nodes(reached).map(str::to_owned).collect();
        let report = Report { node: self.node.clone(), reached: names(true), unreached: names(false) };
        let now = Moment::now();
        match &self.written {
            Some((at, before)) if *before == report && at.until(now) < RENEWAL => return,
            Some((_, before)) if *before != report => info!(unreached = ?report.unreached, "this has changed"),
            _ => {}
        }
        let mut lease = report.lease(Timestamp::now(), FRESH);
        lease.metadata.owner_references = self.owner.clone().map(|owner| vec![owner]);
        let (name, apply) = (net_probe::lease_of(&self.node), PatchParams::apply("groundcrew-net-probe").force());
        let write = async {
            let written = self.leases.patch(&name, &apply, &Patch::Apply(&lease)).await;
            written.map_err(|error| ProviderError::from_kube("write the Lease of this probe", &error))
        };
        match term.write(self.deadline, write).await {
            Ok(_) => self.written = Some((now, report)),
            Err(error) => warn!(%error, "the report is not written"),
        }
    }
}
