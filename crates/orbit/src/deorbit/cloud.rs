//! The clouds of a run, whatever they are, and what of this cluster they show.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use futures::stream::{self, StreamExt};
use groundcrew_api::deorbit::UnmarkedThing;
use groundcrew_core::leader::Term;
use groundcrew_core::provider::{
    ErrorKind, Leftover, LeftoverClass, LeftoverKind, Leftovers, Listing, Named, Presence, ProviderError,
};
use tokio::time::Instant;

use super::targets::Served;
use super::unmarked;

/// One listing, or as many questions as there are about single things. A client gives up on single calls long before.
const DEADLINE: Duration = Duration::from_mins(2);
/// Single things that are asked for at once.
const AT_ONCE: usize = 8;

/// [`Leftovers`] of whatever type, so that a run has several.
trait Any: Send + Sync {
    fn kinds(&self) -> &'static [LeftoverKind];
    fn drivers(&self) -> &'static [&'static str];
    fn classes(&self) -> &'static [&'static str];
    fn recall(&self, found: Option<&[String]>);
    fn find(&self) -> BoxFuture<'_, Result<Listing<Leftover>, ProviderError>>;
    fn presence<'a>(&'a self, named: &'a Named) -> BoxFuture<'a, Result<Presence, ProviderError>>;
    fn remove<'a>(&'a self, leftover: &'a Leftover, term: &'a Term) -> BoxFuture<'a, Result<(), ProviderError>>;
}

impl<L: Leftovers> Any for L {
    fn kinds(&self) -> &'static [LeftoverKind] {
        Leftovers::kinds(self)
    }

    fn drivers(&self) -> &'static [&'static str] {
        Leftovers::drivers(self)
    }

    fn classes(&self) -> &'static [&'static str] {
        Leftovers::classes(self)
    }

    fn recall(&self, found: Option<&[String]>) {
        Leftovers::recall(self, found);
    }

    fn find(&self) -> BoxFuture<'_, Result<Listing<Leftover>, ProviderError>> {
        Box::pin(Leftovers::find(self))
    }

    fn presence<'a>(&'a self, named: &'a Named) -> BoxFuture<'a, Result<Presence, ProviderError>> {
        Box::pin(Leftovers::presence(self, named))
    }

    fn remove<'a>(&'a self, leftover: &'a Leftover, term: &'a Term) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(Leftovers::remove(self, leftover, term))
    }
}

/// All clouds that a cluster has things in. Cheap to clone.
#[derive(Clone, Default)]
pub struct Clouds(Vec<Arc<dyn Any>>);

/// What they show.
#[derive(Debug, Clone, Default)]
pub struct Sight {
    /// In the order in which they must go.
    pub items: Vec<Leftover>,
    /// What may be missing, and why. Only without any is an empty list a clean cloud.
    pub gaps: Vec<String>,
}

impl Clouds {
    /// Adds one.
    #[must_use]
    pub fn with(mut self, cloud: impl Leftovers) -> Self {
        self.0.push(Arc::new(cloud));
        self
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whose claims and Services they see to.
    #[must_use]
    pub fn served(&self) -> Served {
        let mut served = Served::default();
        for cloud in &self.0 {
            served.drivers.extend(cloud.drivers().iter().map(ToString::to_string));
            served.classes.extend(cloud.classes().iter().map(ToString::to_string));
        }
        served
    }

    /// What a run has found since it began; `None` before.
    pub fn recall(&self, found: Option<&[String]>) {
        for cloud in &self.0 {
            cloud.recall(found);
        }
    }

    /// Everything of this cluster. A cloud that does not answer leaves a gap and hides nothing of the others.
    pub async fn look(&self) -> Sight {
        let found = join_all(self.0.iter().map(|cloud| async move {
            match tokio::time::timeout(DEADLINE, cloud.find()).await {
                Ok(found) => found.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
            }
        }));
        let mut sight = Sight::default();
        for (cloud, found) in self.0.iter().zip(found.await) {
            let kinds: Vec<_> = cloud.kinds().iter().map(|kind| kind.name).collect();
            match found {
                Ok(mut listing) => {
                    if !listing.complete {
                        sight.gaps.push(format!("the list of {} is incomplete", kinds.join(", ")));
                    }
                    let place = |leftover: &Leftover| cloud.kinds().iter().position(|kind| *kind == leftover.kind);
                    listing.items.sort_by_key(|leftover| (place(leftover), leftover.id.clone()));
                    sight.items.extend(listing.items);
                }
                Err(error) => sight.gaps.push(format!("cannot list {}: {error}", kinds.join(", "))),
            }
        }
        sight
    }

    /// Whether something that an object names is still there. Only one cloud knows it.
    pub async fn presence(&self, named: &Named) -> Result<Presence, ProviderError> {
        let mut presence = Presence::Unknown;
        for cloud in &self.0 {
            let told = tokio::time::timeout(DEADLINE, cloud.presence(named)).await;
            match told.map_err(|_| ProviderError::new(ErrorKind::Unavailable, "no answer"))?? {
                Presence::There => return Ok(Presence::There),
                Presence::Gone => presence = Presence::Gone,
                Presence::Unknown => {}
            }
        }
        Ok(presence)
    }

    /// Adds those of the things that objects named without a mark on them which are not surely gone, and what nobody could
    /// find out. Gives those that are gone. One call for each, so that only those are asked for whose objects are gone.
    pub async fn look_for(&self, things: Vec<UnmarkedThing>, sight: &mut Sight) -> Vec<UnmarkedThing> {
        let mut gone = Vec::new();
        // All of them together: each would wait just as long, and the clocks are looked at between passes only.
        let until = Instant::now() + DEADLINE;
        let asked = stream::iter(things).map(|thing| async move {
            let told = tokio::time::timeout_at(until, self.presence(&unmarked::named(&thing))).await;
            let silent = |_| Err(ProviderError::new(ErrorKind::Unavailable, "no answer in time"));
            (thing, told.unwrap_or_else(silent))
        });
        let mut told: Vec<_> = asked.buffer_unordered(AT_ONCE).collect().await;
        told.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (thing, presence) in told {
            match presence {
                Ok(Presence::Gone) => gone.push(thing),
                Ok(presence) => sight.items.push(unmarked::leftover(&thing, presence == Presence::There)),
                Err(error) => {
                    sight.gaps.push(format!("cannot see whether {} {} is gone: {error}", thing.kind, thing.name));
                }
            }
        }
        gone
    }

    /// Removes one thing. Its cloud looks at it once more.
    pub async fn remove(&self, leftover: &Leftover, term: &Term) -> Result<(), ProviderError> {
        let cloud = self.0.iter().find(|cloud| cloud.kinds().contains(&leftover.kind));
        let unknown = || ProviderError::new(ErrorKind::Invalid, format!("nobody knows {}", leftover.kind.name));
        // One thing may take many calls, as a group that is on many ports.
        let removed = tokio::time::timeout(DEADLINE, cloud.ok_or_else(unknown)?.remove(leftover, term)).await;
        removed.unwrap_or_else(|_| {
            let message = format!("not done within {} s; the next look shows how far it came", DEADLINE.as_secs());
            Err(ProviderError::new(ErrorKind::Unavailable, message).with_maybe_applied(true))
        })
    }

    /// The names of all that they look for.
    #[must_use]
    pub fn names(&self) -> BTreeSet<&'static str> {
        self.0.iter().flat_map(|cloud| cloud.kinds()).map(|kind| kind.name).collect()
    }

    /// What they know at all.
    #[must_use]
    pub fn kinds(&self) -> BTreeSet<LeftoverClass> {
        self.0.iter().flat_map(|cloud| cloud.kinds()).map(|kind| kind.class).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: LeftoverKind = LeftoverKind { name: "thing", class: LeftoverClass::Volume };

    /// A cloud that takes every question and answers none.
    struct Silent;

    impl Leftovers for Silent {
        fn kinds(&self) -> &'static [LeftoverKind] {
            &[KIND]
        }

        async fn find(&self) -> Result<Listing<Leftover>, ProviderError> {
            std::future::pending().await
        }

        async fn presence(&self, _: &Named) -> Result<Presence, ProviderError> {
            std::future::pending().await
        }

        async fn remove(&self, _: &Leftover, _: &Term) -> Result<(), ProviderError> {
            std::future::pending().await
        }
    }

    fn thing(number: usize) -> UnmarkedThing {
        let (kind, name) = ("PersistentVolume".into(), format!("pv-{number}"));
        UnmarkedThing { kind, name, driver: "driver".into(), handle: number.to_string() }
    }

    #[tokio::test(start_paused = true)]
    async fn many_questions_to_a_cloud_that_never_answers_take_as_long_as_one() {
        let (clouds, mut sight, began) = (Clouds::default().with(Silent), Sight::default(), Instant::now());
        let gone = clouds.look_for((0..100).map(thing).collect(), &mut sight).await;
        assert_eq!((gone.len(), sight.items.len(), sight.gaps.len()), (0, 0, 100));
        assert!(began.elapsed() < DEADLINE * 2, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_removal_that_never_ends_is_left() {
        let clouds = Clouds::default().with(Silent);
        let leftover = Leftover { kind: KIND, ..unmarked::leftover(&thing(1), true) };
        let error = clouds.remove(&leftover, &Term::alone("test")).await.unwrap_err();
        assert_eq!((error.kind(), error.maybe_applied()), (ErrorKind::Unavailable, true));
    }
}
