//! Until when this node may answer for addresses. Pure.

use groundcrew_core::leader::Moment;

/// What the renewals of the Lease allow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Authority {
    /// Counts the times that it was regained. A claim of an earlier term is worth nothing: meanwhile the address may have
    /// been given to another node.
    pub(crate) term: u64,
    deadline: Option<Moment>,
}

impl Authority {
    /// When it ends, if it has not ended.
    pub(crate) fn deadline(&self, now: Moment) -> Option<Moment> {
        self.deadline.filter(|deadline| now < *deadline)
    }

    /// The Lease was renewed.
    pub(crate) fn renewed(&mut self, deadline: Moment, now: Moment) {
        if self.deadline(now).is_none() {
            self.term += 1;
        }
        self.deadline = self.deadline(now).max(Some(deadline));
    }

    /// Nobody can move our addresses now, so we may keep them; what had ended before stays ended.
    pub(crate) fn extended(&mut self, deadline: Moment, now: Moment) {
        if let Some(old) = self.deadline(now) {
            self.deadline = Some(old.max(deadline));
        }
    }

    /// We give up everything.
    pub(crate) fn end(&mut self) {
        self.deadline = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_renewal_in_time_goes_on_and_a_late_one_begins_anew() {
        let start = Moment::now();
        let mut authority = Authority::default();
        assert_eq!(authority.deadline(start), None);
        authority.renewed(start + s(7), start);
        authority.renewed(start + s(9), start + s(2));
        assert_eq!((authority.term, authority.deadline(start + s(8))), (1, Some(start + s(9))));
        assert_eq!(authority.deadline(start + s(9)), None);
        authority.renewed(start + s(17), start + s(10));
        assert_eq!(authority.term, 2);
    }

    #[test]
    fn neither_an_old_answer_nor_other_agents_bring_back_what_has_ended() {
        let start = Moment::now();
        let mut authority = Authority::default();
        authority.extended(start + s(7), start);
        assert_eq!(authority.deadline(start), None);
        authority.renewed(start + s(7), start);
        authority.renewed(start + s(5), start + s(1));
        assert_eq!(authority.deadline(start + s(6)), Some(start + s(7)), "answers may overtake each other");
        authority.extended(start + s(20), start + s(8));
        assert_eq!(authority.deadline(start + s(8)), None);
    }
}
