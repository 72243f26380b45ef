//! How many broadcasts this node may send: clouds drop what is beyond their limit, for all its addresses together.

use std::sync::{Mutex, PoisonError};

use groundcrew_core::leader::Moment;

/// A fifth of the burst, and two fifths of the rate, that CloudSigma used to document for a network card.
const BURST: f64 = 20.0;
const PER_SECOND: f64 = 2.0;

pub(crate) struct Pace(Mutex<(f64, Moment)>);

impl Pace {
    pub(crate) fn new(now: Moment) -> Self {
        Self(Mutex::new((BURST, now)))
    }

    /// Whether one may be sent now.
    pub(crate) fn admit(&self, now: Moment) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (tokens, counted) = *state;
        let tokens = (tokens + counted.until(now).as_secs_f64() * PER_SECOND).min(BURST);
        let admitted = tokens >= 1.0;
        *state = (if admitted { tokens - 1.0 } else { tokens }, now);
        admitted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_passes_and_then_two_a_second() {
        let start = Moment::now();
        let pace = Pace::new(start);
        assert_eq!((0..100).filter(|_| pace.admit(start)).count(), 20);
        let later = (0..100).filter(|n| pace.admit(start + Duration::from_millis(100 * n))).count();
        assert!((19..=20).contains(&later), "{later} in ten seconds");
    }
}
