//! How much of each pool is in use, and what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use groundcrew_api::address_pool::{AddressCounts, AddressPoolStatus, RestingAddress};
use groundcrew_api::names::condition;
use groundcrew_core::leader::Moment;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::super::pool::{Family, Pool};
use super::{Book, EipKey, Rest};

/// As many as a status has room for.
const MOST_RESTING: usize = 256;
/// An end that is told is as good as ours if it is so close: it is told in whole seconds, and a process that took it over
/// from there has read two clocks, one after the other.
const CLOSE: Duration = Duration::from_secs(1);

impl Book {
    /// What the status of each pool should be, given what it is. Equal where there is nothing to write.
    pub(crate) fn survey(
        &self,
        present: &BTreeMap<Arc<str>, AddressPoolStatus>,
        now: Moment,
        wall: Timestamp,
    ) -> BTreeMap<Arc<str>, AddressPoolStatus> {
        let outside = self.outside();
        let told = self.pools.iter().filter_map(|(name, pool)| {
            let present = present.get(name)?;
            let counts = |family| self.counts(pool, family, outside.get(&(name, family)).copied().unwrap_or_default());
            let status = AddressPoolStatus {
                ipv4: counts(Family::V4),
                ipv6: counts(Family::V6),
                resting: self.resting_of(pool, &present.resting, now, wall),
                conditions: self.conditions_of(pool, &present.conditions, wall),
            };
            Some((name.clone(), status))
        });
        told.collect()
    }

    /// Addresses that another process let rest. Its clock may be wrong, so none rests longer than ours do.
    pub(crate) fn let_rest(&mut self, resting: &[RestingAddress], now: Moment, wall: Timestamp) {
        for RestingAddress { address, until } in resting {
            let left = left(until, wall).min(self.rest);
            let Ok(address) = address.parse() else { continue };
            if !left.is_zero() && self.holders(address).next().is_none() {
                self.resting.entry(address).or_insert(Rest { until: now + left, namespace: None });
            }
        }
    }

    /// Living addresses that their pools do not have any more.
    fn outside(&self) -> BTreeMap<(&Arc<str>, Family), u128> {
        let mut outside = BTreeMap::new();
        for says in self.holdings.values().map(|holding| &holding.should) {
            if let (Some(address), Some((name, pool))) = (says.address, self.pools.get_key_value(&says.pool))
                && !pool.contains(address)
            {
                *outside.entry((name, Family::of(address))).or_default() += 1;
            }
        }
        outside
    }

    fn counts(&self, pool: &Pool, family: Family, outside: u128) -> Option<AddressCounts> {
        if !pool.has(family) && outside == 0 {
            return None;
        }
        let first = || EipKey { namespace: "".into(), name: "".into() };
        let (mut used, mut kept_back) = (0, 0);
        for (start, end) in pool.parts(family) {
            let within = self.by_address.range((start, first())..).take_while(|(address, _)| *address <= end);
            let held: BTreeSet<_> = within.map(|(address, _)| *address).collect();
            let in_ovn = self.taken.range(start..=end).map(|(address, _)| address);
            let strays = self.strays.range(start..=end).map(|(address, _)| address);
            // What is living stays used, even where something else has it by now.
            let others: BTreeSet<_> = in_ovn
                .chain(strays)
                .chain(self.nodes.range(start..=end))
                .filter(|address| !held.contains(address))
                .collect();
            used += held.len() as u128;
            kept_back += others.len() as u128;
        }
        let shown = |count: u128| i64::try_from(count).unwrap_or(i64::MAX);
        let free = pool.size(family).saturating_sub(used + kept_back);
        Some(AddressCounts { used: shown(used + outside), free: shown(free) })
    }

    fn resting_of(&self, pool: &Pool, present: &[RestingAddress], now: Moment, wall: Timestamp) -> Vec<RestingAddress> {
        let mut resting: Vec<(IpAddr, Moment)> =
            self.resting.iter().map(|(address, rest)| (*address, rest.until)).collect();
        resting.retain(|(address, until)| pool.contains(*address) && !now.until(*until).is_zero());
        // Who gave it back may have it again.
        resting.retain(|(address, _)| self.holders(*address).next().is_none());
        resting.sort_by_key(|(_, until)| *until);
        let resting = resting.split_off(resting.len().saturating_sub(MOST_RESTING));
        // One that rests for the second time is known only with its later end.
        let known: BTreeMap<IpAddr, Duration> = present
            .iter()
            .filter_map(|resting| Some((resting.address.parse().ok()?, left(&resting.until, wall))))
            .collect();
        let is_told = |(address, until): &(IpAddr, Moment)| {
            known.get(address).is_some_and(|shown| shown.saturating_add(CLOSE) >= now.until(*until))
        };
        if resting.iter().all(is_told) {
            // What has rested long enough goes with the next change: the end of a rest is not worth a write.
            return present.to_vec();
        }
        let shown = resting.into_iter().map(|(address, until)| {
            let left = SignedDuration::try_from(now.until(until)).unwrap_or_default();
            // Whole seconds, and rather a second too long.
            let until = wall.checked_add(left).unwrap_or(wall).as_second() + 1;
            let until = Time(Timestamp::from_second(until).unwrap_or(wall));
            RestingAddress { address: address.to_string(), until }
        });
        shown.collect()
    }

    fn conditions_of(&self, pool: &Pool, present: &[Condition], wall: Timestamp) -> Vec<Condition> {
        let bad = || format!("cannot be used, and is left out: {}", pool.bad.join(", "));
        let closed = || {
            format!("gives out no new address, because what it excludes cannot be read: {}", pool.unclear.join(", "))
        };
        let ready = match (pool.unclear.is_empty(), pool.bad.is_empty()) {
            (true, true) => ("True", "Usable", String::new()),
            (true, false) => ("False", "BadLine", bad()),
            (false, true) => ("False", "BadExclusion", closed()),
            (false, false) => ("False", "BadExclusion", format!("{}; {}", closed(), bad())),
        };
        let others = self.pools.values().filter(|other| other.name != pool.name && other.overlaps(pool));
        let others: Vec<_> = others.map(|other| &*other.name).collect();
        let overlap = if others.is_empty() {
            ("False", "Apart", String::new())
        } else {
            ("True", "Overlaps", format!("has addresses in common with {}; each is given out once", others.join(", ")))
        };
        let mut conditions: Vec<_> = present.to_vec();
        for (kind, (status, reason, message)) in [(condition::READY, ready), (condition::OVERLAP, overlap)] {
            let at = conditions.iter().position(|condition| condition.type_ == kind);
            let before = at.map(|at| conditions.remove(at));
            let since = before.filter(|before| before.status == status).map(|before| before.last_transition_time);
            let condition = Condition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message,
                last_transition_time: since
                    .unwrap_or_else(|| Time(Timestamp::from_second(wall.as_second()).unwrap_or(wall))),
                observed_generation: None,
            };
            conditions.insert(at.unwrap_or(conditions.len()), condition);
        }
        conditions
    }
}

fn left(until: &Time, wall: Timestamp) -> std::time::Duration {
    until.0.duration_since(wall).try_into().unwrap_or_default()
}
