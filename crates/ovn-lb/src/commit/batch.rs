//! Many changes as the operations of one transaction, and back: which change brought which operation. Pure.

use std::collections::BTreeMap;

use ovsdb_client::{Op, Uuid};

use crate::northbound::Place;
use crate::plan::{Step, attach};

/// The operations of one transaction.
pub(super) struct Batch {
    operations: Vec<Op>,
    members: Members,
}

/// For each operation the changes that need it, in order.
pub(super) struct Members(Vec<Vec<usize>>);

impl Batch {
    /// `guard` comes first and is everybody's; `ending` comes last and cannot fail.
    pub(super) fn new<'a>(
        guard: Op,
        changes: impl Iterator<Item = &'a [Step]>,
        ending: impl IntoIterator<Item = Op>,
        cluster: &str,
    ) -> Self {
        let mut batch = Self { operations: vec![guard], members: Members(vec![Vec::new()]) };
        // One mutation for all the rows of a place: the server copies the whole set for each.
        let mut attached: BTreeMap<&Place, (Vec<Uuid>, Vec<usize>)> = BTreeMap::new();
        for (n, steps) in changes.enumerate() {
            batch.members.0[0].push(n);
            for step in steps {
                if let Step::Attach { place, row, .. } = step {
                    let (rows, members) = attached.entry(place).or_default();
                    rows.push(*row);
                    if members.last() != Some(&n) {
                        members.push(n);
                    }
                }
                for operation in step.operations(cluster) {
                    batch.push(operation, vec![n]);
                }
            }
        }
        // After the rows: a weak reference to a row that is not there yet would be dropped.
        for (place, (rows, members)) in attached {
            for operation in attach(place, rows) {
                batch.push(operation, members.clone());
            }
        }
        for operation in ending {
            batch.push(operation, Vec::new());
        }
        batch
    }

    fn push(&mut self, operation: Op, members: Vec<usize>) {
        self.operations.push(operation);
        self.members.0.push(members);
    }

    pub(super) fn operations(&self) -> &[Op] {
        &self.operations
    }

    /// What is still to be known once they are written out: thousands of operations take more room than their text.
    pub(super) fn into_members(self) -> Members {
        self.members
    }
}

impl Members {
    /// The changes that this operation belongs to.
    pub(super) fn of(&self, operation: usize) -> &[usize] {
        self.0.get(operation).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::northbound::Kind;

    #[test]
    fn rows_of_one_router_share_a_guard_and_a_mutation_and_lose_together() {
        let place = |id: u128, name: &str| Place { kind: Kind::Router, uuid: Uuid::from_u128(id), name: name.into() };
        let attach = |id: u128, name: &str, row: u128| Step::Attach {
            place: place(id, name),
            row: Uuid::from_u128(row),
            name: "lb".into(),
        };
        let changes = [vec![attach(1, "a", 10)], vec![attach(2, "b", 20)], vec![attach(1, "a", 30)]];
        let batch = Batch::new(Op::comment("epoch"), changes.iter().map(Vec::as_slice), [Op::comment("me")], "c1");
        assert_eq!(batch.operations().len(), 1 + 2 * 2 + 1);
        let members = batch.into_members();
        assert_eq!(members.of(0), [0, 1, 2]);
        assert_eq!((members.of(1), members.of(2)), (&[0, 2][..], &[0, 2][..]));
        assert_eq!(members.of(3), [1]);
        assert_eq!(members.of(99), [0usize; 0]);
    }
}
