//! Which cloud, as whom, and how patient to be.

mod cloud_conf;
mod clouds;
mod env;
mod error;
mod given;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Url;

pub use error::ConfigError;

use crate::secret::Secret;
use given::{Given, Place};

/// Which cloud, and as whom.
///
/// It comes from where the cloud's other tools have it: [`Config::from_env`] (`OS_CLOUD` with `clouds.yaml`, or the other `OS_*`
/// variables), [`Config::from_clouds`], or [`Config::from_cloud_conf`] (the `cloud.conf` of the OpenStack cloud controller manager).
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) auth_url: Url,
    pub(crate) auth: Auth,
    pub(crate) region: Option<String>,
    pub(crate) interface: Interface,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) attempt_timeout: Duration,
    pub(crate) retry_for: Duration,
}

/// As whom to authenticate.
#[derive(Debug, Clone)]
pub enum Auth {
    /// A user in a project.
    Password {
        /// Who.
        user: User,
        /// Their password.
        password: Secret,
        /// In which project.
        project: Project,
    },
    /// An application credential. It brings its project along.
    ApplicationCredential {
        /// Which.
        credential: Credential,
        /// Its secret.
        secret: Secret,
    },
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    /// By id.
    Id(String),
    /// By name, which is unique in a domain only.
    Name(String, Domain),
}

/// A project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Project {
    /// By id.
    Id(String),
    /// By name, which is unique in a domain only.
    Name(String, Domain),
}

/// A domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Domain {
    /// By id; the first domain of most clouds has the id `default`.
    Id(String),
    /// By name.
    Name(String),
}

/// An application credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// By id.
    Id(String),
    /// By name, which is unique for a user only.
    Name(String, User),
}

/// Which of a service's endpoints to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interface {
    /// For everybody.
    #[default]
    Public,
    /// Inside the cloud's own network.
    Internal,
    /// For administrators.
    Admin,
}

impl Interface {
    /// As in the catalog.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }

    /// The catalog's word, or the older one with `URL` behind it.
    fn parse(word: &str) -> Option<Self> {
        match word.strip_suffix("URL").unwrap_or(word) {
            "public" => Some(Self::Public),
            "internal" => Some(Self::Internal),
            "admin" => Some(Self::Admin),
            _ => None,
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Config {
    /// A cloud by its Keystone, with or without `/v3` at the end.
    pub fn new(auth_url: &str, auth: Auth) -> Result<Self, ConfigError> {
        Self::at(&Place::Code, auth_url, auth)
    }

    /// From the environment: the cloud `OS_CLOUD` of a `clouds.yaml`, or else the other `OS_*` variables.
    pub fn from_env() -> Result<Self, ConfigError> {
        env::read(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// A cloud of a `clouds.yaml`, joined with a `secure.yaml` beside it if there is one.
    pub fn from_clouds(file: &Path, cloud: &str) -> Result<Self, ConfigError> {
        let secure = file.with_file_name("secure.yaml");
        clouds::read(file, secure.exists().then_some(secure.as_path()), cloud)
    }

    /// The `cloud.conf` of the OpenStack cloud controller manager, which a cluster on OpenStack has already.
    pub fn from_cloud_conf(file: &Path) -> Result<Self, ConfigError> {
        cloud_conf::read(file)
    }

    /// The region to work in. Needed where the catalog has more than one.
    #[must_use]
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// Which endpoints to use, the public ones unless told.
    #[must_use]
    pub fn interface(mut self, interface: Interface) -> Self {
        self.interface = interface;
        self
    }

    /// Trusts the authorities in this PEM file, and no others, instead of those of the system.
    #[must_use]
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// How long one attempt at a request may take, from connecting to the last byte; 30 s unless told.
    #[must_use]
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = timeout;
        self
    }

    /// For how long a request that may be repeated is repeated, 1 min unless told. No attempt begins after it.
    #[must_use]
    pub fn retry_for(mut self, time: Duration) -> Self {
        self.retry_for = time;
        self
    }

    fn at(place: &Place, auth_url: &str, auth: Auth) -> Result<Self, ConfigError> {
        let wrong = |reason: &str| place.invalid("auth_url", reason);
        // The value is not shown: somebody may have put a password into it.
        let mut url = Url::parse(auth_url.trim()).map_err(|error| wrong(&format!("is no URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong("must begin with https:// or http:// and name a host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("must not carry a user or a password; they have places of their own"));
        }
        url.set_query(None);
        url.set_fragment(None);
        let path = url.path().trim_end_matches('/');
        let path = path.strip_suffix("/v3").or_else(|| path.strip_suffix("/v2.0")).unwrap_or(path);
        url.set_path(&format!("{path}/v3"));
        Ok(Self {
            auth_url: url,
            auth,
            region: None,
            interface: Interface::Public,
            ca: None,
            attempt_timeout: Duration::from_secs(30),
            retry_for: Duration::from_mins(1),
        })
    }

    fn from_given(place: &Place, given: Given) -> Result<Self, ConfigError> {
        given.refuse_insecure(place)?;
        let auth_url = given.auth_url.clone().ok_or_else(|| given.missing(place, &["auth_url"]))?;
        let mut config = Self::at(place, &auth_url, given.auth(place)?)?;
        if let Some(word) = &given.interface {
            config.interface = Interface::parse(word)
                .ok_or_else(|| place.invalid("interface", "must be public, internal or admin"))?;
        }
        config.region = given.region_name;
        config.ca = given.cacert.map(|file| match (file.strip_prefix("~/"), std::env::home_dir()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(file),
        });
        Ok(config)
    }
}

fn read_file(file: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(file)
        .map_err(|error| ConfigError::Read { file: file.display().to_string(), reason: error.to_string() })
}
