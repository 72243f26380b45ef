//! Services for which something was written that the listener has not come past yet.
//!
//! Changes that arrive while the listener is busy are joined into one. A row that we put back and that somebody takes
//! away again at once is then missing before and after, and nobody would look. So whoever was written for is looked at
//! once more when the listener has come past the write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use groundcrew_core::key::ServiceKey;
use groundcrew_core::provider::Look;
use ovsdb_client::Replica;
use tokio::sync::broadcast;

use crate::northbound::Northbound;

#[derive(Debug, Clone, Default)]
pub(crate) struct Unseen(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    written: HashMap<ServiceKey, Write>,
    /// The state that the listener has come to.
    passed: u64,
}

#[derive(Debug, Default)]
struct Write {
    /// The state of the replica at its end; none while it is under way.
    ended: Option<u64>,
    /// The last state in which the listener itself saw that something of the Service had changed.
    looked: u64,
}

/// A write that is under way until this is dropped, however it ends.
#[must_use]
pub(crate) struct UnderWay {
    unseen: Unseen,
    services: Vec<ServiceKey>,
    replica: Replica<Northbound>,
    looks: broadcast::Sender<Look>,
}

impl Unseen {
    /// Something is about to be written for these.
    pub(crate) fn write(
        &self,
        services: Vec<ServiceKey>,
        replica: &Replica<Northbound>,
        looks: &broadcast::Sender<Look>,
    ) -> UnderWay {
        self.lock().written.extend(services.iter().map(|service| (service.clone(), Write::default())));
        UnderWay { unseen: self.clone(), services, replica: replica.clone(), looks: looks.clone() }
    }

    /// The listener has come to this state and would look at these. Takes those from it that most likely changed by our own
    /// hand, and returns them with whomever it would not see.
    pub(crate) fn passed(&self, generation: u64, look: &mut Option<Look>) -> Option<Look> {
        let mut state = self.lock();
        state.passed = generation;
        if state.written.is_empty() {
            return None;
        }
        let mut in_passing = Vec::new();
        match look {
            Some(Look::These(services)) => {
                let mut is_written = |service: &mut ServiceKey| match state.written.get_mut(service) {
                    Some(write) => {
                        write.looked = generation;
                        true
                    }
                    None => false,
                };
                in_passing.extend(services.extract_if(.., &mut is_written));
                if services.is_empty() {
                    *look = None;
                }
            }
            Some(_) => state.written.values_mut().for_each(|write| write.looked = generation),
            None => {}
        }
        state.written.retain(|service, write| {
            let is_past = write.ended.is_some_and(|ended| ended <= generation);
            if is_past && write.looked < generation {
                in_passing.push(service.clone());
            }
            !is_past
        });
        (!in_passing.is_empty()).then_some(Look::InPassing(in_passing))
    }

    /// Who must be looked at at once, because the listener has come past the write and saw nothing of it.
    fn end(&self, services: &[ServiceKey], generation: u64) -> Vec<ServiceKey> {
        let mut state = self.lock();
        let is_past = state.passed >= generation;
        let mut late = Vec::new();
        for service in services {
            if !is_past {
                if let Some(write) = state.written.get_mut(service) {
                    write.ended = Some(generation);
                }
            } else if state.written.remove(service).is_some_and(|write| write.looked < generation) {
                late.push(service.clone());
            }
        }
        late
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let late = self.unseen.end(&self.services, self.replica.snapshot().generation());
        if !late.is_empty() {
            // Nobody listens any more when the process ends.
            let _ = self.looks.send(Look::InPassing(late));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("shop", name)
    }

    fn writing(name: &str) -> Unseen {
        let unseen = Unseen::default();
        unseen.lock().written.insert(key(name), Write::default());
        unseen
    }

    fn passed(unseen: &Unseen, generation: u64, services: &[&str]) -> (Option<Look>, Option<Look>) {
        let services: Vec<_> = services.iter().map(|name| key(name)).collect();
        let mut look = (!services.is_empty()).then_some(Look::These(services));
        let in_passing = unseen.passed(generation, &mut look);
        (look, in_passing)
    }

    fn in_passing(name: &str) -> Look {
        Look::InPassing(vec![key(name)])
    }

    #[test]
    fn a_row_that_came_and_went_between_two_looks_is_looked_for_once_after_the_write() {
        let unseen = writing("web");
        assert_eq!(passed(&unseen, 9, &[]), (None, None), "it is under way");
        assert_eq!(unseen.end(&[key("web")], 10), []);
        assert_eq!(passed(&unseen, 9, &[]), (None, None), "the write is in a state that is not seen yet");
        assert_eq!(passed(&unseen, 11, &[]), (None, Some(in_passing("web"))));
        assert_eq!(passed(&unseen, 12, &[]), (None, None));
    }

    #[test]
    fn where_the_listener_is_quicker_than_the_answer_the_end_of_the_write_tells() {
        let unseen = writing("web");
        assert_eq!(passed(&unseen, 10, &[]), (None, None));
        assert_eq!(unseen.end(&[key("web")], 10), [key("web")]);
        assert_eq!(passed(&unseen, 11, &[]), (None, None));
    }

    #[test]
    fn who_changes_by_our_own_hand_is_looked_at_in_passing_and_others_first() {
        let unseen = writing("web");
        assert_eq!(
            passed(&unseen, 10, &["api", "web"]),
            (Some(Look::These(vec![key("api")])), Some(in_passing("web")))
        );
        assert_eq!(unseen.end(&[key("web")], 10), [], "it was looked at after the write");
        assert_eq!(passed(&unseen, 11, &["web"]), (Some(Look::These(vec![key("web")])), None));
    }

    #[test]
    fn a_look_at_everything_is_one_at_whoever_was_written_for() {
        let unseen = writing("web");
        let mut look = Some(Look::Everywhere);
        assert_eq!(unseen.passed(10, &mut look), None);
        assert_eq!(look, Some(Look::Everywhere));
        assert_eq!(unseen.end(&[key("web")], 10), []);
    }
}
