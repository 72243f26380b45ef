//! Services that cannot be served and have no address yet, counted when somebody asks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, Opts};
use tokio::sync::watch;

use crate::key::ServiceKey;
use crate::leader::{Moment, Term};

#[derive(Clone)]
pub(super) struct Pending {
    /// By a clock that does not jump: how long somebody waits is what the alert is about.
    since: Arc<Mutex<HashMap<ServiceKey, Moment>>>,
    /// Who does not lead does not look, and knows nothing of what waits.
    term: watch::Receiver<Option<Term>>,
    services: IntGauge,
    oldest: IntGauge,
}

impl Pending {
    pub(super) fn new(term: watch::Receiver<Option<Term>>) -> prometheus::Result<Self> {
        let services =
            Opts::new("groundcrew_service_pending", "Services that have no address and cannot be served now.");
        let oldest = Opts::new(
            "groundcrew_service_pending_since_timestamp_seconds",
            "Since when the one of them that has waited longest is known to; 0 where there is none.",
        );
        let (services, oldest) = (IntGauge::with_opts(services)?, IntGauge::with_opts(oldest)?);
        Ok(Self { since: Arc::default(), term, services, oldest })
    }

    pub(super) fn begins(&self, key: &ServiceKey) {
        self.lock().entry(key.clone()).or_insert_with(Moment::now);
    }

    pub(super) fn ends(&self, key: &ServiceKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ServiceKey, Moment>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Pending {
    fn desc(&self) -> Vec<&Desc> {
        [self.services.desc(), self.oldest.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut since = self.lock();
        if self.term.borrow().is_none() {
            since.clear();
        }
        self.services.set(since.len().try_into().unwrap_or(i64::MAX));
        self.oldest.set(since.values().min().map_or(0, |oldest| oldest.by_the_wall().as_second()));
        [self.services.collect(), self.oldest.collect()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pending: &Pending) -> (i64, bool) {
        pending.collect();
        (pending.services.get(), pending.oldest.get() > 0)
    }

    #[test]
    fn what_waits_is_counted_until_it_is_served_or_somebody_else_leads() {
        let (term, following) = watch::channel(Some(Term::alone("test")));
        let pending = Pending::new(following).unwrap();
        assert_eq!(shown(&pending), (0, false));
        let (first, second) = (ServiceKey::new("a", "one"), ServiceKey::new("a", "two"));
        pending.begins(&first);
        pending.begins(&first);
        pending.begins(&second);
        assert_eq!(shown(&pending), (2, true));
        pending.ends(&first);
        assert_eq!(shown(&pending), (1, true));
        term.send_replace(None);
        assert_eq!(shown(&pending), (0, false));
    }
}
