//! What the process still waits for before it is ready.

use std::collections::BTreeMap;
use std::fmt;

use tokio::sync::watch;

/// The things that must have happened once before the process is ready, each with what is known about its delay.
///
/// Followers are ready too: they are warm, and a rolling update waits for them.
#[derive(Debug, Clone)]
pub struct Readiness {
    waiting: watch::Sender<BTreeMap<&'static str, String>>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self { waiting: watch::Sender::new(BTreeMap::new()) }
    }
}

impl Readiness {
    /// Not ready until [`Readiness::done`] with the same name; `why` replaces what was said before.
    pub fn wait_for(&self, what: &'static str, why: impl Into<String>) {
        self.waiting.send_modify(|waiting| {
            waiting.insert(what, why.into());
        });
    }

    /// Says more about what is still waited for; nothing where it has happened already.
    pub fn explain(&self, what: &'static str, why: impl Into<String>) {
        self.waiting.send_modify(|waiting| {
            if let Some(reason) = waiting.get_mut(what) {
                *reason = why.into();
            }
        });
    }

    /// It has happened.
    pub fn done(&self, what: &'static str) {
        self.waiting.send_modify(|waiting| {
            waiting.remove(what);
        });
    }

    /// Resolves when all of these have happened.
    pub async fn until_done(&self, whats: &[&str]) {
        let mut waiting = self.waiting.subscribe();
        // The sender lives in `self`, so the channel cannot close under us.
        let _ = waiting.wait_for(|waiting| whats.iter().all(|what| !waiting.contains_key(what))).await;
    }

    /// Resolves when nothing is waited for any more.
    pub async fn until_ready(&self) {
        let mut waiting = self.waiting.subscribe();
        let _ = waiting.wait_for(BTreeMap::is_empty).await;
    }

    /// `Err` lists what is missing, for `/readyz` and for the log.
    pub fn check(&self) -> Result<(), NotReady> {
        let waiting = self.waiting.borrow();
        if waiting.is_empty() { Ok(()) } else { Err(NotReady(waiting.clone())) }
    }
}

/// What is missing, one line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotReady(BTreeMap<&'static str, String>);

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (what, why)) in self.0.iter().enumerate() {
            let separator = if n == 0 { "" } else { "; " };
            write!(f, "{separator}waiting for {what}")?;
            if !why.is_empty() {
                write!(f, ": {why}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_only_when_nothing_is_missing_and_says_what_is() {
        let ready = Readiness::default();
        ready.wait_for("OVN", "tcp:192.0.2.1:6641 refused the connection");
        ready.wait_for("cache of Services", "");
        let said = ready.check().unwrap_err().to_string();
        assert_eq!(said, "waiting for OVN: tcp:192.0.2.1:6641 refused the connection; waiting for cache of Services");
        ready.done("OVN");
        ready.until_done(&["OVN"]).await;
        ready.explain("OVN", "too late to say more");
        assert_eq!(ready.check().unwrap_err().to_string(), "waiting for cache of Services");
        ready.done("cache of Services");
        assert_eq!(ready.check(), Ok(()));
    }
}
