//! Two processes that lead in turn and hear of the `EIp`s late, over long random lives.

use super::*;

/// What the watch tells, in order; each process has heard a part of it.
#[derive(Clone)]
enum News {
    Is(Box<eip::Seen>),
    Gone(EipKey, Uuid),
}

struct Pair {
    eips: BTreeMap<EipKey, EIp>,
    books: [Book; 2],
    heard: [usize; 2],
    news: Vec<News>,
    leader: usize,
    now: Moment,
    writes: u64,
    /// How often each Service has been made.
    lives: [u128; SERVICES],
    /// Services that exist and have been looked at, with what they have published.
    published: BTreeMap<usize, Vec<IpAddr>>,
}

const SERVICES: usize = 6;

/// Services of the same group share one address.
fn group(service: usize) -> usize {
    service / 2
}

#[derive(Debug, Clone)]
enum Event {
    /// `writes` arrive; what comes after them is cut off.
    Serve {
        service: usize,
        writes: usize,
    },
    /// The Service goes. After a cut it is tried again, if need be by the other process.
    Delete {
        service: usize,
        writes: usize,
    },
    Hear {
        process: usize,
        news: usize,
    },
    ChangeLeader,
    Wait,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let writes = prop_oneof![2 => Just(9usize), 1 => 0usize..3];
    let event = prop_oneof![
        5 => (0..SERVICES, writes.clone()).prop_map(|(service, writes)| Event::Serve { service, writes }),
        3 => (0..SERVICES, writes).prop_map(|(service, writes)| Event::Delete { service, writes }),
        3 => (0..2usize, 1..6usize).prop_map(|(process, news)| Event::Hear { process, news }),
        2 => Just(Event::ChangeLeader),
        1 => Just(Event::Wait),
    ];
    prop::collection::vec(event, 1..60)
}

impl Pair {
    fn new() -> Self {
        let book = || {
            let mut book = Book::new(reader(), REST, true);
            book.put_pool(Pool::new(&pool("a", &["192.0.2.0/30"])));
            book
        };
        let mut pair = Self {
            eips: BTreeMap::new(),
            books: [book(), book()],
            heard: [0; 2],
            news: Vec::new(),
            leader: 0,
            now: Moment::now(),
            writes: 0,
            lives: [0; SERVICES],
            published: BTreeMap::new(),
        };
        pair.begin();
        pair
    }

    fn begin(&mut self) {
        let listed: Vec<_> = self.eips.values().map(read).collect();
        let living = self.published.iter().filter(|(_, addresses)| !addresses.is_empty());
        let living: Vec<_> = living
            .map(|(service, addresses)| Living { owner: self.owner(*service), addresses: addresses.clone() })
            .collect();
        let book = &mut self.books[self.leader];
        let mut unlisted = book.stored();
        unlisted.retain(|key, _| !self.eips.contains_key(key));
        book.begin(listed, &unlisted, &living, self.now);
    }

    fn owner(&self, service: usize) -> Owner {
        let uid = Uuid::from_u128(self.lives[service] * 100 + service as u128);
        Owner { uid, ..testing::owner("shop", &format!("s{service}")) }
    }

    fn hear(&mut self, process: usize, most: usize) {
        let from = self.heard[process];
        let to = self.news.len().min(from.saturating_add(most));
        for news in self.news[from..to].iter().cloned() {
            match news {
                News::Is(seen) => drop(self.books[process].observe(*seen)),
                News::Gone(key, uid) => drop(self.books[process].vanish(&key, uid, self.now)),
            }
        }
        self.heard[process] = to;
    }

    /// Whether all was written before the cut.
    fn store(&mut self, key: &EipKey, left: &mut usize) -> bool {
        while let Some(write) = self.books[self.leader].pending(key, Timestamp::UNIX_EPOCH) {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            self.writes += 1;
            if self.conflicts(key, &write) {
                continue;
            }
            let eip = match write {
                Write::Create(mut eip) => {
                    eip.metadata.uid = Some(Uuid::from_u128(self.writes.into()).to_string());
                    self.eips.entry(key.clone()).or_insert(*eip)
                }
                Write::Status(patch) | Write::Marks(patch) => {
                    let eip = self.eips.get_mut(key).unwrap();
                    *eip = patched(eip, &patch);
                    eip
                }
                Write::LetGo(_) | Write::Delete => {
                    let mut eip = self.eips.remove(key).unwrap();
                    // On its way out it is told once more, users and all.
                    eip.metadata.resource_version = Some(self.writes.to_string());
                    let seen = read(&eip);
                    let uid = seen.uid;
                    self.news.extend([News::Is(Box::new(seen)), News::Gone(key.clone(), uid)]);
                    self.books[self.leader].deleted(key, Some(uid), self.now);
                    continue;
                }
            };
            eip.metadata.resource_version = Some(self.writes.to_string());
            let seen = read(eip);
            self.news.push(News::Is(Box::new(seen.clone())));
            self.books[self.leader].observe(seen);
        }
        true
    }

    /// Whether the API server refuses it because the book is not up to date. It is then.
    fn conflicts(&mut self, key: &EipKey, write: &Write) -> bool {
        let book = &mut self.books[self.leader];
        let known = book.version(key);
        let actual = self.eips.get(key).map(read);
        if known == actual.as_ref().map(|seen| (seen.uid, seen.resource_version.to_string())) {
            return false;
        }
        let same = |seen: &eip::Seen| known.as_ref().is_some_and(|(uid, _)| *uid == seen.uid);
        match (actual, write) {
            (Some(seen), Write::Delete) if !same(&seen) => book.deleted(key, known.map(|(uid, _)| uid), self.now),
            (None, Write::Delete) => book.deleted(key, known.map(|(uid, _)| uid), self.now),
            (Some(seen), _) => drop(book.observe(seen)),
            (None, _) => drop(known.map(|(uid, _)| book.vanish(key, uid, self.now))),
        }
        true
    }

    fn serve(&mut self, service: usize, mut writes: usize) {
        let current = self.published.entry(service).or_default().clone();
        let mut ask = testing::ask(&self.owner(service), Families::V4);
        // As the controller chooses: who has published comes first.
        let served = self
            .published
            .iter()
            .find(|(other, addresses)| **other != service && group(**other) == group(service) && !addresses.is_empty());
        ask.share_with = served.map(|(other, _)| self.owner(*other));
        ask.current = current;
        let Ok(keys) = promise(&mut self.books[self.leader], &ask, None, self.now) else { return };
        if keys.iter().all(|key| self.store(key, &mut writes)) {
            let book = &self.books[self.leader];
            let addresses: Vec<_> = keys.iter().filter_map(|key| book.address(key)).collect();
            assert_eq!(book.settled(&ask, None), Some(addresses.clone()), "what was written is settled");
            assert!(ask.current.is_empty() || ask.current == addresses, "a living address changed");
            self.published.insert(service, addresses);
        }
    }

    fn release(&mut self, owner: &Owner, mut writes: usize) -> bool {
        let keys = self.books[self.leader].leave(owner, self.now);
        keys.iter().all(|key| self.store(key, &mut writes))
    }

    /// Whether it is gone; its finalizer stays until all is written.
    fn delete(&mut self, service: usize, writes: usize) -> bool {
        let done = self.release(&self.owner(service), writes);
        if done {
            self.published.remove(&service);
            self.lives[service] += 1;
        }
        done
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn leaders_in_turn_give_no_address_twice_and_leave_nothing(events in events()) {
        let mut pair = Pair::new();
        let mut deleting = BTreeSet::new();
        for event in events {
            match event {
                // A Service that is being deleted is not served any more.
                Event::Serve { service, .. } if deleting.contains(&service) => {}
                Event::Serve { service, writes } => pair.serve(service, writes),
                Event::Delete { service, writes } => {
                    if let Some(addresses) = pair.published.get_mut(&service) {
                        // The row is gone first, so nobody is reached there from now on.
                        addresses.clear();
                        deleting.insert(service);
                        if pair.delete(service, writes) {
                            deleting.remove(&service);
                        }
                    }
                }
                Event::Hear { process, news } => pair.hear(process, news),
                Event::ChangeLeader => {
                    pair.leader = 1 - pair.leader;
                    pair.begin();
                }
                Event::Wait => pair.now = pair.now + REST,
            }
            let mut holders = BTreeMap::new();
            for (service, addresses) in &pair.published {
                for address in addresses {
                    let other = holders.insert(*address, group(*service));
                    prop_assert!(other.is_none_or(|other| other == group(*service)), "{address} is given twice");
                }
            }
        }
        for service in 0..SERVICES {
            pair.delete(service, usize::MAX);
        }
        // The scan finds what only the one before a namesake can still give back.
        for owner in pair.books[pair.leader].owned().map(|(_, owner)| owner).collect::<Vec<_>>() {
            pair.release(&owner, usize::MAX);
        }
        for process in 0..2 {
            pair.hear(process, usize::MAX);
        }
        prop_assert!(pair.eips.is_empty(), "{:?} are left", pair.eips.keys());
        pair.leader = 1 - pair.leader;
        pair.begin();
        for book in &pair.books {
            prop_assert!(book.stored().is_empty() && book.owned().next().is_none(), "{book:?}");
            prop_assert!(book.gone().is_empty());
        }
    }
}
