//! What people are told. Only the leader speaks to them; in a dry run there are only log lines.

use groundcrew_core::drift::{Cause, Held};
use groundcrew_core::events::{Events, Severity, reference};
use groundcrew_core::key::ServiceKey;
use groundcrew_core::leader::Moment;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::ObjectReference;
use tracing::{debug, info, warn};

use crate::book::{Alarm, Repaired};
use crate::cluster::Service;
use crate::rounds::Mass;
use crate::verify::Finding;

/// Findings in one Event; the rest is counted.
const SHOWN: usize = 3;

/// What is done about a drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// The manager was asked to rebuild it.
    Asked,
    /// Nothing: somebody has asked it already.
    UnderWay,
    /// Nothing: report-only.
    Shown,
    /// Nothing: it is not the manager's to repair.
    Impossible,
}

pub(crate) struct Reporter {
    pub(crate) events: Events,
    /// What a summary is about: the watcher itself.
    pub(crate) about: ObjectReference,
}

impl Reporter {
    /// `in_a_crowd`: one of so many that a summary says more.
    pub(crate) fn drift(&self, service: &Service, alarm: &Alarm, cause: &Cause, deed: Deed, in_a_crowd: bool) {
        let what = describe(&alarm.findings);
        let done = match deed {
            Deed::Asked => "kube-dc's manager was asked to rebuild it",
            Deed::UnderWay => "kube-dc's manager was asked to rebuild it already",
            Deed::Shown => "report-only: it would be asked to be rebuilt",
            Deed::Impossible => "kube-dc's manager cannot repair this; it is asked as soon as it can",
        };
        if in_a_crowd {
            return debug!(service = %service.key, cause = cause.label, "drift: {what}; {done}");
        }
        let remedy = cause.remedy.as_deref().unwrap_or("none known");
        warn!(service = %service.key, cause = cause.label, remedy, "drift: {what}; by {}; {done}", cause.words);
        let to_prevent = cause.remedy.as_ref().map(|remedy| format!(". To prevent it: {remedy}")).unwrap_or_default();
        let note = format!("{what}; by {}; {done}{to_prevent}", cause.words);
        self.tell(service, Severity::Warning, "DriftFound", note);
    }

    pub(crate) fn overdue(&self, service: &Service, alarm: &Alarm, report_only: bool) {
        let what = describe(&alarm.findings);
        if alarm.in_a_crowd {
            return debug!(service = %service.key, asked = alarm.attempts, "still not repaired: {what}");
        }
        if !alarm.is_repairable() {
            return debug!(service = %service.key, "still as it was told: {what}");
        }
        warn!(service = %service.key, asked = alarm.attempts, "still not repaired: {what}");
        // It is not the manager's fault then, and what is in its way was told.
        if report_only || alarm.is_hindered() {
            return;
        }
        let note = format!(
            "not repaired after {} requests to kube-dc's manager: {what}. See whether it runs, and its log",
            alarm.attempts
        );
        self.tell(service, Severity::Warning, "RepairOverdue", note);
    }

    pub(crate) fn repaired(&self, service: &Service, repaired: &Repaired) {
        let took = repaired.took.as_secs_f64();
        if repaired.in_a_crowd {
            return debug!(service = %service.key, took_s = took, "as it should be again");
        }
        info!(service = %service.key, took_s = took, "as it should be again");
        if repaired.told {
            let note = format!("as it should be again, {took:.1} s after the change");
            self.tell(service, Severity::Normal, "DriftRepaired", note);
        }
    }

    pub(crate) fn odd(&self, service: &Service, findings: &[Finding]) {
        let what = describe(findings);
        info!(service = %service.key, "differs from what we compute, and is left as it is: {what}");
        let note = format!("differs from what is expected, and is left to kube-dc: {what}");
        self.tell(service, Severity::Normal, "DifferenceSeen", note);
    }

    pub(crate) fn flapping(&self, service: &Service, alarm: &Alarm, held: Held, kube_ovn: Option<String>, now: Moment) {
        let what = describe(&alarm.findings);
        let near = kube_ovn.map(|words| format!(" (kube-ovn-controller: {words})")).unwrap_or_default();
        let note = format!(
            "changed again and again by somebody else{near} since {}, last at {}: {} repairs since it was last left \
             alone; now {what}. The next one waits {} s. Find the other writer",
            held.since.wall_clock(),
            alarm.seen.wall_clock(),
            held.repairs,
            now.until(held.until).as_secs_f64().ceil()
        );
        warn!(service = %service.key, repairs = held.repairs, "drift flapping: {note}");
        self.tell(service, Severity::Warning, "DriftFlapping", note);
    }

    pub(crate) fn mass(&self, mass: &Mass) {
        let Mass { services, cause, .. } = mass;
        let names: Vec<_> = mass.examples.iter().map(ToString::to_string).collect();
        let more = if *services > names.len() { ", ..." } else { "" };
        let remedy = cause.remedy.as_deref().unwrap_or("none known");
        let note = format!(
            "{services} Services at once ({}{more}), by {}. To prevent it: {remedy}",
            names.join(", "),
            cause.words
        );
        warn!(services, cause = cause.label, remedy, "mass drift: {note}");
        self.events.tell(self.about.clone(), Severity::Warning, "MassDrift", note);
    }

    pub(crate) fn orphan(&self, row: &str, namespace: &str) {
        warn!(row, namespace, "orphan: no Service has this row; remove it with `ovn-nbctl lb-del {row}`");
        let note =
            format!("OVN has the load balancer {row}, but no Service does; remove it with `ovn-nbctl lb-del {row}`");
        self.events.tell(reference::<core::Namespace>(None, namespace, None), Severity::Warning, "OrphanRow", note);
    }

    pub(crate) fn ambiguous(&self, service: &Service, row: &str, others: &[ServiceKey]) {
        let others: Vec<_> = others.iter().filter(|key| **key != service.key).map(ToString::to_string).collect();
        let others = others.join(", ");
        warn!(service = %service.key, row, others, "one row name for several Services: none of them is verified");
        let note = format!(
            "kube-dc gives the OVN load balancer {row} to this Service and to {others}; neither is verified or \
             repaired. Rename one of them"
        );
        self.tell(service, Severity::Warning, "NameAmbiguous", note);
    }

    fn tell(&self, service: &Service, severity: Severity, reason: &'static str, note: String) {
        let ServiceKey { namespace, name } = &service.key;
        let about = reference::<core::Service>(Some(namespace.clone()), name, Some(service.uid.to_string()));
        debug!(service = %service.key, reason, note, "event");
        self.events.tell(about, severity, reason, note);
    }
}

fn describe(findings: &[Finding]) -> String {
    let shown: Vec<_> = findings.iter().take(SHOWN).map(|f| format!("{} {}", f.row, f.difference())).collect();
    let more = findings.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    shown.join("; ") + &more
}
