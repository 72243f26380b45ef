//! Families and ports of a served Service that no endpoint is ready for.
//!
//! Slices of two families tell of one pod one after the other, and pods are restarted all the time. So a gap is told only
//! once it has lasted, and no rolling update writes a condition. It is over at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::names::READY;
use super::object::Service;
use crate::key::ServiceKey;
use crate::provider::{Caveat, Frontend, Wanted};

/// For how long a gap may be one of a pod that is restarted.
const LASTING: Duration = Duration::from_secs(30);

/// How many gaps a message names.
const MOST_NAMED: usize = 3;

const BEGINNING: &str = "no endpoint is ready for ";

#[derive(Default)]
pub(super) struct Gaps(Mutex<HashMap<ServiceKey, Gap>>);

struct Gap {
    words: String,
    since: Instant,
    lasts: bool,
}

impl Gaps {
    /// What to tell, and when to look again. `told` is asked what its condition says already, which may be another leader's
    /// word.
    pub(super) fn judge(
        &self,
        wanted: &Wanted,
        told: impl FnOnce() -> Option<String>,
        now: Instant,
    ) -> (Option<Caveat>, Option<Duration>) {
        let (mut gaps, key) = (self.lock(), &wanted.owner().key);
        if !wanted.has_backends() {
            // Told as a whole. What was missing before will most likely be missing when the pods are back.
            if gaps.get(key).is_some_and(|gap| !gap.lasts) {
                gaps.remove(key);
            }
            return (None, None);
        }
        let Some(words) = words(wanted) else {
            gaps.remove(key);
            return (None, None);
        };
        let told = told();
        let gap = gaps.entry(key.clone()).or_insert_with(|| Gap { words: words.clone(), since: now, lasts: false });
        if gap.words != words {
            *gap = Gap { words, since: now, lasts: false };
        }
        let lasted = now.saturating_duration_since(gap.since);
        gap.lasts |= lasted >= LASTING || told.as_ref() == Some(&gap.words);
        if gap.lasts {
            return (Some(caveat(gap.words.clone())), None);
        }
        (told.map(caveat), Some(LASTING.saturating_sub(lasted)))
    }

    pub(super) fn forget(&self, key: &ServiceKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ServiceKey, Gap>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The gap that the Service's condition tells.
pub(super) fn told(service: &Service) -> Option<String> {
    let ready = service.conditions.iter().find(|condition| &*condition.kind == READY)?;
    ready.message.split("; ").find(|part| part.starts_with(BEGINNING)).map(ToOwned::to_owned)
}

fn caveat(message: String) -> Caveat {
    Caveat { reason: "EndpointsMissing", message, stops: false }
}

/// Families first: what a whole family lacks is not told for each port. Never which endpoints there are, as those come and
/// go.
fn words(wanted: &Wanted) -> Option<String> {
    let has = |frontend: &Frontend, v4: bool| frontend.backends.iter().any(|backend| backend.address.is_ipv4() == v4);
    let published = [true, false].into_iter().filter(|v4| wanted.addresses.iter().any(|vip| vip.is_ipv4() == *v4));
    let (answering, silent): (Vec<_>, Vec<_>) =
        published.partition(|v4| wanted.frontends.iter().any(|frontend| has(frontend, *v4)));
    let family = |v4: &bool| if *v4 { "IPv4" } else { "IPv6" };
    let mut gaps: Vec<String> = silent.iter().map(|v4| family(v4).to_owned()).collect();
    for frontend in &wanted.frontends {
        let port = format!("port {}/{}", frontend.port, frontend.protocol);
        let lacks: Vec<_> = answering.iter().filter(|v4| !has(frontend, **v4)).collect();
        match lacks[..] {
            [] => {}
            [one] if answering.len() > 1 => gaps.push(format!("{port} on {}", family(one))),
            _ => gaps.push(port),
        }
    }
    let more = match gaps.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    gaps.truncate(MOST_NAMED);
    (!gaps.is_empty()).then(|| format!("{BEGINNING}{}{more}: connections there are refused", gaps.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::provider::{AddressAsk, Backend, Families, Owner, Protocol, TrafficPolicy};

    type Ports<'a> = &'a [(u16, &'a [&'a str])];

    /// A Service of both families with these backends of each of its ports.
    fn wanted(ports: Ports<'_>) -> Wanted {
        let backend = |address: &&str| Backend { address: address.parse().unwrap(), port: 8080, node: None };
        let frontend = |(port, backends): &(u16, &[&str])| Frontend {
            protocol: Protocol::Tcp,
            port: *port,
            node_port: None,
            backends: backends.iter().map(backend).collect(),
        };
        let ask = AddressAsk {
            owner: Owner { key: ServiceKey::new("shop", "web"), uid: Uuid::from_u128(1) },
            families: Families::V4V6,
            one_is_enough: true,
            requested: Vec::new(),
            share_with: None,
            share_families: None,
            current: Vec::new(),
            annotations: Arc::default(),
        };
        Wanted {
            ask,
            addresses: ["192.0.2.7", "2001:db8::7"].map(|vip| vip.parse().unwrap()).to_vec(),
            frontends: ports.iter().map(frontend).collect(),
            traffic_policy: TrafficPolicy::Cluster,
            affinity: None,
            source_ranges: Vec::new(),
        }
    }

    const BOTH: &[&str] = &["10.0.0.1", "fd00::1"];
    const V4: &[&str] = &["10.0.0.1"];
    const V6: &[&str] = &["fd00::1"];

    #[test]
    fn it_names_families_and_ports_and_no_addresses() {
        let said = |ports: Ports<'_>| {
            let words = words(&wanted(ports))?;
            Some(words.strip_prefix(BEGINNING)?.strip_suffix(": connections there are refused")?.to_owned())
        };
        assert_eq!(said(&[(80, BOTH), (443, BOTH)]), None);
        assert_eq!(said(&[(80, V4), (443, V4)]).unwrap(), "IPv6");
        assert_eq!(said(&[(80, BOTH), (443, &[])]).unwrap(), "port 443/tcp");
        assert_eq!(said(&[(80, BOTH), (443, V6)]).unwrap(), "port 443/tcp on IPv4");
        assert_eq!(said(&[(80, V4), (443, &[])]).unwrap(), "IPv6, port 443/tcp");
        let many: Vec<(u16, &[&str])> = (81..90).map(|port| (port, &[][..])).chain([(80, BOTH)]).collect();
        assert_eq!(said(&many).unwrap(), "port 81/tcp, port 82/tcp, port 83/tcp and 6 more");
        let mut single = wanted(&[(80, V4)]);
        single.addresses.truncate(1);
        assert_eq!(words(&single), None, "a family without an address has nothing to answer on");
    }

    #[test]
    fn backends_of_a_family_without_an_address_are_none() {
        let mut single = wanted(&[(80, V4)]);
        single.addresses.remove(0);
        assert!(!single.has_backends());
    }

    /// What is told at these seconds about these ports; each word stays told until the next.
    fn story(gaps: &Gaps, told: &mut Option<String>, looks: &[(u64, Ports<'_>)]) -> Vec<Option<u64>> {
        let began = *BEGAN;
        let mut again = Vec::new();
        for (second, ports) in looks {
            let now = began + Duration::from_secs(*second);
            let (caveat, after) = gaps.judge(&wanted(ports), || told.clone(), now);
            *told = caveat.map(|caveat| caveat.message);
            again.push(after.map(|after| after.as_secs()));
        }
        again
    }

    static BEGAN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

    #[test]
    fn it_is_told_once_it_has_lasted_and_over_at_once() {
        let (gaps, mut told) = (Gaps::default(), None);
        assert_eq!(story(&gaps, &mut told, &[(0, &[(80, V4)]), (10, &[(80, V4)])]), [Some(30), Some(20)]);
        assert_eq!(told, None);
        assert_eq!(story(&gaps, &mut told, &[(30, &[(80, V4)])]), [None]);
        assert_eq!(told.as_deref(), Some("no endpoint is ready for IPv6: connections there are refused"));
        assert_eq!(story(&gaps, &mut told, &[(31, &[(80, BOTH)])]), [None]);
        assert_eq!(told, None);
    }

    #[test]
    fn pods_that_come_and_go_one_slice_after_the_other_are_no_gap() {
        let (gaps, mut told) = (Gaps::default(), None);
        for minute in 0..10 {
            let at = minute * 60;
            story(&gaps, &mut told, &[(at, &[(80, V4)]), (at + 1, &[(80, BOTH)]), (at + 40, &[(80, V6)])]);
            assert_eq!(told, None);
            story(&gaps, &mut told, &[(at + 41, &[(80, &[])])]);
            assert_eq!(told, None, "nothing is ready at all, which is told otherwise");
        }
    }

    #[test]
    fn what_is_told_stays_told_while_another_gap_comes_and_goes() {
        let (gaps, mut told) = (Gaps::default(), None);
        story(&gaps, &mut told, &[(0, &[(80, V4), (443, V4)]), (30, &[(80, V4), (443, V4)])]);
        let first = told.clone();
        assert!(first.is_some());
        story(&gaps, &mut told, &[(40, &[(80, V4), (443, &[])])]);
        assert_eq!(told, first, "a pod of one port is restarted");
        story(&gaps, &mut told, &[(45, &[(80, V4), (443, V4)])]);
        assert_eq!(told, first);
        story(&gaps, &mut told, &[(50, &[(80, &[]), (443, &[])])]);
        assert_eq!(told, None);
        story(&gaps, &mut told, &[(90, &[(80, V4), (443, V4)])]);
        assert_eq!(told, first, "it was missing before, and is missing still");
    }

    #[test]
    fn a_new_leader_goes_on_telling_what_the_old_one_told() {
        let (old, mut told) = (Gaps::default(), None);
        story(&old, &mut told, &[(0, &[(80, V4)]), (30, &[(80, V4)])]);
        let before = told.clone();
        let again = story(&Gaps::default(), &mut told, &[(31, &[(80, V4)])]);
        assert_eq!((again, told), (vec![None], before));
    }
}
