//! Which Services are ours.

use std::net::IpAddr;
use std::sync::Arc;

use super::object::Service;

/// The class that this controller serves.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    pub(crate) name: Arc<str>,
    /// Whether Services without a class are taken too.
    pub(crate) classless: bool,
}

/// What to do about a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Keep it served.
    Serve,
    /// It was served, and is not to be any more: deleted, of another type, or of another class.
    Leave,
    /// Never ours.
    Ignore,
}

impl Class {
    /// Whether the Service asks to be served by us.
    pub(crate) fn serves(&self, service: &Service) -> bool {
        service.load_balancer && self.is_class_of(service) && !service.deleting
    }

    fn is_class_of(&self, service: &Service) -> bool {
        match &service.class {
            Some(class) => *class == self.name,
            // Taken by another controller of ours: the switch was turned on here, not off there.
            None if service.claimed_by.as_ref().is_some_and(|by| *by != self.name) => false,
            None => self.classless || self.claimed(service),
        }
    }

    /// Whether we have put our finalizer on it.
    pub(crate) fn claimed(&self, service: &Service) -> bool {
        service.finalizer && service.claimed_by.as_ref() == Some(&self.name)
    }

    /// Whether it goes, and has our finalizer though somebody took away the word that it is ours. Its class says so still;
    /// without one it may be that of another controller of ours.
    fn is_unnamed(&self, service: &Service) -> bool {
        let is_nobodys = service.finalizer && service.claimed_by.is_none();
        service.deleting && is_nobodys && service.class.as_ref() == Some(&self.name)
    }

    /// The addresses that we have published on it. What another controller published is not ours to keep, unless we take
    /// its Services over.
    pub(crate) fn addresses(&self, service: &Service) -> Vec<IpAddr> {
        if self.claimed(service) || (service.inherited && self.serves(service)) {
            service.ingress.iter().map(|i| i.address).collect()
        } else {
            Vec::new()
        }
    }

    pub(crate) fn intent(&self, service: &Service) -> Intent {
        if self.serves(service) {
            Intent::Serve
        } else if self.claimed(service) || self.is_unnamed(service) || (service.inherited && self.is_class_of(service))
        {
            // The last: an older controller, gone by now, was to take away what it had made.
            Intent::Leave
        } else {
            Intent::Ignore
        }
    }

    /// Whether it must be kept in memory.
    pub(crate) fn concerns(&self, service: &Service) -> bool {
        self.intent(service) != Intent::Ignore
    }
}
