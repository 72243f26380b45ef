//! A set column.

use std::fmt;
use std::ops::Deref;

use serde::de::Deserializer;

use super::{Column, Scalar, read_atoms};
use crate::schema::ColumnType;
use crate::value::{Atom, Value};

/// A set column: sorted, without spare room. Reads like a slice. For one of thousands there is
/// [`BlockSet`](super::BlockSet).
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

    /// Elements that are in one but not in both: how the server sends changes.
    fn toggle(&mut self, difference: Self) {
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
    }
}
