//! Objects that come, go, or change in what matters of them: a reason to look at once, and nothing more.

use std::collections::BTreeMap;
use std::sync::Arc;

use groundcrew_core::watch::Sink;
use tokio::sync::Notify;

/// Wakes whoever waits for `notify`.
#[derive(Debug)]
pub(crate) struct Wake<K, M> {
    pub(crate) notify: Arc<Notify>,
    /// The name of an object, and what of it is worth a look.
    mark: fn(K) -> (String, M),
    /// Nothing before the first list, which is news: it may be later than the first pass, and have a change in it.
    known: Option<BTreeMap<String, M>>,
    /// What a list that is not complete has shown so far.
    listed: BTreeMap<String, M>,
}

impl<K, M> Wake<K, M> {
    pub(crate) fn new(mark: fn(K) -> (String, M)) -> Self {
        Self { notify: Arc::default(), mark, known: None, listed: BTreeMap::new() }
    }
}

impl<K, M: Clone + PartialEq + Send> Sink<K> for Wake<K, M> {
    fn apply(&mut self, object: K) {
        let (name, mark) = (self.mark)(object);
        if self.known.get_or_insert_default().insert(name, mark.clone()) != Some(mark) {
            self.notify.notify_one();
        }
    }

    fn delete(&mut self, object: K) {
        self.known.get_or_insert_default().remove(&(self.mark)(object).0);
        self.notify.notify_one();
    }

    fn list_begins(&mut self) {
        self.listed.clear();
    }

    fn listed(&mut self, object: K) {
        let (name, mark) = (self.mark)(object);
        self.listed.insert(name, mark);
    }

    fn list_complete(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        if self.known.as_ref() != Some(&listed) {
            self.notify.notify_one();
        }
        self.known = Some(listed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn what_matters_of_an_object_wakes_and_the_rest_does_not() {
        // What matters, and what does not.
        let mut wake = Wake::new(|(matters, _): (bool, u32)| ("a".into(), matters));
        let notify = wake.notify.clone();
        let woken = || notify.notified().now_or_never().is_some();
        wake.list_begins();
        wake.listed((true, 0));
        wake.list_complete();
        assert!(woken(), "the first pass may have been before it");
        wake.apply((true, 1));
        assert!(!woken());
        wake.apply((false, 2));
        assert!(woken());
        wake.list_begins();
        wake.listed((false, 3));
        wake.list_complete();
        assert!(!woken(), "a watch that broke has missed nothing");
        wake.delete((false, 3));
        assert!(woken());
    }
}
