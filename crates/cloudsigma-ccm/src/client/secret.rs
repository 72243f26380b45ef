//! Passwords and tokens, kept out of everything that is printed.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Something that must not be seen: neither `Debug` nor any error shows it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    value: String,
    /// Where it came from, and where another one may be by now.
    file: Option<PathBuf>,
}

impl Secret {
    /// Hides a value. White space around it is that of the file it came from.
    #[must_use]
    pub fn new(value: &str) -> Self {
        Self { value: value.trim().to_owned(), file: None }
    }

    /// What a file has. It is read again when the cloud refuses what it had: secrets are changed while we run.
    pub fn from_file(file: &Path) -> std::io::Result<Self> {
        Ok(Self { file: Some(file.to_owned()), ..Self::new(&std::fs::read_to_string(file)?) })
    }

    /// Whether there may be another one by now.
    pub(super) fn changes(&self) -> bool {
        self.file.is_some()
    }

    /// What its file has now; itself where that cannot be read, as while it is being replaced.
    pub(super) fn now(&self) -> Self {
        let read = self.file.as_deref().and_then(|file| Self::from_file(file).ok());
        read.filter(|read| !read.value.is_empty()).unwrap_or_else(|| self.clone())
    }

    /// The value itself, for whoever has to send it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.value
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(value: &str) -> Result<Self, Infallible> {
        Ok(Self::new(value))
    }
}
