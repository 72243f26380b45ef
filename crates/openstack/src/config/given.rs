//! What a file or the environment says, before anybody has looked whether it is enough.

use std::fmt;

use serde::Deserialize;

use super::{Auth, ConfigError, Credential, Domain, Project, User};
use crate::secret::Secret;

/// Where a value was given, and how keys are spelled there.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// By a program.
    Code,
    /// `OS_*`
    Environment,
    /// The file and the cloud in it.
    Clouds(String, String),
    /// The file.
    CloudConf(String),
}

impl Place {
    pub(super) fn key(&self, key: &str) -> String {
        match self {
            Self::Code => key.to_owned(),
            Self::Environment => format!("OS_{}", key.to_uppercase()),
            Self::Clouds(..) if matches!(key, "auth_type" | "interface" | "region_name" | "cacert" | "verify") => {
                key.to_owned()
            }
            Self::Clouds(..) => format!("auth.{key}"),
            Self::CloudConf(_) => match key {
                "region_name" => "region".to_owned(),
                "interface" => "os-endpoint-type".to_owned(),
                "cacert" => "ca-file".to_owned(),
                "verify" => "tls-insecure".to_owned(),
                _ => key.replace("project", "tenant").replace('_', "-"),
            },
        }
    }

    pub(super) fn invalid(&self, key: &str, reason: &str) -> ConfigError {
        ConfigError::Invalid { place: self.to_string(), key: self.key(key), reason: reason.to_owned() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code => f.write_str("configuration"),
            Self::Environment => f.write_str("environment"),
            Self::Clouds(file, cloud) => write!(f, "{file}, cloud {cloud}"),
            Self::CloudConf(file) => write!(f, "{file}, [Global]"),
        }
    }
}

/// Everything that may be given, in the spelling of `clouds.yaml`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Given {
    pub(super) auth: Option<Box<Given>>,
    pub(super) auth_type: Option<String>,
    pub(super) auth_url: Option<String>,
    pub(super) username: Option<String>,
    pub(super) user_id: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) user_domain_name: Option<String>,
    pub(super) user_domain_id: Option<String>,
    pub(super) project_name: Option<String>,
    pub(super) tenant_name: Option<String>,
    pub(super) tenant_id: Option<String>,
    pub(super) project_id: Option<String>,
    pub(super) project_domain_name: Option<String>,
    pub(super) project_domain_id: Option<String>,
    /// For the user and the project, where they have none of their own.
    pub(super) domain_name: Option<String>,
    pub(super) domain_id: Option<String>,
    pub(super) default_domain: Option<String>,
    pub(super) application_credential_id: Option<String>,
    pub(super) application_credential_name: Option<String>,
    pub(super) application_credential_secret: Option<Secret>,
    pub(super) region_name: Option<String>,
    pub(super) interface: Option<String>,
    pub(super) endpoint_type: Option<String>,
    pub(super) cacert: Option<String>,
    pub(super) verify: Option<String>,
    pub(super) insecure: Option<String>,
    /// A vendor's defaults, shipped with the Python tools.
    pub(super) profile: Option<String>,
}

macro_rules! prefer {
    ($first:ident, $second:ident, $($field:ident)*) => { Given { auth: None, $($field: $first.$field.or($second.$field),)* } };
}

impl Given {
    /// What is given here, and from `other` what is not.
    pub(super) fn or(self, other: Self) -> Self {
        prefer!(self, other,
            auth_type auth_url username user_id password user_domain_name user_domain_id project_name project_id project_domain_name
            project_domain_id domain_name domain_id application_credential_id application_credential_name application_credential_secret
            region_name interface cacert verify insecure profile
            tenant_name tenant_id default_domain endpoint_type)
    }

    /// The values under `auth`, and those beside it for what is not under it.
    pub(super) fn flat(mut self) -> Self {
        let mut flat = match self.auth.take() {
            Some(auth) => auth.or(self),
            None => self,
        };
        // Older words for the same.
        flat.project_name = flat.project_name.or(flat.tenant_name.take());
        flat.project_id = flat.project_id.or(flat.tenant_id.take());
        flat.domain_name = flat.domain_name.or(flat.default_domain.take());
        flat.interface = flat.interface.or(flat.endpoint_type.take());
        flat
    }

    /// A client that checks no certificate would give the password to anybody in between.
    pub(super) fn refuse_insecure(&self, place: &Place) -> Result<(), ConfigError> {
        let off = |value: Option<&str>, words: &[&str]| {
            value.is_some_and(|value| words.contains(&value.to_ascii_lowercase().as_str()))
        };
        if off(self.verify.as_deref(), &["false", "no", "off", "0"])
            || off(self.insecure.as_deref(), &["true", "yes", "on", "1"])
        {
            let reason = format!(
                "turns the check of certificates off, which is refused; name the cloud's CA in {}",
                place.key("cacert")
            );
            return Err(place.invalid("verify", &reason));
        }
        Ok(())
    }

    pub(super) fn missing(&self, place: &Place, keys: &[&str]) -> ConfigError {
        let what = keys.iter().map(|key| place.key(key)).collect::<Vec<_>>().join(" or ");
        let hint = match &self.profile {
            Some(profile) => format!(" (the profile {profile} is not read: write out what it says)"),
            None => String::new(),
        };
        ConfigError::Missing { place: place.to_string(), what, hint }
    }

    pub(super) fn auth(&self, place: &Place) -> Result<Auth, ConfigError> {
        let credential = match self.auth_type.as_deref() {
            None => self.application_credential_id.is_some() || self.application_credential_name.is_some(),
            Some("password" | "v3password") => false,
            Some("v3applicationcredential") => true,
            Some(other) => {
                let reason = format!("is {other}; only password and v3applicationcredential are understood");
                return Err(place.invalid("auth_type", &reason));
            }
        };
        if credential { self.application_credential(place) } else { self.password(place) }
    }

    fn password(&self, place: &Place) -> Result<Auth, ConfigError> {
        let user = self.user(place)?;
        let password = self.password.clone().ok_or_else(|| self.missing(place, &["password"]))?;
        let project = match (&self.project_id, &self.project_name) {
            (Some(id), _) => Project::Id(id.clone()),
            (None, Some(name)) => Project::Name(name.clone(), self.project_domain(place)?),
            (None, None) => return Err(self.missing(place, &["project_id", "project_name"])),
        };
        Ok(Auth::Password { user, password, project })
    }

    fn application_credential(&self, place: &Place) -> Result<Auth, ConfigError> {
        let credential = match (&self.application_credential_id, &self.application_credential_name) {
            (Some(id), _) => Credential::Id(id.clone()),
            (None, Some(name)) => Credential::Name(name.clone(), self.user(place)?),
            (None, None) => return Err(self.missing(place, &["application_credential_id"])),
        };
        let secret = self.application_credential_secret.clone();
        let secret = secret.ok_or_else(|| self.missing(place, &["application_credential_secret"]))?;
        Ok(Auth::ApplicationCredential { credential, secret })
    }

    fn user(&self, place: &Place) -> Result<User, ConfigError> {
        match (&self.user_id, &self.username) {
            (Some(id), _) => Ok(User::Id(id.clone())),
            (None, Some(name)) => {
                let domain = domain(self.user_domain_id.as_ref(), self.user_domain_name.as_ref())
                    .or_else(|| domain(self.domain_id.as_ref(), self.domain_name.as_ref()))
                    .or_else(|| domain(self.project_domain_id.as_ref(), self.project_domain_name.as_ref()))
                    .ok_or_else(|| self.missing(place, &["user_domain_name", "user_domain_id"]))?;
                Ok(User::Name(name.clone(), domain))
            }
            (None, None) => Err(self.missing(place, &["username", "user_id"])),
        }
    }

    fn project_domain(&self, place: &Place) -> Result<Domain, ConfigError> {
        domain(self.project_domain_id.as_ref(), self.project_domain_name.as_ref())
            .or_else(|| domain(self.domain_id.as_ref(), self.domain_name.as_ref()))
            .or_else(|| domain(self.user_domain_id.as_ref(), self.user_domain_name.as_ref()))
            .ok_or_else(|| self.missing(place, &["project_domain_name", "project_domain_id"]))
    }
}

fn domain(id: Option<&String>, name: Option<&String>) -> Option<Domain> {
    id.cloned().map(Domain::Id).or_else(|| name.cloned().map(Domain::Name))
}
