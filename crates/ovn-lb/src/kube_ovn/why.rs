//! Why kube-ovn may be silent about an `OvnEip`. It tells nobody: the object stays without a status, a condition or an
//! Event, and the reason is in its log alone. Pure.

use super::decide::{Catalog, holder};
use super::eips::Eip;
use crate::addresses::Family;

/// The likely reason, for a tenant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Why {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// What can be seen from here, the surest first.
pub(crate) fn why(name: &str, eip: &Eip, family: Family, catalog: &Catalog) -> Why {
    let Catalog { eips, networks, .. } = catalog;
    let namespace = eip.namespace.as_deref().unwrap_or_default();
    let told = |reason, message| Why { reason, message };
    let Some(subnet) = networks.subnet(&eip.subnet) else {
        return told("SubnetMissing", format!("there is no Subnet {}", eip.subnet));
    };
    if let Some(asked) = eip.asked(family) {
        if !subnet.contains(asked) {
            return told("AddressOutsideSubnets", format!("{asked} is outside Subnet {}", subnet.name));
        }
        let mut others = eips.holders(asked).filter(|(other, _)| ***other != *name);
        if let Some((other, eip)) = others.next() {
            return told("AddressTaken", format!("{asked} is held by {}", holder(other, eip, namespace)));
        }
        return silent(name, &format!("{asked} may be in use by a pod or a gateway"));
    } else if subnet.free(family, eips) == 0 {
        return told("PoolEmpty", format!("no {} address seems to be left in Subnet {}", family.word(), subnet.name));
    }
    if !eip.is_silent() {
        return told(
            "KubeOvnSilent",
            format!("kube-ovn has assigned an address to OvnEip {name}, but is not done with it"),
        );
    }
    // It cannot write an IPv6 address into the label that says it.
    let with_v6 =
        subnet.net(Family::V6).map_or("", |_| ", no release up to 1.16.2 gives addresses of a Subnet with IPv6");
    silent(name, &format!("Subnet {} may be full{with_v6}", subnet.name))
}

fn silent(name: &str, guess: &str) -> Why {
    let message = format!(
        "kube-ovn says nothing about OvnEip {name}: {guess}, or kube-ovn-controller does not run; its log has the reason"
    );
    Why { reason: "KubeOvnSilent", message }
}
