//! Watches a Deorbit to its end, whoever carries it out.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use groundcrew_api::deorbit::{Deorbit, DeorbitStatus, Phase, ReportLine};
use groundcrew_core::leader::Role;
use groundcrew_core::provider::ProviderError;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use tokio::sync::watch;
use tokio::time::Instant;

use super::show::{exit, progress, report_table};
use super::{CLEAN, FAILED, Output, REFUSED, complain, say};
use crate::deorbit::cloud::Clouds;
use crate::deorbit::report::Report;
use crate::deorbit::run::{LATE, Runner};

const PAUSE: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_secs(10);

/// Whoever carries it out ends it when the time is up, and may be in a long look then.
pub(super) const SLACK: Duration = Duration::from_mins(1);

/// Time for a leader to be found and to look at everything.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// What to follow and how to tell it.
pub struct Follow {
    pub(super) api: Api<Deorbit>,
    pub(super) name: String,
    pub(super) output: Output,
    pub(super) report: Option<PathBuf>,
    pub(super) total: Duration,
    /// Whether something was left before: it may be gone by now, and somebody has to look first.
    pub(super) held: bool,
    /// For when Kubernetes says nothing any more.
    pub(super) clouds: Clouds,
    /// Whether the cluster may go then.
    pub(super) proceed: bool,
}

impl Follow {
    /// The code to exit with.
    pub(super) async fn until_the_end(self) -> u8 {
        let terminal = std::io::stderr().is_terminal();
        let mut told = String::new();
        let began = Instant::now();
        let mut last = DeorbitStatus::default();
        let fresh = Instant::now() + if self.held { LOOK_AGAIN } else { Duration::ZERO };
        loop {
            match tokio::time::timeout(DEADLINE, self.api.get_opt(&self.name)).await {
                Ok(Ok(Some(deorbit))) => {
                    let status = deorbit.status.unwrap_or_default();
                    let stale = status.phase == Phase::Leftovers && Instant::now() < fresh;
                    if !stale && matches!(status.phase, Phase::Clean | Phase::Leftovers | Phase::Refused) {
                        return self.end(&status, terminal).await;
                    }
                    // Whoever carries it out would have ended it, if it could.
                    if began.elapsed() >= self.total + SLACK {
                        let why = format!("the time is up, and nobody has ended it: {}", status.message);
                        return self.end(&self.blind(status, &why).await, terminal).await;
                    }
                    self.tell(&status, &mut told, terminal);
                    last = status;
                }
                Ok(Ok(None)) if last.irreversible_at.is_none() => {
                    complain("aborted: somebody deleted the Deorbit, and everything is as it was");
                    return REFUSED;
                }
                Ok(Ok(None)) => {
                    let why = "somebody deleted the Deorbit after the first things were deleted";
                    return self.end(&self.blind(last, why).await, terminal).await;
                }
                // Refused, another's certificate, no right, silence: it is all the same to somebody who waits.
                silent => {
                    let why = match silent {
                        Ok(Err(error)) => ProviderError::from_kube("Kubernetes does not answer", &error).to_string(),
                        _ => format!("Kubernetes does not answer within {} s", DEADLINE.as_secs()),
                    };
                    if began.elapsed() >= self.total {
                        let why = format!("the time is up, and {why}");
                        return self.end(&self.blind(last, &why).await, terminal).await;
                    }
                    if last.message != why {
                        last.message = why;
                        self.tell(&last, &mut told, terminal);
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// There is nobody to write down how it ended: what the clouds show is told here.
    async fn blind(&self, last: DeorbitStatus, why: &str) -> DeorbitStatus {
        let sight = self.clouds.look().await;
        let report = Report::blind(why, &sight);
        DeorbitStatus {
            phase: Phase::Leftovers,
            left: u32::try_from(report.left()).unwrap_or(u32::MAX),
            let_go: self.proceed,
            stage: String::new(),
            message: format!("{why}. The clouds show {} things", sight.items.len()),
            report: report.lines,
            report_config_map: String::new(),
            ..last
        }
    }

    /// A status has room for the first lines only.
    async fn whole(&self, status: &DeorbitStatus) -> Vec<ReportLine> {
        #[derive(serde::Deserialize)]
        struct Document {
            things: Vec<ReportLine>,
        }
        let Some((namespace, name)) = status.report_config_map.split_once('/') else { return status.report.clone() };
        let maps: Api<ConfigMap> = Api::namespaced(self.api.clone().into_client(), namespace);
        let read = tokio::time::timeout(DEADLINE, maps.get_opt(name)).await.ok().and_then(Result::ok).flatten();
        let text = read.and_then(|map| map.data?.remove("report.json")).unwrap_or_default();
        if let Ok(document) = serde_json::from_str::<Document>(&text) {
            return document.things;
        }
        complain(&format!("cannot read ConfigMap {namespace}/{name}: these are the first lines of the report"));
        status.report.clone()
    }

    /// On a terminal one line that is written over, otherwise one for each change.
    fn tell(&self, status: &DeorbitStatus, told: &mut String, terminal: bool) {
        let line = progress(status, self.total, Timestamp::now());
        if terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
            let _ = std::io::stderr().flush();
        } else if *told != status.message {
            complain(&line);
            told.clone_from(&status.message);
        }
    }

    async fn end(&self, status: &DeorbitStatus, terminal: bool) -> u8 {
        if terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        let status = &DeorbitStatus { report: self.whole(status).await, ..status.clone() };
        let document = serde_json::to_string_pretty(&status).unwrap_or_default();
        if let Some(path) = &self.report
            && let Err(error) = std::fs::write(path, &document)
        {
            complain(&format!("cannot write {}: {error}", path.display()));
        }
        match self.output {
            Output::Json => say(&format!("{document}\n")),
            Output::Table => {
                say(&report_table(&status.report));
                complain(&format!("{:?}: {}", status.phase, status.message));
            }
        }
        exit(status)
    }
}

/// Waits until an abort is done, and does it where no controller leads.
pub(super) async fn until_aborted(
    api: &Api<Deorbit>,
    name: &str,
    runner: &mut Runner,
    role: watch::Receiver<Role>,
) -> u8 {
    match until_gone(api, name, runner, role, false).await {
        Ok(()) => {
            complain("aborted: everything that was stopped runs again, and new objects may be made");
            CLEAN
        }
        Err(code) => code,
    }
}

/// Waits until one that is being deleted is gone, and does what that takes where no controller leads.
pub(super) async fn until_gone(
    api: &Api<Deorbit>,
    name: &str,
    runner: &mut Runner,
    role: watch::Receiver<Role>,
    late: bool,
) -> Result<(), u8> {
    let mut told = String::new();
    loop {
        match tokio::time::timeout(DEADLINE, api.get_opt(name)).await {
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(deorbit))) if deorbit.metadata.deletion_timestamp.is_some() => {
                if !late && deorbit.status.as_ref().is_some_and(|status| status.irreversible_at.is_some()) {
                    complain("too late: things have been deleted; it stops where it is");
                    return Err(REFUSED);
                }
                let term = role.borrow().term().cloned();
                // In the status, where it is another's to end as well.
                let _ = runner.pass(&deorbit, term.as_ref()).await;
                let message = deorbit.status.map(|status| status.message).unwrap_or_default();
                if message.starts_with(LATE) && message != told {
                    complain(&message);
                    told = message;
                }
            }
            Ok(Ok(Some(_))) => {
                complain("somebody made it anew");
                return Err(FAILED);
            }
            Ok(Err(_)) | Err(_) => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}
