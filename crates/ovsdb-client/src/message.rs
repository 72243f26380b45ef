//! JSON-RPC 1.0 messages as OVSDB uses them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::codec::Frame;
use crate::update::Key;

/// A message from the server. Its parts are JSON that was not looked at yet, and perhaps none.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Request { id: &'a str, method: Cow<'a, str>, params: &'a str },
    Notification { method: Cow<'a, str>, params: &'a str },
    Reply { id: u64, result: Result<&'a str, &'a str> },
}

impl<'a> Message<'a> {
    pub(crate) fn parse(frame: Frame<'a>) -> Result<Self, String> {
        let member = |name| frame.member(name).filter(|value| *value != "null");
        let params = member("params").unwrap_or("null");
        match (member("method"), member("id")) {
            (Some(method), id) => {
                let method = serde_json::from_str::<Key<'a>>(method).map_err(|error| error.to_string())?.0;
                Ok(match id {
                    Some(id) => Self::Request { id, method, params },
                    None => Self::Notification { method, params },
                })
            }
            (None, Some(id)) => {
                let id = id.parse().map_err(|_| format!("a reply to {id}, which was never asked"))?;
                let result = member("error").map_or(Ok(member("result").unwrap_or("null")), Err);
                Ok(Self::Reply { id, result })
            }
            (None, None) => Err("a message with neither a method nor an id".into()),
        }
    }
}

/// A request but for its number, which it gets when it is sent.
pub(crate) struct Draft(Vec<u8>);

#[derive(Serialize)]
struct Call<'a, P> {
    method: &'a str,
    params: &'a P,
}

impl Draft {
    pub(crate) fn new(method: &str, params: &impl Serialize) -> Result<Self, serde_json::Error> {
        let mut bytes = serde_json::to_vec(&Call { method, params })?;
        // The brace that ends it comes with the number.
        bytes.pop();
        Ok(Self(bytes))
    }

    pub(crate) fn numbered(self, id: u64) -> Vec<u8> {
        let Self(mut bytes) = self;
        bytes.extend_from_slice(format!(r#","id":{id}}}"#).as_bytes());
        bytes
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    id: &'a RawValue,
    result: Option<&'a RawValue>,
    error: Option<&'a str>,
}

pub(crate) fn answer(id: &str, result: Result<&str, &str>) -> Result<Vec<u8>, serde_json::Error> {
    let id = serde_json::from_str(id)?;
    let (result, error) = (result.ok().map(serde_json::from_str).transpose()?, result.err());
    serde_json::to_vec(&Answer { id, result, error })
}

/// The words in an error, which is a string or an object depending on who reports it.
pub(crate) fn error_words(error: &str) -> (String, String) {
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
    match serde_json::from_str(error) {
        Ok(Wire::Words(error)) => (error, String::new()),
        Ok(Wire::Object { error, details }) => (error, details),
        Err(_) => (error.to_owned(), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Scanner;

    fn kind(text: &str) -> Result<&'static str, String> {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.scan(text.as_bytes()).unwrap(), Some(text.len()));
        Ok(match Message::parse(scanner.frame(text))? {
            Message::Request { .. } => "request",
            Message::Notification { .. } => "notification",
            Message::Reply { id: 3, result: Ok(_) } => "result",
            Message::Reply { id: 3, result: Err(_) } => "error",
            Message::Reply { .. } => "reply to another",
        })
    }

    #[test]
    fn the_four_kinds_of_message_are_told_apart() {
        assert_eq!(kind(r#"{"id":"echo","method":"echo","params":[]}"#), Ok("request"));
        assert_eq!(kind(r#"{"id":null,"method":"update3","params":[]}"#), Ok("notification"));
        assert_eq!(kind(r#"{"id":3,"result":null,"error":null}"#), Ok("result"));
        assert_eq!(kind(r#" { "error" : "unknown method" , "id" : 3 } "#.trim_end()), Ok("error"));
        for bad in ["{}", r#"{"id":"x","result":1}"#, "{not json}", r#"{"id":3 3,"result":1}"#, r#"{"method":x}"#] {
            assert!(kind(bad).is_err(), "{bad}");
        }
    }
}
