//! A map column of strings, in two allocations however many pairs it has.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};

use super::Column;
use super::map::TaggedMap;
use crate::schema::{AtomKind, ColumnType};
use crate::value::Value;

/// A map of strings to strings, such as `external_ids`: all text in one piece, sorted by key.
///
/// Ten thousand rows with a handful of these are most of what a replica holds; as separate strings they would take
/// three times the memory.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct StrMap {
    /// Key, value, key, value, ...
    text: Box<str>,
    /// Where each of them ends in `text`.
    ends: Box<[u32]>,
}

impl StrMap {
    /// How many pairs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len() / 2
    }

    /// Whether there is no pair.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The value at a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.piece(2 * middle).cmp(key) {
                std::cmp::Ordering::Equal => return Some(self.piece(2 * middle + 1)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// The pairs in the order of their keys.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> + Clone {
        (0..self.len()).map(|n| (self.piece(2 * n), self.piece(2 * n + 1)))
    }

    fn piece(&self, n: usize) -> &str {
        let start = if n == 0 { 0 } else { self.ends[n - 1] };
        &self.text[start as usize..self.ends[n] as usize]
    }

    /// From pairs that are sorted and distinct.
    fn pack<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Self {
        let length = pairs.clone().map(|(key, value)| key.len() + value.len()).sum();
        let mut text = String::with_capacity(length);
        let mut ends = Vec::with_capacity(2 * pairs.size_hint().0);
        for (key, value) in pairs {
            for piece in [key, value] {
                text.push_str(piece);
                ends.push(end(&text));
            }
        }
        Self { text: text.into_boxed_str(), ends: ends.into_boxed_slice() }
    }

    /// A pair of the difference that is there goes, one with another value replaces, a new key is added.
    fn toggled(&self, difference: &Self) -> Self {
        let mut pairs = Vec::with_capacity(self.len() + difference.len());
        let mut ours = self.iter().peekable();
        for (key, value) in difference.iter() {
            while let Some(smaller) = ours.next_if(|(own, _)| *own < key) {
                pairs.push(smaller);
            }
            match ours.next_if(|(own, _)| *own == key) {
                Some((_, own)) if own == value => {}
                _ => pairs.push((key, value)),
            }
        }
        pairs.extend(ours);
        Self::pack(pairs.iter().copied())
    }
}

fn end(text: &str) -> u32 {
    // No message, and so no column, is larger than `max_message`, which is a `u32`.
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for StrMap {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<(K, V)> = pairs.into_iter().collect();
        pairs.sort_by(|(a, _), (b, _)| a.as_ref().cmp(b.as_ref()));
        pairs.dedup_by(|(a, _), (b, _)| a.as_ref() == b.as_ref());
        Self::pack(pairs.iter().map(|(key, value)| (key.as_ref(), value.as_ref())))
    }
}

impl fmt::Debug for StrMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl From<&StrMap> for Value {
    fn from(map: &StrMap) -> Self {
        Self::StrMap(map.clone())
    }
}

impl Column for StrMap {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut scratch = Scratch::new();
        deserializer.deserialize_seq(TaggedMap(&mut scratch))?;
        Ok(scratch.into_map())
    }
    fn change<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        *self = self.toggled(&Self::read(deserializer)?);
        Ok(())
    }
    fn fits(column: &ColumnType) -> bool {
        column.key == AtomKind::String && column.value == Some(AtomKind::String) && column.is_composite()
    }
}

/// Text as it arrives. With room for what maps usually hold: most of the time that it takes to read a snapshot would
/// otherwise go into growing these.
struct Scratch {
    text: String,
    ends: Vec<u32>,
}

impl Scratch {
    fn new() -> Self {
        Self { text: String::with_capacity(512), ends: Vec::with_capacity(32) }
    }

    fn into_map(self) -> StrMap {
        let map = StrMap { text: self.text.as_str().into(), ends: self.ends.as_slice().into() };
        // As the server sends them.
        let in_order = map.iter().is_sorted_by(|(before, _), (after, _)| before < after);
        if in_order { map } else { map.iter().collect() }
    }
}

impl<'de> DeserializeSeed<'de> for &mut Scratch {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut Scratch {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pairs of a map")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Pair(self))?.is_some() {}
        Ok(())
    }
}

struct Pair<'a>(&'a mut Scratch);

impl<'de> DeserializeSeed<'de> for Pair<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_tuple(2, self)
    }
}

impl<'de> Visitor<'de> for Pair<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pair of strings")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        for _ in 0..2 {
            seq.next_element_seed(Piece(self.0))?.ok_or_else(|| de::Error::custom("half a pair"))?;
        }
        Ok(())
    }
}

struct Piece<'a>(&'a mut Scratch);

impl<'de> DeserializeSeed<'de> for Piece<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Piece<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.0.text.push_str(text);
        self.0.ends.push(end(&self.0.text));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::map::tests::difference;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn maps() -> impl Strategy<Value = BTreeMap<String, String>> {
        prop::collection::btree_map("[a-cé]{0,2}", "[xyü]{0,2}", 0..8)
    }

    proptest! {
        #[test]
        fn it_reads_like_the_map_it_was_made_from(pairs in maps()) {
            let wire = serde_json::to_value(Value::from(pairs.clone())).unwrap();
            let map = StrMap::read(wire).unwrap();
            prop_assert!(map.iter().eq(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()))));
            for (key, value) in &pairs {
                prop_assert_eq!(map.get(key), Some(value.as_str()));
            }
            prop_assert_eq!(map.get("zz"), None);
            prop_assert_eq!(map, pairs.iter().rev().collect::<StrMap>());
        }

        #[test]
        fn a_difference_turns_the_old_map_into_the_new_one(old in maps(), new in maps()) {
            let mut map: StrMap = old.iter().collect();
            map.change(serde_json::to_value(Value::from(difference(&old, &new))).unwrap()).unwrap();
            prop_assert_eq!(map, new.iter().collect::<StrMap>());
        }
    }
}
