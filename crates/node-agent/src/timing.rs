//! How long an address may be held without a word from the API server. Pure.
//!
//! A renewal that was sent at `s` was seen by the controller at `s` or later. The controller waits for
//! [`Timings::take_over`] after that; all that this node does for its addresses ends at `s + round_trip + valid`, and
//! the kernel, whose timers are late by up to a quarter of a second, follows within the half second that is left.

use std::time::Duration;

use groundcrew_core::leader::Moment;

/// The kernel's timers are late, and so is everything else.
const MARGIN: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timings {
    /// How often the Lease is renewed.
    pub(crate) renew: Duration,
    /// How long the kernel keeps an address; whole seconds, as that is how the kernel counts.
    pub(crate) valid: Duration,
    /// The longest renewal that does not cost lifetime.
    pub(crate) round_trip: Duration,
}

impl Timings {
    pub(crate) const DEFAULT: Self =
        Self { renew: Duration::from_secs(2), valid: Duration::from_secs(6), round_trip: Duration::from_secs(1) };
    pub(crate) const FAST: Self = Self {
        renew: Duration::from_millis(500),
        valid: Duration::from_secs(2),
        round_trip: Duration::from_millis(300),
    };

    /// How long the controller must have seen no renewal before it gives our addresses to others.
    pub(crate) fn take_over(self) -> Duration {
        let exact = self.valid + self.round_trip + MARGIN;
        Duration::from_secs(exact.as_secs() + u64::from(exact.subsec_nanos() > 0))
    }

    /// When a renewal sent at `sent` ends.
    pub(crate) fn deadline(self, sent: Moment) -> Moment {
        sent + self.round_trip + self.valid
    }

    /// When what other agents said at `asked` ends. One of them may not know for as long as a request takes that its Lease was
    /// renewed, while the controller does and takes over after [`Self::take_over`].
    pub(crate) fn extension(self, asked: Moment) -> Moment {
        asked + (self.round_trip + self.valid).saturating_sub(self.attempt())
    }

    /// The longest request in renewing the Lease. A late answer still counts from when it was asked for, so patience costs
    /// nothing; but a connection that died is only left by giving up on it.
    pub(crate) fn attempt(self) -> Duration {
        self.renew.max(self.round_trip)
    }

    /// For how many seconds the kernel may be told to keep an address; `None` where it is not even one.
    pub(crate) fn lifetime(self, now: Moment, deadline: Moment) -> Option<u32> {
        let seconds = now.until(deadline).min(self.valid).as_secs();
        u32::try_from(seconds).ok().filter(|seconds| *seconds > 0)
    }

    /// From when on we tell other agents that we do not reach the API server: only when the controller certainly
    /// counts us among the late ones, for which half of [`Self::take_over`] without a renewal is enough.
    pub(crate) fn out(self) -> Duration {
        self.take_over() / 2 + self.round_trip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_gone_before_it_is_taken_over_whenever_the_kernel_was_told() {
        for timings in [Timings::DEFAULT, Timings::FAST] {
            let sent = Moment::now();
            let take_over = sent + timings.take_over();
            for late in (0..20_000).step_by(50).map(Duration::from_millis) {
                let told = sent + late;
                let Some(seconds) = timings.lifetime(told, timings.deadline(sent)) else { continue };
                let gone = told + Duration::from_secs(seconds.into()) + MARGIN;
                assert!(gone <= take_over, "{timings:?} told {late:?} after it was sent");
            }
        }
    }

    #[test]
    fn the_delays_are_those_that_the_controller_is_told() {
        assert_eq!(Timings::DEFAULT.take_over(), Duration::from_secs(8));
        assert_eq!(Timings::FAST.take_over(), Duration::from_secs(3));
        for timings in [Timings::DEFAULT, Timings::FAST] {
            assert!(timings.out() < timings.round_trip + timings.valid, "there is time to ask before the end");
            let now = Moment::now();
            let asking = timings.renew / 4 + timings.round_trip;
            assert!(now + asking < timings.extension(now), "there is time to ask again");
            assert!(timings.lifetime(now, timings.extension(now)).is_some());
        }
    }
}
