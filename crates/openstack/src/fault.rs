//! What the services say when they refuse: four shapes of JSON, and the pages of whatever stands in front of them.

use reqwest::StatusCode;
use serde_json::{Map, Value};

use crate::error::{Error, Kind};

/// What a body says about a failure.
struct Said {
    code: Option<String>,
    message: String,
    /// Whether it is one of the services' shapes.
    known: bool,
}

/// The error that an answer means.
pub(crate) fn error_of(status: StatusCode, body: &[u8], throttled: bool) -> Error {
    let said = read(status, body);
    let kind = kind_of(status, &said, throttled);
    Error::new(kind, said.message).with_status(status.as_u16()).with_code(said.code)
}

fn read(status: StatusCode, body: &[u8]) -> Said {
    let said = match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(object)) => shaped(&object),
        _ => None,
    };
    said.unwrap_or_else(|| Said { code: None, message: describe(status, body), known: false })
}

fn shaped(object: &Map<String, Value>) -> Option<Said> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(tidy);
    // Neutron. Very old ones say only a string.
    if let Some(fault) = object.get("NeutronError") {
        let message = text(fault, "message").or_else(|| fault.as_str().map(tidy))?;
        return Some(Said { code: text(fault, "type").filter(|code| !code.is_empty()), message, known: true });
    }
    // Octavia.
    if let Some(message) = object.get("faultstring").and_then(Value::as_str) {
        return Some(Said { code: None, message: tidy(message), known: true });
    }
    // Keystone.
    if let Some(fault) = object.get("error") {
        return Some(Said { code: text(fault, "title"), message: text(fault, "message")?, known: true });
    }
    // Nova and Cinder: one key, which is the name of the fault.
    let mut entries = object.iter();
    if let (Some((name, fault)), None) = (entries.next(), entries.next())
        && fault.is_object()
    {
        return Some(Said { code: Some(tidy(name)), message: text(fault, "message")?, known: true });
    }
    // The framework under them, before any service has seen the request.
    let message = object.get("message").and_then(Value::as_str)?;
    Some(Said { code: None, message: tidy(message), known: false })
}

fn kind_of(status: StatusCode, said: &Said, throttled: bool) -> Kind {
    let code = said.code.as_deref().unwrap_or_default();
    let quota = || said.message.to_ascii_lowercase().contains("quota");
    match status.as_u16() {
        401 => Kind::Unauthorized,
        429 | 498 => Kind::Throttled,
        413 if throttled => Kind::Throttled,
        413 if code == "overLimit" || quota() => Kind::Quota,
        403 if said.known && quota() => Kind::Quota,
        403 => Kind::Denied,
        404 if is_item(said) => Kind::NotFound,
        404 | 410 if said.known => Kind::Invalid,
        404 | 410 | 300..=399 => Kind::Garbled,
        409 if code == "OverQuota" => Kind::Quota,
        409 | 412 => Kind::Conflict,
        400 if code == "RoutesExhausted" => Kind::Quota,
        400..=499 => Kind::Invalid,
        500..=599 => Kind::Unavailable,
        _ => Kind::Garbled,
    }
}

/// Whether a 404 is about the thing, and not about the path: a call that a service does not have is answered with
/// the general words for 404 everywhere.
fn is_item(said: &Said) -> bool {
    said.known
        && said.code.as_deref() != Some("HTTPNotFound")
        && !said.message.starts_with("The resource could not be found")
}

/// Something for a person to read about a body in no known shape.
fn describe(status: StatusCode, body: &[u8]) -> String {
    let reason = status.canonical_reason().unwrap_or("no known status");
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if text.is_empty() {
        return format!("{reason}, without a word");
    }
    if is_page(text) {
        let title = title(text).map(|title| format!(" titled {title:?}")).unwrap_or_default();
        return format!("{reason}: a web page{title} instead of an answer; is there a proxy in between?");
    }
    format!("{reason}: {}", tidy(text))
}

/// Why a body that should be a document is none.
pub(crate) fn not_a_document(body: &[u8], error: &serde_json::Error) -> String {
    let text = String::from_utf8_lossy(body);
    if is_page(text.trim()) {
        let title = title(&text).map(|title| format!(" titled {title:?}")).unwrap_or_default();
        return format!("a web page{title} instead of an answer; is there a proxy in between?");
    }
    // Not the parser's own words: they may quote the document.
    format!(
        "the answer cannot be understood: {:?} error at line {}, column {}",
        error.classify(),
        error.line(),
        error.column()
    )
}

fn is_page(text: &str) -> bool {
    let start: String = text.chars().take(15).collect::<String>().to_ascii_lowercase();
    start.starts_with("<!doctype")
        || start.starts_with("<html")
        || start.starts_with("<head")
        || start.starts_with("<?xml")
}

fn title(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let start = lower.find("<title>")? + "<title>".len();
    let end = start + lower.get(start..)?.find("</title>")?;
    text.get(start..end).map(tidy).filter(|title| !title.is_empty())
}

/// One line of bounded length, whatever was sent.
fn tidy(text: &str) -> String {
    const LONGEST: usize = 400;
    let words: Vec<_> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    if line.chars().count() <= LONGEST { line } else { line.chars().take(LONGEST).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> Error {
        error_of(StatusCode::from_u16(status).unwrap(), body.as_bytes(), false)
    }

    #[test]
    fn the_shape_of_each_service_becomes_one_error() {
        for (status, body, kind, code, message) in [
            (
                404,
                r#"{"NeutronError":{"type":"RouterNotFound","message":"Router r could not be found","detail":""}}"#,
                Kind::NotFound,
                Some("RouterNotFound"),
                "Router r could not be found",
            ),
            (
                404,
                r#"{"itemNotFound":{"code":404,"message":"Instance i could not be found."}}"#,
                Kind::NotFound,
                Some("itemNotFound"),
                "Instance i could not be found.",
            ),
            (
                404,
                r#"{"faultcode":"Client","faultstring":"Load Balancer l not found.","debuginfo":null}"#,
                Kind::NotFound,
                None,
                "Load Balancer l not found.",
            ),
            (
                401,
                r#"{"error":{"code":401,"title":"Unauthorized","message":"The request you have made requires authentication."}}"#,
                Kind::Unauthorized,
                Some("Unauthorized"),
                "The request you have made requires authentication.",
            ),
            (
                409,
                r#"{"conflictingRequest":{"code":409,"message":"Cannot 'reboot' instance i while it is in vm_state error"}}"#,
                Kind::Conflict,
                Some("conflictingRequest"),
                "Cannot 'reboot' instance i while it is in vm_state error",
            ),
            (
                409,
                r#"{"faultcode":"Client","faultstring":"Invalid state PENDING_CREATE of loadbalancer resource l","debuginfo":null}"#,
                Kind::Conflict,
                None,
                "Invalid state PENDING_CREATE of loadbalancer resource l",
            ),
            (
                412,
                r#"{"NeutronError":{"type":"RevisionNumberConstraintFailed","message":"Constrained to 6, but current revision is 7","detail":""}}"#,
                Kind::Conflict,
                Some("RevisionNumberConstraintFailed"),
                "Constrained to 6, but current revision is 7",
            ),
            (
                403,
                r#"{"NeutronError":{"type":"PolicyNotAuthorized","message":"rule:delete_port is disallowed by policy","detail":""}}"#,
                Kind::Denied,
                Some("PolicyNotAuthorized"),
                "rule:delete_port is disallowed by policy",
            ),
            (
                403,
                r#"{"forbidden":{"code":403,"message":"Quota exceeded for instances: Requested 1"}}"#,
                Kind::Quota,
                Some("forbidden"),
                "Quota exceeded for instances: Requested 1",
            ),
            (
                413,
                r#"{"overLimit":{"code":413,"message":"VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded"}}"#,
                Kind::Quota,
                Some("overLimit"),
                "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded",
            ),
            (
                400,
                r#"{"badRequest":{"code":400,"message":"Invalid volume: Volume status must be available or error"}}"#,
                Kind::Invalid,
                Some("badRequest"),
                "Invalid volume: Volume status must be available or error",
            ),
        ] {
            let error = of(status, body);
            assert_eq!(
                (error.kind(), error.code(), error.message(), error.status()),
                (kind, code, message, Some(status)),
                "{body}"
            );
        }
    }

    #[test]
    fn a_full_router_is_known_by_both_of_its_shapes() {
        let old = r#"{"NeutronError":{"type":"RoutesExhausted","message":"The number of routes exceeds the maximum 31.","detail":""}}"#;
        let new = r#"{"NeutronError":{"type":"OverQuota","message":"Quota exceeded for resources: ['router_route'].","detail":""}}"#;
        let other =
            r#"{"NeutronError":{"type":"OverQuota","message":"Quota exceeded for resources: ['port'].","detail":""}}"#;
        assert!(of(400, old).is_router_full() && of(400, old).kind() == Kind::Quota);
        assert!(of(409, new).is_router_full() && of(409, new).kind() == Kind::Quota);
        assert!(!of(409, other).is_router_full() && of(409, other).kind() == Kind::Quota);
    }

    #[test]
    fn a_404_that_is_not_about_the_thing_is_no_proof_that_it_is_gone() {
        for body in [
            "<html><head><title>404 Not Found</title></head><body><center>nginx</center></body></html>",
            "",
            "not here",
            r#"{"message":"The resource could not be found.<br /><br />","code":"404 Not Found","title":"Not Found"}"#,
            r#"{"NeutronError":{"type":"HTTPNotFound","message":"The resource could not be found.","detail":""}}"#,
            r#"{"faultcode":"Client","faultstring":"The resource could not be found.","debuginfo":null}"#,
        ] {
            assert_ne!(of(404, body).kind(), Kind::NotFound, "{body}");
        }
    }

    #[test]
    fn pages_and_garbage_are_told_in_one_short_line() {
        let page = of(502, "<!DOCTYPE html>\n<html><head><title>502\n Bad Gateway</title></head></html>");
        assert_eq!(
            page.message(),
            "Bad Gateway: a web page titled \"502 Bad Gateway\" instead of an answer; is there a proxy in between?"
        );
        assert_eq!(of(503, "").message(), "Service Unavailable, without a word");
        let long = error_of(StatusCode::BAD_REQUEST, &[0xff; 5000], false);
        assert!(long.message().chars().count() < 500 && !long.message().contains('\n'));
        assert_eq!(of(400, "{\"badRequest\": 7}").kind(), Kind::Invalid);
    }
}
