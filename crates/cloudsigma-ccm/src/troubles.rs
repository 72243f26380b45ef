//! What keeps addresses from their nodes at the moment, for whoever tells the users.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;

#[derive(Debug, Clone, Default)]
pub(crate) struct Troubles(Arc<Mutex<BTreeMap<IpAddr, Error>>>);

impl Troubles {
    pub(crate) fn get(&self, address: IpAddr) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&address).cloned()
    }

    /// Whether that is news.
    pub(crate) fn set(&self, address: IpAddr, trouble: Option<&Error>) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match trouble {
            Some(error) => all.insert(address, error.clone()),
            None => all.remove(&address),
        };
        before.as_ref().map(Error::to_string) != trouble.map(Error::to_string)
    }
}
