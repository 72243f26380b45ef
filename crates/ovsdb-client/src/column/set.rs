//! A set column.

use std::fmt;
use std::ops::Deref;

use serde::de::Deserializer;

use super::{Column, Scalar, read_atoms};
use crate::schema::ColumnType;
use crate::value::{Atom, Value};

/// Up to this many changed elements are looked up one by one; the others move in blocks.
const FEW: usize = 16;

/// A set column: sorted, without spare room. Reads like a slice.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set<T>(Box<[T]>);

impl<T> Default for Set<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<T: Ord> Set<T> {
    /// Whether the element is in the set.
    #[must_use]
    pub fn contains(&self, element: &T) -> bool {
        self.0.binary_search(element).is_ok()
    }

    /// The elements that the other set does not have. Both are walked through once, side by side.
    pub fn difference<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a T> {
        let (ours, theirs) = without_common_ends(self, other);
        let mut theirs = theirs.iter().peekable();
        ours.iter().filter(move |own| {
            while theirs.next_if(|their| their < own).is_some() {}
            theirs.peek() != Some(own)
        })
    }

    /// Elements that are in one but not in both: how the server sends changes.
    fn toggle(&mut self, difference: Self) {
        if difference.len() <= FEW {
            return self.toggle_each(difference);
        }
        let mut result = Vec::with_capacity(self.len() + difference.len());
        let mut ours = std::mem::take(self).0.into_vec().into_iter().peekable();
        for element in difference.0 {
            while let Some(smaller) = ours.next_if(|own| *own < element) {
                result.push(smaller);
            }
            if ours.next_if(|own| *own == element).is_none() {
                result.push(element);
            }
        }
        result.extend(ours);
        *self = Self(result.into_boxed_slice());
    }

    fn toggle_each(&mut self, difference: Self) {
        let mut elements = std::mem::take(self).0.into_vec();
        elements.reserve_exact(difference.len());
        for element in difference.0 {
            match elements.binary_search(&element) {
                Ok(at) => drop(elements.remove(at)),
                Err(at) => elements.insert(at, element),
            }
        }
        *self = Self(elements.into_boxed_slice());
    }
}

/// What is left of two slices without what both begin and end with. Mostly that is nearly nothing, and to see that
/// elements are the same is quicker than to put them in order.
fn without_common_ends<'a, T: Eq>(mut one: &'a [T], mut other: &'a [T]) -> (&'a [T], &'a [T]) {
    let same = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    (one, other) = (&one[same..], &other[same..]);
    let same = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    (&one[..one.len() - same], &other[..other.len() - same])
}

impl<T: Ord> FromIterator<T> for Set<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut elements: Vec<T> = elements.into_iter().collect();
        elements.sort_unstable();
        elements.dedup();
        Self(elements.into_boxed_slice())
    }
}

impl<T> Deref for Set<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T> IntoIterator for &'a Set<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: fmt::Debug> fmt::Debug for Set<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self).finish()
    }
}

impl<T: Into<Atom> + Clone> From<&Set<T>> for Value {
    fn from(set: &Set<T>) -> Self {
        Self::set(set.iter().cloned())
    }
}

impl<S: Scalar> Column for Set<S> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(read_atoms(deserializer)?.into_iter().collect())
    }
    fn change<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        self.toggle(Self::read(deserializer)?);
        Ok(())
    }
    fn fits(column: &ColumnType) -> bool {
        column.key == S::KIND && column.value.is_none() && column.is_composite()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_difference_turns_the_old_set_into_the_new_one(old: BTreeSet<i64>, new: BTreeSet<i64>) {
            let difference = Value::set(old.symmetric_difference(&new).copied());
            let mut set: Set<i64> = old.iter().copied().collect();
            set.change(serde_json::to_value(difference).unwrap()).unwrap();
            prop_assert!(set.iter().eq(&new));
        }

        #[test]
        fn the_difference_is_what_the_other_set_does_not_have(one: BTreeSet<i8>, other: BTreeSet<i8>) {
            let set = |elements: &BTreeSet<i8>| elements.iter().map(|e| i64::from(*e)).collect::<Set<i64>>();
            let (left, right) = (set(&one), set(&other));
            prop_assert!(left.difference(&right).copied().eq(one.difference(&other).map(|e| i64::from(*e))));
        }
    }
}
