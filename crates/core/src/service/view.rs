//! The Services of the cache as the status page shows them.

use super::cache::Cache;
use super::class::Class;
use super::names::{DRIFT_FLAPPING, READY};
use super::object::{Condition, Service};
use crate::page;

pub(super) fn services(cache: &Cache, class: &Class) -> page::Services {
    let mut all: Vec<_> = cache.all().into_iter().filter(|service| class.concerns(service)).collect();
    all.sort_unstable_by(|a, b| (is_served(a), a.key()).cmp(&(is_served(b), b.key())));
    let served = all.iter().filter(|service| is_served(service)).count();
    let shown = all.iter().take(page::MOST_SERVICES).map(|service| shown(service)).collect();
    page::Services { total: all.len(), served, shown }
}

fn condition<'a>(service: &'a Service, kind: &str) -> Option<&'a Condition> {
    service.conditions.iter().find(|condition| &*condition.kind == kind)
}

/// What is wrong with it, in the words of its conditions.
fn trouble(service: &Service) -> Option<&Condition> {
    let unready = condition(service, READY).filter(|ready| &*ready.status != "True");
    unready.or_else(|| condition(service, DRIFT_FLAPPING).filter(|flapping| &*flapping.status == "True"))
}

fn is_served(service: &Service) -> bool {
    !service.ingress.is_empty() && trouble(service).is_none()
}

fn shown(service: &Service) -> page::Service {
    let told = trouble(service).or_else(|| condition(service, READY));
    page::Service {
        name: service.key().to_string(),
        addresses: service.ingress.iter().map(|ingress| ingress.address.to_string()).collect(),
        served: is_served(service),
        reason: match told {
            _ if service.deleting => "Deleting".to_owned(),
            _ if service.paused => "Paused".to_owned(),
            Some(told) => told.reason.to_string(),
            None if service.ingress.is_empty() => "Pending".to_owned(),
            None => "Served".to_owned(),
        },
        message: told.map(|told| told.message.to_string()).unwrap_or_default(),
    }
}
