//! A set column of many elements, of which few change at a time.

use std::fmt;
use std::sync::Arc;

use serde::de::Deserializer;

use super::{Column, Scalar, read_atoms};
use crate::schema::ColumnType;
use crate::value::{Atom, Value};

/// The most elements of a block: 4 KiB of row ids.
const FULL: usize = 256;

/// A set column that may have thousands of elements, as the load balancers of a router. Sorted, in blocks that clones
/// share: a change copies only the blocks that it falls into, and of two versions only the others are compared.
#[derive(Clone, Eq)]
pub struct BlockSet<T>(Box<[Block<T>]>);

type Block<T> = Arc<[T]>;

impl<T> Default for BlockSet<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<T> BlockSet<T> {
    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        elements(&self.0)
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|block| block.len()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn elements<T>(blocks: &[Block<T>]) -> impl Iterator<Item = &T> {
    blocks.iter().flat_map(|block| block.iter())
}

impl<T: Ord> BlockSet<T> {
    /// Whether the element is in the set.
    #[must_use]
    pub fn contains(&self, element: &T) -> bool {
        let after = self.0.partition_point(|block| block.first().is_some_and(|first| first <= element));
        after.checked_sub(1).is_some_and(|at| self.0[at].binary_search(element).is_ok())
    }

    /// The elements that the other set does not have. What both share is not looked at.
    pub fn difference<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a T> {
        let (ours, theirs) = without_common_ends(&self.0, &other.0);
        let mut theirs = elements(theirs).peekable();
        elements(ours).filter(move |own| {
            while theirs.next_if(|their| their < own).is_some() {}
            theirs.peek() != Some(own)
        })
    }
}

/// What is left of two rows of blocks without those that both begin and end with.
fn without_common_ends<'a, T>(mut one: &'a [Block<T>], mut other: &'a [Block<T>]) -> (&'a [Block<T>], &'a [Block<T>]) {
    let is_shared = |(a, b): &(&Block<T>, &Block<T>)| Arc::ptr_eq(a, b);
    let shared = one.iter().zip(other).take_while(is_shared).count();
    (one, other) = (&one[shared..], &other[shared..]);
    let shared = one.iter().rev().zip(other.iter().rev()).take_while(is_shared).count();
    (&one[..one.len() - shared], &other[..other.len() - shared])
}

impl<T: Ord + Clone> BlockSet<T> {
    /// Elements that are in one but not in both, in order: how the server sends changes.
    fn toggle(&mut self, difference: &[T]) {
        let mut blocks = Vec::with_capacity(self.0.len() + 1);
        let mut rest = difference;
        for (at, block) in self.0.iter().enumerate() {
            // What comes before the next block falls into this one.
            let next = self.0.get(at + 1).and_then(|next| next.first());
            let here = next.map_or(rest.len(), |next| rest.partition_point(|element| element < next));
            let (changed, later) = rest.split_at(here);
            rest = later;
            if changed.is_empty() {
                blocks.push(Arc::clone(block));
            } else {
                push(&mut blocks, toggled(block, changed));
            }
        }
        // Left over only where there was no block.
        push(&mut blocks, rest.to_vec());
        self.0 = blocks.into_boxed_slice();
    }
}

/// Both are sorted.
fn toggled<T: Ord + Clone>(block: &[T], changed: &[T]) -> Vec<T> {
    let mut result = Vec::with_capacity(block.len() + changed.len());
    let mut block = block.iter().peekable();
    for element in changed {
        while let Some(smaller) = block.next_if(|own| *own < element) {
            result.push(smaller.clone());
        }
        if block.next_if_eq(&element).is_none() {
            result.push(element.clone());
        }
    }
    result.extend(block.cloned());
    result
}

/// Adds elements as blocks. Few of them join the last block, so that a set that shrinks has fewer blocks, too.
fn push<T: Clone>(blocks: &mut Vec<Block<T>>, mut elements: Vec<T>) {
    if elements.is_empty() {
        return;
    }
    if let Some(last) = blocks.pop_if(|last| last.len() + elements.len() <= FULL) {
        elements.splice(..0, last.iter().cloned());
    }
    // Equal parts have room for what comes next.
    let parts = elements.len().div_ceil(FULL);
    blocks.extend(elements.chunks(elements.len().div_ceil(parts)).map(Arc::from));
}

impl<T: Ord + Clone> FromIterator<T> for BlockSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut elements: Vec<T> = elements.into_iter().collect();
        elements.sort_unstable();
        elements.dedup();
        let mut blocks = Vec::new();
        push(&mut blocks, elements);
        Self(blocks.into_boxed_slice())
    }
}

impl<T: PartialEq> PartialEq for BlockSet<T> {
    fn eq(&self, other: &Self) -> bool {
        let (ours, theirs) = without_common_ends(&self.0, &other.0);
        elements(ours).eq(elements(theirs))
    }
}

impl<T: fmt::Debug> fmt::Debug for BlockSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<T: Into<Atom> + Clone> From<&BlockSet<T>> for Value {
    fn from(set: &BlockSet<T>) -> Self {
        Self::set(set.iter().cloned())
    }
}

impl<S: Scalar> Column for BlockSet<S> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(read_atoms(deserializer)?.into_iter().collect())
    }
    fn change<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        let mut difference = read_atoms(deserializer)?;
        difference.sort_unstable();
        difference.dedup();
        self.toggle(&difference);
        Ok(())
    }
    fn fits(column: &ColumnType) -> bool {
        column.key == S::KIND && column.value.is_none() && column.is_composite()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Dense enough that blocks fill, split and go.
    fn numbers() -> impl Strategy<Value = BTreeSet<i64>> {
        let dense = (0..3000i64, 0..1500i64).prop_map(|(from, many)| (from..from + many).collect());
        let sparse = prop::collection::btree_set(0..5000i64, 0..40);
        prop_oneof![dense, sparse]
    }

    fn assert_sound(set: &BlockSet<i64>, is: &BTreeSet<i64>) {
        assert!(set.iter().eq(is), "{set:?}");
        assert_eq!((set.len(), set.is_empty()), (is.len(), is.is_empty()));
        assert!(set.0.iter().all(|block| (1..=FULL).contains(&block.len())));
        assert!((0..5000).all(|n| set.contains(&n) == is.contains(&n)));
    }

    proptest! {
        #[test]
        fn differences_lead_from_one_set_to_the_next(states in prop::collection::vec(numbers(), 1..6)) {
            let (mut set, mut is) = (BlockSet::<i64>::default(), BTreeSet::new());
            for next in states {
                let before = set.clone();
                let difference = Value::set(is.symmetric_difference(&next).copied());
                set.change(serde_json::to_value(difference).unwrap()).unwrap();
                assert_sound(&set, &next);
                prop_assert!(before.difference(&set).eq(is.difference(&next)));
                prop_assert!(set.difference(&before).eq(next.difference(&is)));
                prop_assert_eq!(set == before, next == is);
                prop_assert!(set == next.iter().copied().collect());
                is = next;
            }
        }
    }

    #[test]
    fn a_change_copies_one_block_and_a_set_that_shrinks_has_few() {
        let mut set: BlockSet<i64> = (0..10_000).collect();
        let before = set.clone();
        set.toggle(&[5_000]);
        let copied = set.0.iter().filter(|block| !before.0.iter().any(|old| Arc::ptr_eq(block, old)));
        assert_eq!((copied.count(), set.0.len()), (1, before.0.len()));
        for n in (0..10_000).filter(|n| n % 100 != 0) {
            if set.contains(&n) {
                set.toggle(&[n]);
            }
        }
        assert_eq!(set.len(), 99);
        assert!(set.0.len() <= 2, "{}", set.0.len());
    }
}
