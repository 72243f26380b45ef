//! Passwords and tokens, kept out of everything that is printed.

use std::fmt;

use serde::Deserialize;

/// Something that must not be seen: neither `Debug` nor any error shows it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Hides a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for whoever has to send it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The text without the secret in it. A proxy for debugging may send a request's own headers back.
    pub(crate) fn scrub(&self, text: &str) -> String {
        // A short one would tear holes into honest words and thereby tell what it is.
        if self.0.len() < 6 { text.to_owned() } else { text.replace(&self.0, "[hidden]") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl From<&str> for Secret {
    fn from(value: &str) -> Self {
        Self::new(value)
    }
}
