//! How much of kube-ovn's external Subnets is in use, counted when somebody asks.

use std::sync::Arc;

use prometheus::IntGaugeVec;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use super::KubeOvn;
use super::decide::Catalog;
use crate::addresses::Family;
use crate::metrics::pool_addresses;

pub(crate) struct Rooms {
    kube_ovn: Arc<KubeOvn>,
    gauges: IntGaugeVec,
}

impl Rooms {
    pub(crate) fn new(kube_ovn: Arc<KubeOvn>) -> prometheus::Result<Self> {
        Ok(Self { kube_ovn, gauges: pool_addresses("Subnet")? })
    }
}

impl Collector for Rooms {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauges.reset();
        show(&self.kube_ovn.lock(), &self.gauges);
        self.gauges.collect()
    }
}

pub(super) fn show(catalog: &Catalog, gauges: &IntGaugeVec) {
    let count = |n: u128| i64::try_from(n).unwrap_or(i64::MAX);
    for subnet in catalog.networks.externals() {
        let families = [(Family::V4, "ipv4"), (Family::V6, "ipv6")];
        for (family, label) in families.into_iter().filter(|(family, _)| subnet.net(*family).is_some()) {
            let of = |state| gauges.with_label_values(&[&*subnet.name, label, state]);
            of("used").set(count(catalog.eips.held(&subnet.name).into()));
            of("free").set(count(subnet.free(family, &catalog.eips)));
        }
    }
}
