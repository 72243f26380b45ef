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

    /// The same by the wall clock as it goes now: who asks after a jump gets what it should have said then.
    #[must_use]
    pub fn by_the_wall(self) -> Timestamp {
        self.counted_back(Self::now(), Timestamp::now())
    }

    /// The same for people, to the second.
    #[must_use]
    pub fn wall_clock(self) -> String {
        format!("{:.0}", self.by_the_wall())
    }

    fn counted_back(self, now: Self, wall: Timestamp) -> Timestamp {
        let passed = SignedDuration::try_from(self.until(now)).unwrap_or_default();
        wall.checked_sub(passed).unwrap_or_default()
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_wall_clock_did_meanwhile_a_moment_is_as_long_ago_as_it_is() {
        const MINUTE: Duration = Duration::from_mins(1);
        let then = Moment::now();
        let wall = Timestamp::from_second(1_800_000_000).unwrap();
        for jump in [-3_600, 0, 3_600] {
            let jumped = wall + SignedDuration::from_secs(jump);
            assert_eq!(jumped.duration_since(then.counted_back(then + MINUTE, jumped)), SignedDuration::from_mins(1));
        }
    }
}
