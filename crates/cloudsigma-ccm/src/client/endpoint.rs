//! Where a region's API is.

use std::time::Duration;

use reqwest::header::HeaderValue;
use reqwest::{Method, Url};
use serde::Deserialize;

use super::error::{Error, Kind};
use super::http::{Call, Http};

/// Who knows all locations.
const DIRECTORY: &str = "https://zrh.cloudsigma.com/api/2.0/locations/?limit=0";

/// Locations whose host does not follow from their name.
const ODD: &[(&str, &str)] = &[
    ("dub", "ec.servecentric.com"),
    ("ruh", "ruh.cld.v2.sa"),
    ("adb", "siaflex.cloud"),
    ("wdc", "wdc.alpha3cloud.com"),
];

/// Locations whose host does; others are asked for.
const USUAL: &[&str] = &["zrh", "gva", "fra", "lux", "mnl", "mia", "sjc", "hnl", "per", "mel", "waw", "tyo", "next"];

#[derive(Deserialize)]
struct Locations {
    objects: Vec<Location>,
}

#[derive(Deserialize)]
struct Location {
    id: String,
    api_endpoint: String,
    /// On the direct host.
    upload_url: Option<String>,
}

/// The API's base in a region that is known without asking. Impersonated tokens are another user's anywhere but on the
/// direct host.
#[must_use]
pub fn known_endpoint(region: &str, direct: bool) -> Option<Url> {
    let region = region.to_ascii_lowercase();
    let odd = ODD.iter().find(|(id, _)| *id == region).map(|(_, host)| (*host).to_owned());
    let host = odd.or_else(|| USUAL.contains(&region.as_str()).then(|| format!("{region}.cloudsigma.com")))?;
    let direct = if direct { "direct." } else { "" };
    Url::parse(&format!("https://{direct}{host}/api/2.0/")).ok()
}

/// The API's base in a region, by the table or by the cloud's own list.
pub async fn endpoint(region: &str, direct: bool) -> Result<Url, Error> {
    if let Some(url) = known_endpoint(region, direct) {
        return Ok(url);
    }
    let directory = Url::parse(DIRECTORY).map_err(|error| Error::new(Kind::Invalid, error.to_string()))?;
    listed(directory, region, direct).await
}

async fn listed(directory: Url, region: &str, direct: bool) -> Result<Url, Error> {
    let http = Http::new(Duration::from_secs(10), Duration::from_secs(20))?;
    let nobody = HeaderValue::from_static("");
    let call = Call { method: Method::GET, url: directory, authorization: &nobody, body: None };
    let locations: Locations = serde_json::from_slice(&http.send(&call).await?)
        .map_err(|error| Error::new(Kind::Garbled, format!("the list of locations cannot be read: {error}")))?;
    found(&locations, region, direct)
}

fn found(locations: &Locations, region: &str, direct: bool) -> Result<Url, Error> {
    let unknown = |why: &str| {
        let known: Vec<_> = locations.objects.iter().map(|location| location.id.as_str()).collect();
        Error::new(Kind::Invalid, format!("region {region:?} {why}; known are {}; or give --api-url", known.join(", ")))
    };
    let location = locations.objects.iter().find(|location| location.id.eq_ignore_ascii_case(region));
    let location = location.ok_or_else(|| unknown("is not one of CloudSigma's"))?;
    let base = if direct { location.upload_url.as_deref() } else { Some(location.api_endpoint.as_str()) };
    let base = base.ok_or_else(|| unknown("has no direct host"))?;
    // Only the host is taken: what follows it is the same everywhere.
    let url = Url::parse(base).and_then(|url| url.join("/api/2.0/"));
    url.map_err(|_| unknown("has an address that cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_that_do_not_fit_the_pattern_are_in_the_table() {
        assert_eq!(known_endpoint("ZRH", false).unwrap().as_str(), "https://zrh.cloudsigma.com/api/2.0/");
        assert_eq!(known_endpoint("next", true).unwrap().as_str(), "https://direct.next.cloudsigma.com/api/2.0/");
        assert_eq!(known_endpoint("dub", false).unwrap().as_str(), "https://ec.servecentric.com/api/2.0/");
        assert_eq!(known_endpoint("nowhere", false), None);
    }

    #[tokio::test]
    async fn a_region_out_of_the_table_is_looked_up_in_the_clouds_list() {
        let cloud = groundcrew_testkit::cloudsigma::CloudSigma::start().await.unwrap();
        let directory = || Url::parse(&format!("{}locations/?limit=0", cloud.url())).unwrap();
        assert_eq!(listed(directory(), "tst", false).await.unwrap().as_str(), cloud.url());
        assert_eq!(listed(directory(), "TST", true).await.unwrap().as_str(), cloud.direct_url());
        let error = listed(directory(), "abc", true).await.unwrap_err();
        assert!(error.to_string().contains("known are TST"), "{error}");
    }
}
