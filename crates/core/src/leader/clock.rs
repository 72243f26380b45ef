//! Time that goes on while the machine sleeps.

use std::ops::Add;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nix::time::{ClockId, clock_gettime};

/// A moment on `CLOCK_BOOTTIME`: monotonic, and counting through suspend. `std::time::Instant` stands still while a
/// virtual machine is suspended, so a leader that wakes up would believe in a lease that ended long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        // The call cannot fail for this clock on Linux; a clock that stood still at the far end would end every lease,
        // which is the safe side.
        Self(clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::MAX, Into::into))
    }

    /// So long before now.
    #[must_use]
    pub fn ago(passed: Duration) -> Self {
        Self(Self::now().0.saturating_sub(passed))
    }

    /// How long until `later`; zero where it has passed.
    #[must_use]
    pub fn until(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }

    /// The same for people: by the wall clock as it goes now, to the second.
    #[must_use]
    pub fn wall_clock(self) -> String {
        let passed = SignedDuration::try_from(self.until(Self::now())).unwrap_or_default();
        let then = Timestamp::now().checked_sub(passed).unwrap_or_default();
        format!("{then:.0}")
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}
