//! An OpenStack client for controllers that delete things.
#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod block_storage;
mod catalog;
mod client;
pub mod compute;
mod config;
mod error;
mod fault;
mod http;
mod keystone;
mod listing;
pub mod load_balancer;
pub mod network;
mod page;
mod secret;
mod tls;
mod tokens;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer};

pub use catalog::Catalog;
pub use client::{Client, Filters};
pub use config::{Auth, Config, ConfigError, Credential, Domain, Interface, Project, User};
pub use error::{Error, Kind};
pub use keystone::Session;
pub use listing::Listing;
pub use secret::Secret;

/// What the services leave empty is sometimes `null` and sometimes not there at all.
fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A time with its zone or, as Cinder and Octavia have it, in UTC without saying so. One that cannot be read is not known.
fn moment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    Ok(text.and_then(|text| {
        let local = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
        text.parse().ok().or_else(local)
    }))
}
