//! How a run comes to its end: the report first, and then whether the cluster may go.

use groundcrew_api::deorbit::{Deorbit, DeorbitSpec, DeorbitStatus, OnBudgetEnd, Phase, Policy};
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{ErrorKind, ProviderError};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{Next, Runner, SHOWN};
use crate::deorbit::cloud::Sight;
use crate::deorbit::observe::{Cluster, Life, ObserveError};
use crate::deorbit::report::Report;
use crate::deorbit::stage::{self, Limits};

/// A `ConfigMap` takes a little more.
const LARGEST: usize = 900_000;

/// How it comes to its end.
pub(super) struct Ending {
    /// Something was left before, and is looked at again.
    pub(super) held: bool,
    /// The time is up.
    pub(super) over: bool,
    /// What may not last.
    pub(super) caution: &'static str,
}

impl Runner {
    /// Not even the cluster could be looked at. Nothing is decided, but time passes.
    pub(super) async fn blind(
        &self,
        deorbit: &Deorbit,
        mut status: DeorbitStatus,
        limits: &Limits,
        (error, sight): (&ObserveError, &Sight),
        term: &Term,
    ) -> Result<Next, ProviderError> {
        if status.stages.is_empty() && error.is_denied() {
            return self.refuse(deorbit, error.to_string(), term).await;
        }
        let (why, now) = (error.to_string(), Timestamp::now());
        // Also before its first look a run has only as long as it has.
        let began = (!deorbit.spec.dry_run).then(|| stage::begun(status.started_at.get_or_insert(Time(now)), now));
        if !began.is_some_and(|began| stage::is_over(&began, limits.total(), now)) {
            status.message = why;
            self.write(deorbit, &status, term).await?;
            return Ok(Next::Soon);
        }
        let held = status.phase == Phase::Leftovers;
        let ending = Ending { held, over: true, caution: "" };
        self.finish(deorbit, status, Report::blind(&why, sight), ending, term).await
    }

    pub(super) async fn finish(
        &self,
        deorbit: &Deorbit,
        mut status: DeorbitStatus,
        report: Report,
        Ending { held, over, caution }: Ending,
        term: &Term,
    ) -> Result<Next, ProviderError> {
        let left = report.left();
        let clean = left == 0;
        let place = match self.keep(deorbit, &report, term).await {
            Ok(place) => {
                status.report_config_map.clone_from(&place);
                format!("the report is in ConfigMap {place}")
            }
            Err(error) if error.kind() == ErrorKind::Unavailable && !over => return Err(error),
            // An end that is told here is better than none.
            Err(error) => {
                status.report_config_map.clear();
                format!("the report is in this status only ({error})")
            }
        };
        status.left = u32::try_from(left).unwrap_or(u32::MAX);
        status.phase = if clean { Phase::Clean } else { Phase::Leftovers };
        status.let_go = clean || deorbit.spec.on_budget_end == OnBudgetEnd::Proceed;
        status.stage = String::new();
        status.message = match (clean, status.let_go) {
            (true, _) => format!("nothing is left, neither in Kubernetes nor in the cloud; {place}{caution}"),
            (false, true) => format!("{left} things are left, and the cluster may go all the same; {place}"),
            (false, false) => {
                format!("{left} things are left; {place}. It ends as clean as soon as somebody has removed them")
            }
        };
        status.report = report.lines.into_iter().take(SHOWN).collect();
        if !held || clean {
            status.ended_at = Some(Time(Timestamp::now()));
        }
        self.write(deorbit, &status, term).await?;
        Ok(if status.let_go { Next::Never } else { Next::Later })
    }

    /// The whole report, where it outlives the object.
    async fn keep(&self, deorbit: &Deorbit, report: &Report, term: &Term) -> Result<String, ProviderError> {
        let name = format!("deorbit-{}-report", deorbit.name_any());
        let mut lines = Vec::new();
        let mut size = 0;
        for line in &report.lines {
            let line = serde_json::to_value(line).unwrap_or_default();
            size += line.to_string().len() + 1;
            if size > LARGEST {
                break;
            }
            lines.push(line);
        }
        let document = json!({ "left": report.left(), "cut": report.lines.len() - lines.len(), "things": lines });
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
            "data": { "report.json": document.to_string() },
        });
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply("groundcrew-deorbit").force();
        let write = async {
            let written = maps.patch(&name, &params, &Patch::Apply(&map)).await;
            written.map_err(|error| ProviderError::from_kube("cannot write the report", &error))
        };
        term.write(self.deadline, write).await?;
        Ok(format!("{}/{name}", self.namespace))
    }
}

/// A route carries no mark, and goes without an object: who manages routes does not know that it was to go.
pub(super) fn caution(spec: &DeorbitSpec, status: &DeorbitStatus, cluster: &Cluster) -> &'static str {
    let removed = spec.policies.routes == Policy::Delete && !status.routes.is_empty();
    if removed && cluster.balancer_controller == Some(Life::Alive) {
        ". Routes were removed: a cloud controller manager that manages them, and it is alive, makes them again for Nodes that are there"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_may_make_routes_again_is_named_only_if_some_were_removed_and_it_lives() {
        let mut spec = DeorbitSpec::default();
        spec.policies.routes = Policy::Delete;
        let removed = DeorbitStatus { routes: vec!["r 100.100.1.0/24 10.180.1.1".into()], ..DeorbitStatus::default() };
        let with = |life: Life| Cluster { balancer_controller: Some(life), ..Cluster::default() };
        assert!(caution(&spec, &removed, &with(Life::Alive)).contains("makes them again"));
        assert_eq!(caution(&spec, &DeorbitStatus::default(), &with(Life::Alive)), "");
        assert_eq!(caution(&spec, &removed, &with(Life::Unknown)), "");
        assert_eq!(caution(&DeorbitSpec::default(), &removed, &with(Life::Alive)), "");
    }
}
