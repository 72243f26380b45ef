//! Tables, lines of progress, and codes to exit with. Pure.

use std::fmt::Write;
use std::time::Duration;

use groundcrew_api::deorbit::{DeorbitStatus, Phase, PlanLine, ReportLine, StageState};
use jiff::Timestamp;

use super::{CLEAN, LEFTOVERS, REFUSED};

/// The code that says how it is. What may go although something is left is as good as clean to a hook.
#[must_use]
pub fn exit(status: &DeorbitStatus) -> u8 {
    match status.phase {
        Phase::Clean => CLEAN,
        Phase::Leftovers if status.let_go => CLEAN,
        // With stages, it was not refused before something was done.
        Phase::Refused if status.stages.is_empty() => REFUSED,
        // A hook that asks after a plan must not let the cluster go.
        Phase::Pending | Phase::Planned | Phase::Running | Phase::Leftovers | Phase::Refused => LEFTOVERS,
    }
}

/// Columns as wide as their widest word, but for the last.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: Vec<&str>| {
        let mut row = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(row, "{cell:width$}  ");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    };
    line(head.to_vec());
    for row in rows {
        line(row.iter().map(String::as_str).collect());
    }
    text
}

/// What would go.
#[must_use]
pub fn plan_table(lines: &[PlanLine]) -> String {
    if lines.is_empty() {
        return "nothing of this cluster is outside\n".into();
    }
    let rows: Vec<_> = lines
        .iter()
        .map(|line| {
            let (stage, count) = (format!("{:?}", line.stage), line.count.to_string());
            vec![stage, line.action.clone(), count, line.kind.clone(), names(line)]
        })
        .collect();
    table(&["STAGE", "ACTION", "COUNT", "KIND", "NAMES"], &rows)
}

fn names(line: &PlanLine) -> String {
    let shown = line.names.join(", ");
    let rest = usize::try_from(line.count).unwrap_or(usize::MAX).saturating_sub(line.names.len());
    if rest > 0 { format!("{shown} and {rest} more") } else { shown }
}

/// What would go, as the lines of a diff, and why it would not.
#[must_use]
pub fn plan_diff(lines: &[PlanLine], refusals: &[String]) -> Vec<String> {
    let refused = refusals.iter().map(|refusal| format!("! it would be refused: {refusal}"));
    let steps = lines.iter().map(|line| {
        let sign = match line.action.as_str() {
            "delete" | "wait for" => '-',
            "scale to 0" | "suspend" => '~',
            _ => '=',
        };
        format!("{sign} {} {} ({}): {}", line.action, line.kind, line.count, names(line))
    });
    refused.chain(steps).collect()
}

/// What is left.
#[must_use]
pub fn report_table(lines: &[ReportLine]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = lines
        .iter()
        .map(|line| {
            let state = if line.kept { "kept" } else { "left" };
            vec![
                state.to_owned(),
                line.kind.clone(),
                line.id.clone(),
                line.size.clone(),
                line.reason.clone(),
                line.command.clone(),
            ]
        })
        .collect();
    table(&["STATE", "KIND", "ID", "SIZE", "REASON", "TO REMOVE IT"], &rows)
}

/// All of it.
pub(super) fn status_table(status: &DeorbitStatus) -> String {
    let rows: Vec<_> = status
        .stages
        .iter()
        .map(|stage| {
            let done = stage.total.saturating_sub(stage.left);
            let state = match stage.state {
                StageState::Running => "running",
                StageState::Done => "done",
                StageState::GivenUp => "given up",
            };
            vec![format!("{:?}", stage.name), state.into(), format!("{done}/{}", stage.total), stage.message.clone()]
        })
        .collect();
    let mut text = format!("{:?}: {}\n", status.phase, status.message);
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&table(&["STAGE", "STATE", "DONE", "WHY"], &rows));
    }
    if !status.report.is_empty() {
        text.push('\n');
        text.push_str(&report_table(&status.report));
    }
    text
}

/// One line: how far it is, for how long it has run, and how long it may.
#[must_use]
pub fn progress(status: &DeorbitStatus, total: Duration, now: Timestamp) -> String {
    let began = status.started_at.as_ref().map_or(now, |time| time.0);
    let elapsed = Duration::try_from(now.duration_since(began)).unwrap_or_default();
    let left = total.saturating_sub(elapsed);
    let what = if status.message.is_empty() { format!("{:?}", status.phase) } else { status.message.clone() };
    format!("{}  ({} left)  {what}", clock(elapsed), clock(left))
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use groundcrew_api::deorbit::{StageName, StageStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn a_plan_is_a_diff_of_what_goes_stops_and_stays_after_what_forbids_it() {
        let line = |action: &str, kind: &str, count, names: &[&str]| PlanLine {
            stage: StageName::Cloud,
            action: action.into(),
            kind: kind.into(),
            count,
            names: names.iter().copied().map(str::to_owned).collect(),
        };
        let lines = [
            line("scale to 0", "StatefulSet", 1, &["shop/db"]),
            line("delete", "Service", 3, &["shop/a", "shop/b"]),
            line("keep", "volume", 1, &["photos"]),
        ];
        assert_eq!(
            plan_diff(&lines, &["spec.confirm is missing".to_owned()]),
            [
                "! it would be refused: spec.confirm is missing",
                "~ scale to 0 StatefulSet (1): shop/db",
                "- delete Service (3): shop/a, shop/b and 1 more",
                "= keep volume (1): photos",
            ]
        );
    }

    #[test]
    fn codes_say_what_a_pipeline_needs_to_know() {
        let status = |phase, let_go| DeorbitStatus { phase, let_go, ..DeorbitStatus::default() };
        for (phase, let_go, code) in [
            (Phase::Clean, true, 0),
            (Phase::Leftovers, false, 3),
            (Phase::Leftovers, true, 0),
            (Phase::Refused, false, 4),
            (Phase::Running, false, 3),
            (Phase::Planned, false, 3),
        ] {
            assert_eq!(exit(&status(phase, let_go)), code, "{phase:?}");
        }
        // Something was done, and not all of it could be put back.
        let stage = StageStatus {
            name: StageName::Quiesce,
            state: StageState::GivenUp,
            started_at: Time(Timestamp::UNIX_EPOCH),
            ended_at: None,
            total: 1,
            left: 1,
            message: String::new(),
        };
        assert_eq!(exit(&DeorbitStatus { stages: vec![stage], ..status(Phase::Refused, false) }), 3);
    }

    #[test]
    fn a_table_lines_up_and_counts_what_it_does_not_name() {
        let line = PlanLine {
            stage: StageName::Claims,
            action: "delete".into(),
            kind: "PersistentVolumeClaim".into(),
            count: 3,
            names: vec!["a/b".into()],
        };
        let expected = "STAGE   ACTION  COUNT  KIND                   NAMES\n\
                        Claims  delete  3      PersistentVolumeClaim  a/b and 2 more\n";
        assert_eq!(plan_table(&[line]), expected);
    }

    #[test]
    fn progress_tells_both_clocks() {
        let status = DeorbitStatus { message: "Claims: 1 of 2 left".into(), ..DeorbitStatus::default() };
        let line = progress(&status, Duration::from_hours(2), Timestamp::UNIX_EPOCH);
        assert_eq!(line, "0:00:00  (2:00:00 left)  Claims: 1 of 2 left");
    }
}
