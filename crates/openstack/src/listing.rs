//! Listings that know whether they are whole.

use crate::error::Error;

/// Everything that one listing returned, and what kept it from being everything there is.
#[derive(Debug, Clone)]
pub struct Listing<T> {
    /// What was seen, each thing once, in the order of the service.
    pub items: Vec<T>,
    /// Why something may be missing: a page that failed, an item that cannot be understood, a part of the cloud that is down.
    pub gaps: Vec<Error>,
}

impl<T> Listing<T> {
    /// Whether every page and every part of the cloud answered. **Delete nothing by an incomplete listing**: what is
    /// not in it may well be there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.gaps.is_empty()
    }

    /// The items if there is nothing missing, or else the first reason why not.
    pub fn complete(self) -> Result<Vec<T>, Error> {
        match self.gaps.into_iter().next() {
            None => Ok(self.items),
            Some(gap) => Err(gap.map_message(|message| format!("the listing is incomplete: {message}"))),
        }
    }
}
