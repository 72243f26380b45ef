//! Which services a cloud has, and where.

use std::collections::BTreeSet;

use reqwest::Url;
use serde::Deserialize;

use crate::config::Interface;
use crate::error::{Error, Kind};
use crate::null_as_default;

/// A kind of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Network,
    Compute,
    LoadBalancer,
    BlockStorage,
}

impl Service {
    /// The types under which a catalog may have it, the best first.
    fn types(self) -> &'static [&'static str] {
        match self {
            Self::Network => &["network"],
            Self::Compute => &["compute"],
            Self::LoadBalancer => &["load-balancer"],
            Self::BlockStorage => &["block-storage", "volumev3", "block-store"],
        }
    }

    /// The version that we speak, and whether the project's id comes after it.
    fn version(self) -> (&'static str, bool) {
        match self {
            Self::Network => ("v2.0", false),
            Self::Compute => ("v2.1", false),
            Self::LoadBalancer => ("v2", false),
            Self::BlockStorage => ("v3", true),
        }
    }
}

/// The services of a cloud, as Keystone told with the token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Catalog(Vec<Entry>);

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Entry {
    #[serde(rename = "type", default, deserialize_with = "null_as_default")]
    kind: String,
    #[serde(default, deserialize_with = "null_as_default")]
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Endpoint {
    #[serde(default, deserialize_with = "null_as_default")]
    interface: String,
    #[serde(default)]
    region_id: Option<String>,
    /// The older name of the same.
    #[serde(default)]
    region: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    url: String,
}

impl Endpoint {
    fn region(&self) -> &str {
        self.region_id.as_deref().or(self.region.as_deref()).unwrap_or_default()
    }
}

impl Catalog {
    /// The types of all services, for a person who wonders why one is missing.
    #[must_use]
    pub fn types(&self) -> BTreeSet<&str> {
        self.0.iter().map(|entry| entry.kind.as_str()).collect()
    }

    /// Where the calls of a service begin.
    pub(crate) fn endpoint(
        &self,
        service: Service,
        interface: Interface,
        region: Option<&str>,
        project: &str,
    ) -> Result<Url, Error> {
        let named = service.types().iter().find_map(|kind| {
            let mut entries = self.0.iter().filter(|entry| entry.kind == *kind).peekable();
            entries.peek().is_some().then(|| (*kind, entries.flat_map(|entry| &entry.endpoints).collect::<Vec<_>>()))
        });
        let Some((kind, endpoints)) = named else {
            let wanted = service.types().join(" or ");
            return Err(none(&format!("the catalog has no service {wanted}; it has {}", list(self.types()))));
        };
        let here: Vec<_> =
            endpoints.iter().filter(|endpoint| region.is_none_or(|region| endpoint.region() == region)).collect();
        if here.is_empty() {
            let regions = list(endpoints.iter().map(|endpoint| endpoint.region()).collect());
            let region = region.unwrap_or_default();
            return Err(none(&format!("the catalog has no {kind} in region {region}; it has it in {regions}")));
        }
        let fitting: Vec<_> = here.iter().filter(|endpoint| endpoint.interface == interface.as_str()).collect();
        let regions: BTreeSet<_> = fitting.iter().map(|endpoint| endpoint.region()).collect();
        if regions.len() > 1 {
            return Err(none(&format!("the catalog has {kind} in several regions, {}; configure one", list(regions))));
        }
        let Some(endpoint) = fitting.first() else {
            let interfaces = list(here.iter().map(|endpoint| endpoint.interface.as_str()).collect());
            return Err(none(&format!("the catalog has no {interface} endpoint of {kind}; it has {interfaces}")));
        };
        base(service, &endpoint.url, project)
            .ok_or_else(|| none(&format!("the catalog's endpoint of {kind}, {:?}, is no http URL", endpoint.url)))
    }
}

/// The URL with the version that we speak. A catalog has it with or without, and with the project or without.
fn base(service: Service, url: &str, project: &str) -> Option<Url> {
    let mut url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())?;
    url.set_query(None);
    url.set_fragment(None);
    let (version, with_project) = service.version();
    let mut segments: Vec<_> = url.path().split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect();
    let is_version =
        |segment: &String| segment.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if !segments.iter().any(is_version) {
        segments.push(version.to_owned());
    } else if service == Service::LoadBalancer {
        // `/v2` and `/v2.0` are the same; only the first is in every release.
        segments.retain(|segment| !is_version(segment));
        segments.push(version.to_owned());
    }
    if with_project && segments.last().is_some_and(is_version) {
        segments.push(project.to_owned());
    }
    url.path_segments_mut().ok()?.clear().extend(segments);
    Some(url)
}

fn none(message: &str) -> Error {
    Error::new(Kind::NoService, message)
}

fn list(names: BTreeSet<&str>) -> String {
    if names.is_empty() { "none".to_owned() } else { names.into_iter().collect::<Vec<_>>().join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        serde_json::from_value(serde_json::json!([
            {"type": "network", "name": "neutron", "endpoints": [
                {"interface": "public", "region_id": "north", "region": "north", "url": "https://net.north"},
                {"interface": "internal", "region_id": "north", "url": "http://10.0.0.1:9696/"},
                {"interface": "public", "region_id": "south", "url": "https://net.south"}]},
            {"type": "volumev3", "endpoints": [{"interface": "public", "region": "north", "url": "https://vol/v3/p1"}]},
            {"type": "compute", "endpoints": [{"interface": "internal", "region_id": null, "url": null}]},
            {"type": "image"},
        ]))
        .unwrap()
    }

    #[test]
    fn an_endpoint_is_found_by_interface_and_region() {
        let find = |service, interface, region| {
            catalog().endpoint(service, interface, region, "p1").map(|url| url.to_string())
        };
        assert_eq!(find(Service::Network, Interface::Public, Some("south")).unwrap(), "https://net.south/v2.0");
        assert_eq!(find(Service::Network, Interface::Internal, None).unwrap(), "http://10.0.0.1:9696/v2.0");
        assert_eq!(find(Service::BlockStorage, Interface::Public, Some("north")).unwrap(), "https://vol/v3/p1");
    }

    #[test]
    fn what_is_not_in_the_catalog_is_told_with_what_is() {
        let why = |service, interface, region| {
            let error = catalog().endpoint(service, interface, region, "p1").unwrap_err();
            assert_eq!(error.kind(), Kind::NoService);
            error.to_string()
        };
        assert_eq!(
            why(Service::LoadBalancer, Interface::Public, None),
            "the catalog has no service load-balancer; it has compute, image, network, volumev3"
        );
        assert_eq!(
            why(Service::Network, Interface::Public, Some("west")),
            "the catalog has no network in region west; it has it in north, south"
        );
        assert_eq!(
            why(Service::Network, Interface::Public, None),
            "the catalog has network in several regions, north, south; configure one"
        );
        assert_eq!(
            why(Service::Network, Interface::Admin, Some("north")),
            "the catalog has no admin endpoint of network; it has internal, public"
        );
        assert!(why(Service::Compute, Interface::Internal, None).ends_with("is no http URL"));
    }

    #[test]
    fn the_version_is_added_where_the_catalog_leaves_it_out() {
        for (service, url, expected) in [
            (Service::Network, "http://h:9696", "http://h:9696/v2.0"),
            (Service::Network, "http://h/networking/v2.0/", "http://h/networking/v2.0"),
            (Service::Compute, "http://h/compute/v2.1", "http://h/compute/v2.1"),
            (Service::Compute, "http://h:8774/v2.1/p1", "http://h:8774/v2.1/p1"),
            (Service::Compute, "http://h:8774/", "http://h:8774/v2.1"),
            (Service::LoadBalancer, "http://h/load-balancer", "http://h/load-balancer/v2"),
            (Service::LoadBalancer, "http://h:9876/v2.0", "http://h:9876/v2"),
            (Service::BlockStorage, "http://h/volume/v3", "http://h/volume/v3/p1"),
            (Service::BlockStorage, "http://h/volume/v3/p1", "http://h/volume/v3/p1"),
            (Service::BlockStorage, "http://h:8776", "http://h:8776/v3/p1"),
        ] {
            assert_eq!(base(service, url, "p1").unwrap().as_str(), expected, "{url}");
        }
    }
}
