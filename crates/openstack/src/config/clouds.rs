//! `clouds.yaml`, and the `secure.yaml` that keeps the secrets out of it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::given::{Given, Place};
use super::{Config, ConfigError};

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    clouds: BTreeMap<String, Given>,
}

pub(super) fn read(file: &Path, secure: Option<&Path>, cloud: &str) -> Result<Config, ConfigError> {
    let mut open = parse(file)?;
    let Some(given) = open.clouds.remove(cloud) else {
        let known = open.clouds.into_keys().collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "none".to_owned() } else { known };
        return Err(ConfigError::NoCloud { file: file.display().to_string(), cloud: cloud.to_owned(), known });
    };
    let secret = match secure {
        Some(secure) => parse(secure)?.clouds.remove(cloud).unwrap_or_default(),
        None => Given::default(),
    };
    let place = Place::Clouds(file.display().to_string(), cloud.to_owned());
    Config::from_given(&place, secret.flat().or(given.flat()))
}

fn parse(file: &Path) -> Result<File, ConfigError> {
    let text = super::read_file(file)?;
    // The parser's own message quotes the line, and the line may be the password's.
    serde_saphyr::from_str(&text).map_err(|error| ConfigError::Syntax {
        file: file.display().to_string(),
        reason: match error.location() {
            Some(at) => format!("line {}, column {}: not what a clouds.yaml has there", at.line(), at.column()),
            None => "not a clouds.yaml".to_owned(),
        },
    })
}
