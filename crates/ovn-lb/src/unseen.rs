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

/// By Service: the state of the replica at the end of its last write; none while one is under way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unseen(Arc<Mutex<HashMap<ServiceKey, Option<u64>>>>);

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
        self.lock().extend(services.iter().map(|service| (service.clone(), None)));
        UnderWay { unseen: self.clone(), services, replica: replica.clone() }
    }

    /// The listener has come to this state: who must be looked at.
    pub(crate) fn passed(&self, generation: u64) -> Vec<ServiceKey> {
        let mut unseen = self.lock();
        let services = unseen.keys().cloned().collect();
        unseen.retain(|_, ended| ended.is_none_or(|ended| ended > generation));
        services
    }

    fn end(&self, services: &[ServiceKey], generation: u64) {
        let mut unseen = self.lock();
        for service in services {
            if let Some(ended) = unseen.get_mut(service) {
                *ended = Some(generation);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ServiceKey, Option<u64>>> {
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
        unseen.lock().insert(key("web"), None);
        assert_eq!(unseen.passed(7), [key("web")], "it is under way");
        assert_eq!(unseen.passed(8), [key("web")]);
        unseen.end(&[key("web")], 10);
        assert_eq!(unseen.passed(9), [key("web")], "joined with what is not seen yet");
        assert_eq!(unseen.passed(10), [key("web")]);
        assert_eq!(unseen.passed(11), []);
    }
}
