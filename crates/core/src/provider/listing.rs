//! Listings that know whether they are whole.

/// Everything that one listing returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<T> {
    /// What was seen.
    pub items: Vec<T>,
    /// Whether every page and every part of the cloud answered. **Nothing is deleted on an incomplete listing.**
    pub complete: bool,
}

impl<T> Listing<T> {
    /// A listing of which every part arrived.
    #[must_use]
    pub fn complete(items: Vec<T>) -> Self {
        Self { items, complete: true }
    }

    /// A listing of which something is missing.
    #[must_use]
    pub fn incomplete(items: Vec<T>) -> Self {
        Self { items, complete: false }
    }
}
