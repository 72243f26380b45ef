//! Services for which something was written that the listener has not come past yet.
//!
//! Changes that arrive while the listener is busy are joined into one. A row that we put back and that somebody takes
//! away again at once is then missing before and after, and nobody would look. So whoever was written for is looked at
//! once more when the listener has come past the write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use groundcrew_core::key::ServiceKey;
use ovsdb_client::Replica;

use crate::northbound::Northbound;

#[derive(Debug, Clone, Default)]
pub(crate) struct Unseen(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// By Service: the state of the replica at the end of its last write; none while one is under way.
    written: HashMap<ServiceKey, Option<u64>>,
    /// The state that the listener has come to.
    passed: u64,
}

/// A write that is under way until this is dropped, however it ends.
#[must_use]
pub(crate) struct UnderWay {
    unseen: Unseen,
    services: Vec<ServiceKey>,
    replica: Replica<Northbound>,
}

impl Unseen {
    /// Something is about to be written for these.
    pub(crate) fn write(&self, services: Vec<ServiceKey>, replica: &Replica<Northbound>) -> UnderWay {
        self.lock().written.extend(services.iter().map(|service| (service.clone(), None)));
        UnderWay { unseen: self.clone(), services, replica: replica.clone() }
    }

    /// The listener has come to this state: who must be looked at.
    pub(crate) fn passed(&self, generation: u64) -> Vec<ServiceKey> {
        let mut state = self.lock();
        state.passed = generation;
        let services = state.written.keys().cloned().collect();
        state.written.retain(|_, ended| ended.is_none_or(|ended| ended > generation));
        services
    }

    fn end(&self, services: &[ServiceKey], generation: u64) {
        let mut state = self.lock();
        // Whoever was under way when the listener came past is looked at already, and what comes next is told apart.
        let is_seen = state.passed >= generation;
        for service in services {
            if is_seen {
                state.written.remove(service);
            } else if let Some(ended) = state.written.get_mut(service) {
                *ended = Some(generation);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.unseen.end(&self.services, self.replica.snapshot().generation());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("shop", name)
    }

    #[test]
    fn whoever_is_written_for_is_looked_at_until_the_listener_has_passed_the_write() {
        let unseen = Unseen::default();
        unseen.lock().written.insert(key("web"), None);
        assert_eq!(unseen.passed(7), [key("web")], "it is under way");
        assert_eq!(unseen.passed(8), [key("web")]);
        unseen.end(&[key("web")], 10);
        assert_eq!(unseen.passed(9), [key("web")], "joined with what is not seen yet");
        assert_eq!(unseen.passed(10), [key("web")]);
        assert_eq!(unseen.passed(11), []);
    }

    #[test]
    fn who_was_looked_at_after_the_write_is_not_looked_at_for_the_next_change_of_others() {
        let unseen = Unseen::default();
        unseen.lock().written.insert(key("web"), None);
        assert_eq!(unseen.passed(10), [key("web")], "the write is in this state, its answer not read yet");
        unseen.end(&[key("web")], 10);
        assert_eq!(unseen.passed(11), []);
    }
}
