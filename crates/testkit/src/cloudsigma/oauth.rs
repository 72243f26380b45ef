//! The three tokens of an impersonation.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::lists::Query;
use super::reply::Reply;
use super::{CLIENT_ID, CLIENT_SECRET, USER};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of the service account, by its client's id and secret.
    Account,
    /// The ticket for the service provider's API.
    Ticket,
    /// The user's.
    User,
}

#[derive(Debug)]
pub(super) struct Tokens {
    live: BTreeMap<String, (Kind, Instant)>,
    pub(super) life: Duration,
    pub(super) given: [usize; 3],
}

impl Default for Tokens {
    fn default() -> Self {
        Self { live: BTreeMap::new(), life: Duration::from_mins(15), given: [0; 3] }
    }
}

impl Tokens {
    pub(super) fn revoke(&mut self) {
        self.live.clear();
    }

    pub(super) fn kind(&self, token: &str) -> Option<Kind> {
        self.live.get(token).filter(|(_, until)| Instant::now() < *until).map(|(kind, _)| *kind)
    }

    fn give(&mut self, kind: Kind) -> Value {
        self.given[kind as usize] += 1;
        let token = format!("test-token-{kind:?}-{}", self.given[kind as usize]);
        self.live.insert(token.clone(), (kind, Instant::now() + self.life));
        json!({ "access_token": token, "token_type": "Bearer", "expires_in": self.life.as_secs() })
    }

    /// Keycloak's endpoint: a service account, or a ticket for who has its token.
    pub(super) fn keycloak(&mut self, form: &Query, bearer: Option<&str>) -> Reply {
        let field = |name: &str| form.get(name).map(String::as_str);
        match field("grant_type") {
            Some("client_credentials")
                if field("client_id") == Some(CLIENT_ID) && field("client_secret") == Some(CLIENT_SECRET) =>
            {
                Reply::ok(&self.give(Kind::Account))
            }
            Some("urn:ietf:params:oauth:grant-type:uma-ticket")
                if field("audience") == Some("service_provider_api")
                    && bearer.and_then(|token| self.kind(token)) == Some(Kind::Account) =>
            {
                Reply::ok(&self.give(Kind::Ticket))
            }
            _ => Reply::json(401, &json!({ "error": "unauthorized_client", "error_description": "Invalid client" })),
        }
    }

    /// The service provider's endpoint, on the direct host.
    pub(super) fn impersonate(&mut self, body: &Value, bearer: Option<&str>) -> Reply {
        let subject = body["subject_token"].as_str().and_then(|token| self.kind(token));
        if bearer.and_then(|token| self.kind(token)) != Some(Kind::Ticket) || subject != Some(Kind::Account) {
            return Reply::unauthorized();
        }
        if body["user_email"] != USER {
            return Reply::denied("No such user of this service provider");
        }
        Reply::ok(&self.give(Kind::User))
    }
}
