//! Health checks: what a Service asks for by annotation, as rows and port mappings. Pure.
//!
//! OVN probes a backend through the switch port that it is plugged into, from an address that nobody in its network uses.
//! A check that cannot be made is told; the Service is served without it, as it would be without the annotation.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use groundcrew_api::names::annotation::HEALTH_CHECK;
use groundcrew_core::provider::{Caveat, Protocol, Wanted};
use ipnet::IpNet;
use ovsdb_client::StrMap;

use crate::desired::{Check, Desired, Row};
use crate::marks;
use crate::northbound::Northbound;
use crate::ports::SwitchPorts;

/// From this release on probes may come from the router's own address.
const ROUTER_MAY_PROBE: (u32, u32) = (26, 3);

/// The settings by the words that users write, and OVN's.
const SETTINGS: [(&str, &str); 4] =
    [("interval", "interval"), ("timeout", "timeout"), ("success", "success_count"), ("failure", "failure_count")];

/// The options of the checks that the Service asks for; none if it asks for none, a caveat if nobody can read it.
pub(crate) fn asked(want: &Wanted) -> Result<Option<StrMap>, Caveat> {
    let value = want.ask.annotations.get(HEALTH_CHECK).map_or("", |value| value.trim());
    match value {
        "" | "false" => return Ok(None),
        "true" => return Ok(Some(StrMap::default())),
        _ => {}
    }
    let setting = |part: &str| -> Option<(&'static str, String)> {
        let (word, number) = part.split_once('=')?;
        let (_, key) = SETTINGS.into_iter().find(|(known, _)| *known == word.trim())?;
        let number: u16 = number.trim().parse().ok().filter(|number| *number > 0)?;
        Some((key, number.to_string()))
    };
    let options: Option<StrMap> = value.split(',').map(setting).collect();
    options.map(Some).ok_or_else(|| Caveat {
        reason: "HealthCheckInvalid",
        message: format!(
            "backends are not probed: {HEALTH_CHECK} is {value:?}; give \"true\" or settings as in interval=5,timeout=20,success=3,failure=3"
        ),
        stops: false,
    })
}

/// Where probes can come from.
pub(crate) struct Probing<'a> {
    pub(crate) nb: &'a Northbound,
    pub(crate) ports: &'a SwitchPorts,
    /// Where the backends are.
    pub(crate) router: &'a str,
    pub(crate) switch: &'a str,
    /// Addresses that the operator keeps free for it.
    pub(crate) sources: &'a [IpAddr],
}

/// Adds checks with these options to the rows, as far as they can be made, and says what could not.
pub(crate) fn add(desired: &mut Desired, options: &StrMap, probing: &Probing<'_>) -> Vec<Caveat> {
    let switch = probing.switch;
    let inside = probing.nb.inside(probing.router);
    let (mut portless, mut sourceless) = (BTreeSet::new(), BTreeSet::new());
    // SCTP cannot be probed by OVN.
    for row in desired.rows.iter_mut().filter(|row| row.protocol != Protocol::Sctp) {
        let mut mappings = Vec::new();
        for backend in backends(row) {
            let network = inside.iter().find(|network| network.contains(&backend));
            match (probing.ports.name(switch, backend), probing.source(backend, network, switch)) {
                (None, _) => drop(portless.insert(backend)),
                (_, None) => drop(sourceless.insert(network.map_or(IpNet::from(backend), IpNet::trunc))),
                (Some(port), Some(source)) => {
                    mappings.push((bracketed(backend), format!("{port}:{}", bracketed(source))));
                }
            }
        }
        row.mappings = mappings.into_iter().collect();
        row.checks = checks(row, options);
    }
    let told = |reason, message| Caveat { reason, message, stops: false };
    let list = |items: Vec<String>| items.join(", ");
    let missing_port = (!portless.is_empty()).then(|| {
        let addresses = list(portless.iter().take(3).map(ToString::to_string).collect());
        told(
            "HealthCheckPortMissing",
            format!("not probed, as no port of switch {switch} has the address: {addresses}"),
        )
    });
    let missing_source = (!sourceless.is_empty()).then(|| {
        let networks = list(sourceless.iter().map(ToString::to_string).collect());
        let message = format!(
            "backends are not probed: no free address to probe from in {networks}; the operator gives one by --health-check-source"
        );
        told("HealthCheckSourceMissing", message)
    });
    missing_source.into_iter().chain(missing_port).collect()
}

impl Probing<'_> {
    /// An address of the backend's network that no port of its switch has.
    fn source(&self, backend: IpAddr, network: Option<&IpNet>, switch: &str) -> Option<IpAddr> {
        let fits = |source: &&IpAddr| match network {
            Some(network) => network.contains(*source),
            None => source.is_ipv4() == backend.is_ipv4(),
        };
        let configured = self.sources.iter().filter(fits).find(|source| self.ports.name(switch, **source).is_none());
        let routers = network.filter(|_| self.nb.northd_release().is_some_and(|release| release >= ROUTER_MAY_PROBE));
        configured.copied().or_else(|| routers.map(IpNet::addr))
    }
}

/// The addresses of all backends of a row.
pub(crate) fn backends(row: &Row) -> BTreeSet<IpAddr> {
    let sockets = row.vips.iter().flat_map(|(_, backends)| backends.split(','));
    sockets.filter_map(|socket| socket.parse::<SocketAddr>().ok()).map(|socket| socket.ip()).collect()
}

/// One check for each virtual address that has a backend which can be probed.
fn checks(row: &Row, options: &StrMap) -> Vec<Check> {
    let is_probed = |backends: &str| {
        let sockets = backends.split(',').filter_map(|socket| socket.parse::<SocketAddr>().ok());
        sockets.into_iter().any(|socket| row.mappings.get(&bracketed(socket.ip())).is_some())
    };
    let vips = row.vips.iter().filter(|(_, backends)| is_probed(backends));
    vips.map(|(vip, _)| Check { uuid: marks::check_uuid(row.uuid, vip), vip: vip.to_owned(), options: options.clone() })
        .collect()
}

fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use ovsdb_client::{Touched, Uuid};
    use serde_json::json;

    use super::*;
    use crate::desired::desired;
    use crate::testing::{frontend, owner, site, wanted};

    /// Switch `shop-default` with ports for 10.1.0.41, `fd00::41` and 10.1.0.9; router `shop` with 10.1.0.1/16.
    fn view(northd: &str) -> (Northbound, SwitchPorts) {
        let id = |n| Uuid::from_u128(n).to_string();
        let set = |n: u128| json!(["set", [["uuid", id(n)], ["uuid", id(n + 1)]]]);
        let ports = json!({
            "Logical_Switch": { id(1): { "initial": { "name": "shop-default", "ports": set(2) } } },
            "Logical_Switch_Port": {
                id(2): { "initial": { "name": "web", "addresses": "0a:00:00:00:00:01 10.1.0.41 fd00::41" } },
                id(3): { "initial": { "name": "busy", "addresses": "0a:00:00:00:00:02 10.1.0.9" } },
            },
        });
        let nb = json!({
            "Logical_Router": { id(1): { "initial": { "name": "shop", "ports": set(5) } } },
            "Logical_Router_Port": { id(5): { "initial": { "name": "p", "networks": "10.1.0.1/16" } } },
            "NB_Global": { id(9): { "initial": { "options": ["map", [["northd_internal_version", northd]]] } } },
        });
        let mut view = (Northbound::default(), SwitchPorts::default());
        ovsdb_client::apply(&nb.to_string(), &mut view.0, &mut Touched::default()).unwrap();
        ovsdb_client::apply(&ports.to_string(), &mut view.1, &mut Touched::default()).unwrap();
        view
    }

    fn probed(northd: &str, sources: &[&str], backends: &[&str]) -> (Row, Vec<&'static str>) {
        let mut want = wanted(&owner("shop", "web"), &["192.0.2.7", "2001:db8::7"]);
        want.frontends = vec![frontend(Protocol::Tcp, 80, backends), frontend(Protocol::Tcp, 443, &[])];
        let mut desired = desired(&want, &site());
        let (nb, ports) = view(northd);
        let sources: Vec<_> = sources.iter().map(|source| source.parse().unwrap()).collect();
        let options = [("interval", "1")].into_iter().collect();
        let (router, switch) = (&*desired.router.clone(), &*desired.switch.clone());
        let probing = Probing { nb: &nb, ports: &ports, router, switch, sources: &sources };
        let caveats = add(&mut desired, &options, &probing);
        (desired.rows.remove(0), caveats.into_iter().map(|caveat| caveat.reason).collect())
    }

    #[test]
    fn each_address_with_backends_is_probed_from_a_free_address_of_their_network() {
        let sources = ["10.2.0.250", "10.1.0.9", "10.1.0.250", "fd00::250"];
        let (row, caveats) = probed("23.03.1-x", &sources, &["10.1.0.41:8080", "[fd00::41]:8080"]);
        assert_eq!(caveats, [""; 0]);
        let mappings: Vec<_> = row.mappings.iter().collect();
        assert_eq!(mappings, [("10.1.0.41", "web:10.1.0.250"), ("[fd00::41]", "web:[fd00::250]")]);
        let vips: Vec<_> = row.checks.iter().map(|check| &*check.vip).collect();
        assert_eq!(vips, ["192.0.2.7:80", "[2001:db8::7]:80"]);
        let (plain, _) = probed("23.03.1-x", &[], &["10.1.0.41:8080", "[fd00::41]:8080"]);
        assert_eq!(row.marks, plain.marks, "what tells our content from another's is not about probes");
    }

    #[test]
    fn without_an_address_to_probe_from_it_says_what_to_configure() {
        let (row, caveats) = probed("23.03.1-x", &["10.1.0.9"], &["10.1.0.41:8080"]);
        assert_eq!((row.checks, row.mappings.len()), (vec![], 0));
        assert_eq!(caveats, ["HealthCheckSourceMissing"]);
        let (row, caveats) = probed("26.03.0-x", &[], &["10.1.0.41:8080"]);
        assert_eq!(row.mappings.get("10.1.0.41"), Some("web:10.1.0.1"), "the router may, from this release on");
        assert_eq!(caveats, [""; 0]);
    }

    #[test]
    fn a_backend_without_a_port_is_told_and_the_others_are_probed() {
        let (row, caveats) = probed("23.03.1-x", &["10.1.0.250"], &["10.1.0.41:8080", "10.1.0.77:8080"]);
        assert_eq!((row.checks.len(), row.mappings.len()), (1, 1));
        assert_eq!(caveats, ["HealthCheckPortMissing"]);
    }

    #[test]
    fn the_annotation_is_a_switch_or_settings() {
        let asked = |value: &str| {
            let mut want = wanted(&owner("shop", "web"), &[]);
            want.ask.annotations = Arc::new(BTreeMap::from([(HEALTH_CHECK.into(), value.into())]));
            asked(&want).map(|options| options.map(|o| o.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>()))
        };
        assert_eq!((asked("false"), asked("true")), (Ok(None), Ok(Some(vec![]))));
        let all = ["failure_count=4", "interval=1", "success_count=3", "timeout=2"].map(str::to_owned).to_vec();
        assert_eq!(asked("interval=1, timeout=2,success=3,failure=4"), Ok(Some(all)));
        for wrong in ["yes", "interval", "interval=0", "interval=x", "pace=1", "interval=1,"] {
            assert_eq!(asked(wrong).unwrap_err().reason, "HealthCheckInvalid", "{wrong}");
        }
    }
}
