//! What the Service's user is told: status and conditions, as the one patch that changes them, or none.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::names::{DRIFT_FLAPPING, READY, REALISED, ROUTABLE_EXTERNALLY};
use super::object::{Condition, Service};
use crate::provider::{Caveat, Ingress, IpMode, ProviderError, Reachable, Realised, Routable};

/// A condition as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) kind: &'static str,
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// What should be published. `None` leaves the addresses as they are: a living address survives an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) ingress: Option<Vec<Ingress>>,
    pub(crate) told: Vec<Told>,
}

impl Status {
    /// `flapping`: it is served at the moment, but that somebody changes it again and again is not over.
    pub(crate) fn served(reachable: &Reachable, has_backends: bool, flapping: bool) -> Self {
        let message = reachable.caveats.iter().map(|c| c.message.as_str()).collect::<Vec<_>>().join("; ");
        let ready = match reachable.caveats.iter().find(|c| c.stops).or_else(|| reachable.caveats.first()) {
            _ if !has_backends => {
                let message = "no endpoint is ready; connections are refused".to_owned();
                Told { kind: READY, status: "False", reason: "NoEndpoints", message }
            }
            Some(caveat) => {
                let status = if caveat.stops { "False" } else { "True" };
                Told { kind: READY, status, reason: caveat.reason, message }
            }
            None => Told { kind: READY, status: "True", reason: "Served", message },
        };
        let realised = match &reachable.realised {
            Realised::Yes => Some(Told { kind: REALISED, status: "True", reason: "Confirmed", message: String::new() }),
            Realised::Unknown(why) => {
                Some(Told { kind: REALISED, status: "Unknown", reason: "NotConfirmed", message: why.clone() })
            }
            Realised::Awaited | Realised::AsTold => None,
        };
        let routable = match &reachable.routable {
            Routable::Unasked => Some(("Unknown", "NotAsked", "")),
            Routable::AsTold => None,
            Routable::Yes => Some(("True", "Reached", "")),
            Routable::No(why) => Some(("False", "NotRoutable", why.as_str())),
        };
        let routable = routable.map(|(status, reason, message)| Told {
            kind: ROUTABLE_EXTERNALLY,
            status,
            reason,
            message: message.to_owned(),
        });
        let calm = Told { kind: DRIFT_FLAPPING, status: "False", reason: "Stable", message: String::new() };
        let told = std::iter::once(ready).chain(realised).chain(routable).chain((!flapping).then_some(calm)).collect();
        Self { ingress: Some(reachable.ingress.clone()), told }
    }

    pub(crate) fn flapping(message: String) -> Self {
        let told = vec![Told { kind: DRIFT_FLAPPING, status: "True", reason: "HeldBack", message }];
        Self { ingress: None, told }
    }

    pub(crate) fn failed(error: &ProviderError) -> Self {
        let ready = Told { kind: READY, status: "False", reason: error.response().reason, message: error.to_string() };
        Self { ingress: None, told: vec![ready] }
    }

    /// The patch that makes `service` say this; `None` if it does already.
    ///
    /// A strategic merge patch: conditions merge by their type, so that those of other controllers stay.
    pub(crate) fn patch(&self, service: &Service, now: Timestamp) -> Option<Value> {
        let mut status = serde_json::Map::new();
        if let Some(ingress) = &self.ingress
            && **ingress != *service.ingress
        {
            status
                .insert("loadBalancer".into(), json!({ "ingress": ingress.iter().map(published).collect::<Vec<_>>() }));
        }
        let changed: Vec<_> = self.told.iter().filter_map(|told| told.change(&service.conditions, now)).collect();
        if !changed.is_empty() {
            status.insert("conditions".into(), changed.into());
        }
        (!status.is_empty()).then(|| {
            json!({
                "metadata": { "resourceVersion": service.resource_version },
                "status": status,
            })
        })
    }
}

/// The patch that takes everything of ours out of the status; `None` if nothing is there.
pub(crate) fn withdrawal(service: &Service) -> Option<Value> {
    let conditions: Vec<_> =
        service.conditions.iter().map(|c| json!({ "$patch": "delete", "type": &*c.kind })).collect();
    if conditions.is_empty() && service.ingress.is_empty() {
        return None;
    }
    Some(json!({
        "metadata": { "resourceVersion": service.resource_version },
        "status": { "loadBalancer": { "ingress": null }, "conditions": conditions },
    }))
}

fn published(ingress: &Ingress) -> Value {
    let mode = match ingress.mode {
        IpMode::Vip => "VIP",
        IpMode::Proxy => "Proxy",
    };
    json!({ "ip": ingress.address, "ipMode": mode })
}

impl Told {
    fn change(&self, present: &[Condition], now: Timestamp) -> Option<Value> {
        let before = present.iter().find(|c| &*c.kind == self.kind);
        let usual = matches!(
            (self.kind, self.status),
            (REALISED, "True") | (DRIFT_FLAPPING, "False") | (ROUTABLE_EXTERNALLY, "Unknown")
        );
        if usual && before.is_none() {
            // As it nearly always is: not worth a condition on every Service.
            return None;
        }
        let same_status = before.is_some_and(|c| &*c.status == self.status);
        if same_status && before.is_some_and(|c| &*c.reason == self.reason && *c.message == self.message) {
            return None;
        }
        let mut change = json!({
            "type": self.kind, "status": self.status, "reason": self.reason, "message": self.message,
        });
        // Left out, it keeps its value: the time is that of the last change of `status`, not of the message.
        if !same_status && let Some(change) = change.as_object_mut() {
            change.insert("lastTransitionTime".into(), format!("{now:.0}").into());
        }
        Some(change)
    }
}

/// Whether the Service's condition already names this reason with these words.
pub(crate) fn says_caveat(service: &Service, caveat: &Caveat) -> bool {
    let mut ready = service.conditions.iter().filter(|c| &*c.kind == READY);
    ready.any(|c| c.message.contains(&caveat.message))
}

/// Whether our own condition already says that the Service is served.
pub(crate) fn says_served(service: &Service) -> bool {
    service.conditions.iter().any(|c: &Condition| &*c.kind == READY && &*c.status == "True")
}

/// Whether our own condition says that somebody changes it again and again.
pub(crate) fn says_flapping(service: &Service) -> bool {
    service.conditions.iter().any(|c: &Condition| &*c.kind == DRIFT_FLAPPING && &*c.status == "True")
}
