//! Answers as the API words them.

use serde_json::{Value, json};

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Reply {
    pub(super) fn json(status: u16, body: &Value) -> Self {
        Self { status, body: body.to_string() }
    }

    pub(super) fn ok(body: &Value) -> Self {
        Self::json(200, body)
    }

    pub(super) fn empty(status: u16) -> Self {
        Self { status, body: String::new() }
    }

    /// An array of errors, as nearly always.
    pub(super) fn error(status: u16, kind: &str, point: Option<&str>, message: &str) -> Self {
        Self::json(status, &json!([{ "error_point": point, "error_type": kind, "error_message": message }]))
    }

    pub(super) fn not_found(what: &str) -> Self {
        Self::error(404, "notexist", None, &format!("Object with uuid {what} does not exist"))
    }

    pub(super) fn invalid(point: &str, message: &str) -> Self {
        Self::error(400, "validation", Some(point), message)
    }

    /// A single object instead of an array, without `error_point`.
    pub(super) fn denied(message: &str) -> Self {
        Self::json(403, &json!({ "error_type": "permission", "error_message": message }))
    }

    pub(super) fn unauthorized() -> Self {
        Self::error(401, "permission", None, "Authentication credentials were not provided or are wrong")
    }
}
