//! JSON-RPC 1.0 messages as OVSDB uses them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A message from the server, its content not looked at yet.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Request { id: &'a RawValue, method: Cow<'a, str>, params: &'a RawValue },
    Notification { method: Cow<'a, str>, params: &'a RawValue },
    Reply { id: u64, result: Result<&'a RawValue, &'a RawValue> },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl<'a> Message<'a> {
    pub(crate) fn parse(frame: &'a [u8]) -> Result<Self, String> {
        let envelope: Envelope<'a> = serde_json::from_slice(frame).map_err(|error| error.to_string())?;
        let params = envelope.params.unwrap_or(RawValue::NULL);
        match (envelope.method, envelope.id) {
            (Some(method), Some(id)) => Ok(Self::Request { id, method, params }),
            (Some(method), None) => Ok(Self::Notification { method, params }),
            (None, Some(id)) => {
                let id = id.get().parse().map_err(|_| format!("a reply to {}, which was never asked", id.get()))?;
                let result = envelope.error.map_or(Ok(envelope.result.unwrap_or(RawValue::NULL)), Err);
                Ok(Self::Reply { id, result })
            }
            (None, None) => Err("a message with neither a method nor an id".into()),
        }
    }
}

#[derive(Serialize)]
struct Call<'a, P> {
    id: u64,
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct Answer<'a> {
    id: &'a RawValue,
    result: Option<&'a RawValue>,
    error: Option<&'a str>,
}

pub(crate) fn call(id: u64, method: &str, params: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Call { id, method, params })
}

pub(crate) fn answer(id: &RawValue, result: Result<&RawValue, &str>) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Answer { id, result: result.ok(), error: result.err() })
}

/// The words in an error, which is a string or an object depending on who reports it.
pub(crate) fn error_words(error: &RawValue) -> (String, String) {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Wire {
        Words(String),
        Object {
            error: String,
            #[serde(default)]
            details: String,
        },
    }
    match serde_json::from_str(error.get()) {
        Ok(Wire::Words(error)) => (error, String::new()),
        Ok(Wire::Object { error, details }) => (error, details),
        Err(_) => (error.get().to_owned(), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_kinds_of_message_are_told_apart() {
        let parse = |text: &'static str| Message::parse(text.as_bytes());
        assert!(matches!(parse(r#"{"id":"echo","method":"echo","params":[]}"#), Ok(Message::Request { .. })));
        assert!(matches!(parse(r#"{"id":null,"method":"update3","params":[]}"#), Ok(Message::Notification { .. })));
        assert!(matches!(parse(r#"{"id":3,"result":null,"error":null}"#), Ok(Message::Reply { id: 3, result: Ok(_) })));
        assert!(matches!(parse(r#"{"id":3,"error":"unknown method"}"#), Ok(Message::Reply { id: 3, result: Err(_) })));
        for bad in ["{}", r#"{"id":"x","result":1}"#, "{not json}"] {
            assert!(Message::parse(bad.as_bytes()).is_err());
        }
    }
}
