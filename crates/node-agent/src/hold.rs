//! What to do next about one address. Pure: no kernel, no API server, no clock of its own.
//!
//! ```text
//!  wanted --claim--> ours --probe--> nobody answers --show--> on the interface --announce--> --report ready
//!                                                                   |
//!           not wanted, no authority, link down: hide at once ------+--> release the claim
//!
//!  wanted, no interface for it: refuse, so that it goes elsewhere
//! ```

use std::time::Duration;

use groundcrew_core::leader::Moment;

use crate::authority::Authority;
use crate::timing::Timings;

/// A lost burst must not strand an address: some soon, then one now and then for ever.
const ANNOUNCEMENTS: [Duration; 5] = [Duration::from_millis(1_100); 5];
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(45);
/// How soon something refused is tried again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// A `FloatingIP` as this node reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    /// It names this node.
    pub(crate) wanted: bool,
    pub(crate) serial: i64,
    pub(crate) claim: Claim,
}

/// Whose the claim in the status is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Nobody's yet, as far as anybody told.
    Never,
    /// Nobody's: the last holder has confirmed that the address is gone from it.
    Released,
    Ours,
    Theirs {
        /// The controller says that it does not count any more.
        evicted: bool,
    },
}

/// Where this node stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The term and the serial for which the API server took our claim.
    pub(crate) claim: Option<(u64, i64)>,
    /// Nobody else answered for the address since that claim, or nobody can.
    pub(crate) clear: bool,
    /// Until when the kernel keeps it.
    pub(crate) shown: Option<Moment>,
    /// How often everybody was told, and when that was tried last.
    pub(crate) announced: Option<(usize, Moment)>,
    /// The status says that we serve it.
    pub(crate) reported: bool,
    /// The serial for which the status says that we cannot have it.
    pub(crate) refused: Option<i64>,
    /// The API server, the kernel or another host said no; not again before this.
    pub(crate) not_before: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Take the address from the interface.
    Hide,
    /// Take our claim from the status; nothing is on the interface.
    Release,
    /// Tell in the status that we cannot have it. It is nobody's, or of one whose claim does not count.
    Refuse,
    /// Write our claim into the status, for this term; `clear` where nobody can have the address.
    Claim {
        term: u64,
        clear: bool,
    },
    /// Ask whether somebody has the address.
    Probe,
    /// Have the kernel keep the address for so long.
    Show {
        seconds: u32,
    },
    Announce,
    /// Tell in the status that we serve it.
    Report,
    /// Nothing until then, or until something changes.
    Wait {
        until: Option<Moment>,
    },
}

/// The next step. `able` is false while the interface has no link.
pub(crate) fn next(
    wish: Option<Wish>,
    able: bool,
    authority: &Authority,
    standing: &Standing,
    timings: Timings,
    now: Moment,
) -> Act {
    let deadline = authority.deadline(now);
    let mine = wish.filter(|wish| wish.wanted && able);
    let claimed = mine.is_some_and(|wish| standing.claim == Some((authority.term, wish.serial)));
    if standing.shown.is_some() && !(claimed && deadline.is_some()) {
        return Act::Hide;
    }
    let waiting = standing.not_before.filter(|then| now < *then);
    let Some(mine) = mine else {
        return match wish {
            Some(Wish { claim: Claim::Ours, .. }) if waiting.is_none() => Act::Release,
            // Whoever placed it here would wait for ever.
            Some(Wish { wanted: true, serial, claim })
                if waiting.is_none()
                    && deadline.is_some()
                    && claim != (Claim::Theirs { evicted: false })
                    && standing.refused != Some(serial) =>
            {
                Act::Refuse
            }
            _ => Act::Wait { until: waiting },
        };
    };
    // Whoever has no authority can do nothing; regaining it wakes us.
    let Some(deadline) = deadline else { return Act::Wait { until: None } };
    if waiting.is_some() && standing.shown.is_none() {
        return Act::Wait { until: waiting };
    }
    if !claimed {
        return match mine.claim {
            Claim::Theirs { evicted: false } => Act::Wait { until: None },
            claim => Act::Claim { term: authority.term, clear: claim == Claim::Released },
        };
    }
    if !standing.clear {
        return Act::Probe;
    }
    let lifetime = timings.lifetime(now, deadline);
    let Some(shown) = standing.shown else {
        // So close to its end that only a renewal helps.
        return lifetime.map_or(Act::Wait { until: Some(deadline) }, |seconds| Act::Show { seconds });
    };
    // Each renewal moves the deadline; telling the kernel the same again would only be work.
    if waiting.is_none()
        && let Some(seconds) = lifetime.filter(|seconds| longer(now, *seconds, shown))
    {
        return Act::Show { seconds };
    }
    // The kernel would not prolong it, and has taken it away by now.
    if shown <= now {
        return Act::Wait { until: waiting.or(Some(deadline)) };
    }
    let announcement = announcement_due(standing.announced);
    if announcement.is_none_or(|due| due <= now) {
        return Act::Announce;
    }
    if !standing.reported && waiting.is_none() {
        return Act::Report;
    }
    let next = [announcement, waiting, Some(deadline), Some(shown)];
    Act::Wait { until: next.into_iter().flatten().min() }
}

/// Whether the kernel would keep it noticeably longer than it does now.
fn longer(now: Moment, seconds: u32, shown: Moment) -> bool {
    shown + Duration::from_millis(200) < now + Duration::from_secs(seconds.into())
}

/// `None`: it never was announced, so at once.
fn announcement_due(announced: Option<(usize, Moment)>) -> Option<Moment> {
    announced.map(|(times, last)| last + ANNOUNCEMENTS.get(times.saturating_sub(1)).copied().unwrap_or(ANNOUNCE_AGAIN))
}

#[cfg(test)]
mod tests;
