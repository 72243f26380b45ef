//! What a cluster leaves outside when it goes, and how to prove that it left nothing.

use super::{Listing, ProviderError};
use crate::leader::Term;

/// Something outside that carries a cluster's mark.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leftover {
    /// One of [`Leftovers::kinds`].
    pub kind: &'static str,
    /// What the provider finds it by.
    pub id: String,
    /// What a person knows it by.
    pub name: String,
    /// For whom it was made, as its mark says, and how large it is where that is worth money.
    pub about: String,
    /// What a person would type to remove it.
    pub command: String,
}

/// The verbs of a cloud that can show what is left of a cluster, and remove it.
///
/// They are for the end of a cluster, when the controllers that would clean up may be dead. So nothing is believed: what
/// is removed must still carry the mark at that moment, and must have no living user.
pub trait Leftovers: Send + Sync + 'static {
    /// The kinds of things that it knows, in the order in which they must be removed: what answers before what is
    /// answered on.
    fn kinds(&self) -> &'static [&'static str];

    /// Everything outside that carries this cluster's mark, in no order.
    fn find(&self) -> impl Future<Output = Result<Listing<Leftover>, ProviderError>> + Send;

    /// Removes one of them. Gone already is fine; one that is in use, or not this cluster's any more, is refused.
    fn remove(&self, leftover: &Leftover, term: &Term) -> impl Future<Output = Result<(), ProviderError>> + Send;
}
