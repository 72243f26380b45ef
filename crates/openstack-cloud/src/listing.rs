//! The client's listings as a controller's.

use groundcrew_core::provider::Listing;
use tracing::warn;

/// Item by item. One that cannot be translated makes it incomplete, as one that could not be read.
pub(crate) fn translate<T, U>(
    what: &str,
    listing: openstack_client::Listing<T>,
    mut item: impl FnMut(T) -> Result<U, String>,
) -> Listing<U> {
    let mut complete = listing.is_complete();
    for gap in &listing.gaps {
        warn!(%gap, "the list of {what} is incomplete");
    }
    let mut items = Vec::with_capacity(listing.items.len());
    for one in listing.items {
        match item(one) {
            Ok(translated) => items.push(translated),
            Err(gap) => {
                complete = false;
                warn!(gap, "the list of {what} is incomplete");
            }
        }
    }
    Listing { items, complete }
}
