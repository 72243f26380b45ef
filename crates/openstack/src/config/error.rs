//! Why a configuration cannot be used.

/// Why a configuration cannot be used. It names the file or the variable, and never shows a value that may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is neither `OS_CLOUD` nor `OS_AUTH_URL`.
    #[error("no cloud is configured: set OS_CLOUD for a clouds.yaml, or OS_AUTH_URL and its companions")]
    Nothing,
    /// A file cannot be read.
    #[error("cannot read {file}: {reason}")]
    Read {
        /// The file.
        file: String,
        /// What the system said.
        reason: String,
    },
    /// A file is not in its format.
    #[error("{file}: {reason}")]
    Syntax {
        /// The file.
        file: String,
        /// Where, and what is wrong.
        reason: String,
    },
    /// There is no `clouds.yaml` at any of the usual places.
    #[error("no clouds.yaml found; looked at {looked}; OS_CLIENT_CONFIG_FILE names another place")]
    NoFile {
        /// Where we looked.
        looked: String,
    },
    /// The file has no such cloud.
    #[error("{file} has no cloud {cloud}; it has {known}")]
    NoCloud {
        /// The file.
        file: String,
        /// What was asked for.
        cloud: String,
        /// What there is.
        known: String,
    },
    /// Something is not there.
    #[error("{place}: {what} is missing{hint}")]
    Missing {
        /// The file or the environment.
        place: String,
        /// The keys, as they are spelled there.
        what: String,
        /// Why it may be missing, if there is something to say about that.
        hint: String,
    },
    /// A value that cannot be used.
    #[error("{place}: {key} {reason}")]
    Invalid {
        /// The file or the environment.
        place: String,
        /// The key, as it is spelled there.
        key: String,
        /// What is wrong with it and what to do.
        reason: String,
    },
}
