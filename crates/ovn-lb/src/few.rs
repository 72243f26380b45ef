//! A set that nearly always has one member.

use std::borrow::Borrow;
use std::slice;

/// Members in order, in no more memory than they need. A leaf of a tree has room for eleven, and there are several sets for
/// each of ten thousand Services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Few<T>(Vec<T>);

impl<T: Ord> Few<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> slice::Iter<'_, T> {
        self.0.iter()
    }

    pub(crate) fn contains<Q: Ord + ?Sized>(&self, member: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.find(member).is_ok()
    }

    pub(crate) fn insert(&mut self, member: T) {
        if let Err(at) = self.0.binary_search(&member) {
            self.0.reserve_exact(1);
            self.0.insert(at, member);
        }
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, member: &Q)
    where
        T: Borrow<Q>,
    {
        if let Ok(at) = self.find(member) {
            self.0.remove(at);
        }
    }

    fn find<Q: Ord + ?Sized>(&self, member: &Q) -> Result<usize, usize>
    where
        T: Borrow<Q>,
    {
        self.0.binary_search_by(|present| present.borrow().cmp(member))
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord> Extend<T> for Few<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, members: I) {
        for member in members {
            self.insert(member);
        }
    }
}

impl<T: Ord> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(members: I) -> Self {
        let mut few = Self::default();
        few.extend(members);
        few
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_a_set(steps in prop::collection::vec((any::<bool>(), 0u8..8), 0..40)) {
            let (mut few, mut set) = (Few::default(), BTreeSet::new());
            for (insert, member) in steps {
                if insert {
                    few.insert(member);
                    set.insert(member);
                } else {
                    few.remove(&member);
                    set.remove(&member);
                }
                prop_assert_eq!(few.contains(&member), set.contains(&member));
                prop_assert!(few.iter().eq(&set));
            }
        }
    }
}
