//! One thing that was looked at, and what to do about it.

use serde::Serialize;

/// How something was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// As it should be.
    Good,
    /// Broken: `next` says what to do.
    Bad,
    /// Worth knowing; it breaks nothing.
    Note,
    /// It could not be looked at, so neither good nor bad.
    Unknown,
    /// Not looked at, because something before it is broken.
    Skipped,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What it is, in a word or two.
    pub(crate) name: &'static str,
    pub(crate) state: State,
    /// What was found, in words.
    pub(crate) found: String,
    /// The next thing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

impl Finding {
    fn new(name: &'static str, state: State, found: impl Into<String>) -> Self {
        Self { name, state, found: found.into(), next: None }
    }

    pub(crate) fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, State::Good, found)
    }

    pub(crate) fn note(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, State::Note, found)
    }

    pub(crate) fn bad(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..Self::new(name, State::Bad, found) }
    }

    pub(crate) fn unknown(name: &'static str, why: impl Into<String>, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..Self::new(name, State::Unknown, why) }
    }

    /// What could be done about a note.
    pub(crate) fn with_next(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }

    pub(crate) fn skipped(name: &'static str, because: &str) -> Self {
        Self::new(name, State::Skipped, format!("not looked at: {because}"))
    }
}

/// What all findings together say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Whole,
    Broken,
    /// Nothing is broken as far as could be seen, but not everything could.
    Unknown,
}

impl Verdict {
    pub(crate) fn of(findings: &[Finding]) -> Self {
        let any = |state| findings.iter().any(|finding| finding.state == state);
        if any(State::Bad) {
            Self::Broken
        } else if any(State::Unknown) {
            Self::Unknown
        } else {
            Self::Whole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_broken_counts_for_more_than_what_could_not_be_seen() {
        let (good, note) = (Finding::good("a", ""), Finding::note("b", ""));
        let (unknown, bad) = (Finding::unknown("c", "", ""), Finding::bad("d", "", ""));
        assert_eq!(Verdict::of(&[good.clone(), note.clone()]), Verdict::Whole);
        assert_eq!(Verdict::of(&[good.clone(), unknown.clone()]), Verdict::Unknown);
        assert_eq!(Verdict::of(&[good, note, unknown, bad]), Verdict::Broken);
    }
}
