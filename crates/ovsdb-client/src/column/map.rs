//! A map column of any types.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};

use super::{Column, OneAtom, Scalar, Tag};
use crate::schema::ColumnType;
use crate::value::{Atom, Value};

/// A map column: pairs sorted by key, without spare room. Reads like a slice of pairs.
///
/// Where keys and values are strings, [`StrMap`](super::StrMap) takes a fraction of the memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Map<K, V>(Box<[(K, V)]>);

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<K: Ord, V> Map<K, V> {
    /// The value at a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.binary_search_by(|(own, _)| own.cmp(key)).ok().map(|at| &self.0[at].1)
    }
}

impl<K: Ord, V: PartialEq> Map<K, V> {
    /// A pair of the difference that is there goes, one with another value replaces, a new key is added.
    fn toggle(&mut self, difference: Self) {
        let mut result = Vec::with_capacity(self.len() + difference.len());
        let mut ours = std::mem::take(self).0.into_vec().into_iter().peekable();
        for (key, value) in difference.0 {
            while let Some(smaller) = ours.next_if(|(own, _)| *own < key) {
                result.push(smaller);
            }
            match ours.next_if(|(own, _)| *own == key) {
                Some((_, own)) if own == value => {}
                _ => result.push((key, value)),
            }
        }
        result.extend(ours);
        *self = Self(result.into_boxed_slice());
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<(K, V)> = pairs.into_iter().collect();
        pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        pairs.dedup_by(|(a, _), (b, _)| a == b);
        Self(pairs.into_boxed_slice())
    }
}

impl<K, V> Deref for Map<K, V> {
    type Target = [(K, V)];
    fn deref(&self) -> &[(K, V)] {
        &self.0
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(key, value)| (key, value))).finish()
    }
}

impl<K: Into<Atom> + Clone, V: Into<Atom> + Clone> From<&Map<K, V>> for Value {
    fn from(map: &Map<K, V>) -> Self {
        Self::map(map.iter().cloned())
    }
}

impl<K: Scalar, V: Scalar> Column for Map<K, V> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut pairs = Vec::new();
        deserializer.deserialize_seq(TaggedMap(Pairs::<K, V>(&mut pairs)))?;
        Ok(pairs.into_iter().collect())
    }
    fn change<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        let difference = Self::read(deserializer)?;
        self.toggle(difference);
        Ok(())
    }
    fn fits(column: &ColumnType) -> bool {
        column.key == K::KIND && column.value == Some(V::KIND) && column.is_composite()
    }
}

/// `["map", ...]`, whose second element goes to the seed.
pub(super) struct TaggedMap<S>(pub(super) S);

impl<'de, S: DeserializeSeed<'de, Value = ()>> Visitor<'de> for TaggedMap<S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        match seq.next_element()? {
            Some(Tag::Map) => seq.next_element_seed(self.0)?.ok_or_else(|| de::Error::custom("half a map")),
            tag => Err(de::Error::custom(format_args!("expected a map, found {tag:?}"))),
        }
    }
}

struct Pairs<'a, K, V>(&'a mut Vec<(K, V)>);

impl<'de, K: Scalar, V: Scalar> DeserializeSeed<'de> for Pairs<'_, K, V> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, K: Scalar, V: Scalar> Visitor<'de> for Pairs<'_, K, V> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pairs of a map")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(pair) = seq.next_element_seed(Pair(PhantomData))? {
            self.0.push(pair);
        }
        Ok(())
    }
}

struct Pair<K, V>(PhantomData<(K, V)>);

impl<'de, K: Scalar, V: Scalar> DeserializeSeed<'de> for Pair<K, V> {
    type Value = (K, V);
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(K, V), D::Error> {
        deserializer.deserialize_tuple(2, self)
    }
}

impl<'de, K: Scalar, V: Scalar> Visitor<'de> for Pair<K, V> {
    type Value = (K, V);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pair")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(K, V), A::Error> {
        let half = || de::Error::custom("half a pair");
        let key = seq.next_element_seed(OneAtom(PhantomData))?.ok_or_else(half)?;
        let value = seq.next_element_seed(OneAtom(PhantomData))?.ok_or_else(half)?;
        Ok((key, value))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// What the server sends when a map column changes.
    pub(crate) fn difference<V: Clone + PartialEq, K: Clone + Ord>(
        old: &BTreeMap<K, V>,
        new: &BTreeMap<K, V>,
    ) -> BTreeMap<K, V> {
        let gone = old.iter().filter(|(key, _)| !new.contains_key(*key));
        let changed = new.iter().filter(|(key, value)| old.get(*key) != Some(*value));
        gone.chain(changed).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn maps() -> impl Strategy<Value = BTreeMap<i64, String>> {
        prop::collection::btree_map(0i64..8, "[ab]?", 0..8)
    }

    proptest! {
        #[test]
        fn a_difference_turns_the_old_map_into_the_new_one(old in maps(), new in maps()) {
            let mut map: Map<i64, String> = old.clone().into_iter().collect();
            map.change(serde_json::to_value(Value::from(difference(&old, &new))).unwrap()).unwrap();
            prop_assert!(map.iter().map(|(k, v)| (k, v)).eq(&new));
        }
    }
}
