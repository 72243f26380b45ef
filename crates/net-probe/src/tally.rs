//! What a row of answers means: one lost packet is no broken network.

use std::collections::BTreeMap;

use super::ask::Answers;

#[derive(Debug, Default)]
struct Count {
    failures: u32,
    /// Nothing before the first answer, or before enough of them are missing.
    reached: Option<bool>,
}

/// Who is reached, and who is not.
#[derive(Debug)]
pub(crate) struct Tally {
    patience: u32,
    counts: BTreeMap<String, Count>,
}

impl Tally {
    /// Without an answer for so often, a node is not reached.
    pub(crate) fn new(patience: u32) -> Self {
        Self { patience: patience.max(1), counts: BTreeMap::new() }
    }

    /// Takes one round in. Whoever was not asked is forgotten.
    pub(crate) fn count(&mut self, answers: Answers) {
        let mut known = std::mem::take(&mut self.counts);
        for (node, answered) in answers {
            let mut count = known.remove(&node).unwrap_or_default();
            if answered {
                count = Count { failures: 0, reached: Some(true) };
            } else {
                count.failures = count.failures.saturating_add(1);
                if count.failures >= self.patience {
                    count.reached = Some(false);
                }
            }
            self.counts.insert(node, count);
        }
    }

    /// The nodes that are reached, or those that are not.
    pub(crate) fn nodes(&self, reached: bool) -> impl Iterator<Item = &str> {
        let these = self.counts.iter().filter(move |(_, count)| count.reached == Some(reached));
        these.map(|(node, _)| node.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_not_reached_after_some_answers_in_a_row_are_missing_and_again_with_the_first() {
        let mut tally = Tally::new(3);
        let mut round = |answered: bool| {
            tally.count(Answers::from([("a".to_owned(), answered)]));
            (tally.nodes(true).count(), tally.nodes(false).count())
        };
        assert_eq!(round(false), (0, 0), "nobody knows yet");
        assert_eq!(round(true), (1, 0));
        assert_eq!([round(false), round(false)], [(1, 0), (1, 0)]);
        assert_eq!(round(false), (0, 1));
        assert_eq!(round(true), (1, 0));
    }

    #[test]
    fn whoever_is_no_longer_asked_is_no_longer_told() {
        let mut tally = Tally::new(1);
        tally.count(Answers::from([("a".to_owned(), false)]));
        tally.count(Answers::from([("b".to_owned(), true)]));
        assert_eq!(tally.nodes(false).count(), 0);
    }
}
