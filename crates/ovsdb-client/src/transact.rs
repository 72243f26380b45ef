//! What the server says to a transaction.

use std::collections::BTreeMap;

use serde::Deserialize;
use uuid::Uuid;

use crate::endpoint::Endpoint;
use crate::error::TransactError;
use crate::value::{Atom, Value};

/// What one operation did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OpResult {
    /// Rows that an update, mutate or delete matched.
    pub count: u64,
    /// The UUID of an inserted row.
    pub uuid: Option<Uuid>,
    /// What a select found.
    pub rows: Vec<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
struct WireResult {
    count: Option<u64>,
    uuid: Option<Atom>,
    rows: Option<Vec<BTreeMap<String, Value>>>,
    error: Option<String>,
    #[serde(default)]
    details: String,
}

/// Results come one per operation; after a failed one there are nulls, and a failed commit adds one more.
pub(crate) fn outcome(reply: &str, ops: usize, endpoint: &Endpoint) -> Result<Vec<OpResult>, TransactError> {
    let rejected = |op, error: String, details| TransactError::Rejected { op, error, details };
    let wire: Vec<Option<WireResult>> = serde_json::from_str(reply)
        .map_err(|error| TransactError::Unknown { endpoint: endpoint.clone(), reason: error.to_string() })?;
    let mut results = Vec::with_capacity(ops);
    for (n, result) in wire.into_iter().enumerate() {
        let op = (n < ops).then_some(n);
        match result {
            Some(WireResult { error: Some(error), details, .. }) => return Err(rejected(op, error, details)),
            Some(WireResult { count, uuid, rows, .. }) => {
                let uuid = uuid.and_then(|atom| if let Atom::Uuid(uuid) = atom { Some(uuid) } else { None });
                results.push(OpResult { count: count.unwrap_or(0), uuid, rows: rows.unwrap_or_default() });
            }
            None => return Err(rejected(op, "not executed".into(), String::new())),
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str, ops: usize) -> Result<Vec<OpResult>, TransactError> {
        outcome(json, ops, &"unix:/x".parse().unwrap())
    }

    #[test]
    fn the_failed_operation_is_named_and_a_failed_commit_told_apart() {
        let guard = read(r#"[{},{"error":"timed out","details":"d"},null]"#, 3).unwrap_err();
        assert!(guard.is_guard());
        assert_eq!(guard.to_string(), "transaction rejected at operation 1: timed out (d)");
        let commit = read(r#"[{},{"count":1},{"error":"constraint violation"}]"#, 2).unwrap_err();
        assert_eq!(commit.to_string(), "transaction rejected at commit: constraint violation");
    }

    #[test]
    fn results_keep_the_order_of_the_operations() {
        let id = Uuid::from_u128(5);
        let results =
            read(&format!(r#"[{{"uuid":["uuid","{id}"]}},{{"count":2}},{{"rows":[{{"a":1}}]}},{{}}]"#), 4).unwrap();
        assert_eq!((results[0].uuid, results[1].count, results[2].rows[0]["a"].clone()), (Some(id), 2, Value::from(1)));
        assert_eq!(results[3], OpResult::default());
    }
}
