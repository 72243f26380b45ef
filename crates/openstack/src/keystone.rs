//! Asking Keystone for a token.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::catalog::Catalog;
use crate::config::{Auth, Config, Credential, Domain, Project, User};
use crate::error::{Error, Kind};
use crate::fault;
use crate::http::{Call, Http};
use crate::null_as_default;
use crate::secret::Secret;

/// Who we are to the cloud, for as long as one token lasts.
#[derive(Debug)]
pub struct Session {
    pub(crate) token: Secret,
    /// From when on a new one is wanted, though this one still works.
    pub(crate) renew_at: Instant,
    pub(crate) expires_at: Instant,
    project_id: String,
    project_name: String,
    user_id: String,
    roles: BTreeSet<String>,
    catalog: Catalog,
}

impl Session {
    /// The project's id.
    #[must_use]
    pub fn project_id(&self) -> &str {
        &self.project_id
    }

    /// The project's name.
    #[must_use]
    pub fn project_name(&self) -> &str {
        &self.project_name
    }

    /// The user's id.
    #[must_use]
    pub fn user_id(&self) -> &str {
        &self.user_id
    }

    /// The names of the roles that we have in the project.
    #[must_use]
    pub fn roles(&self) -> &BTreeSet<String> {
        &self.roles
    }

    /// The cloud's services.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }
}

#[derive(Deserialize)]
struct Document {
    token: Token,
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    issued_at: Option<Timestamp>,
    expires_at: Timestamp,
    project: Named,
    #[serde(default)]
    user: Named,
    #[serde(default, deserialize_with = "null_as_default")]
    roles: Vec<Named>,
    #[serde(default, deserialize_with = "null_as_default")]
    catalog: Catalog,
}

#[derive(Deserialize, Default)]
struct Named {
    #[serde(default, deserialize_with = "null_as_default")]
    id: String,
    #[serde(default, deserialize_with = "null_as_default")]
    name: String,
}

pub(crate) async fn authenticate(http: &Http, config: &Config) -> Result<Session, Error> {
    let mut url = config.auth_url.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.extend(["auth", "tokens"]);
    }
    let secret = match &config.auth {
        Auth::Password { password, .. } => password,
        Auth::ApplicationCredential { secret, .. } => secret,
    };
    let begin = Instant::now();
    let call = Call {
        method: Method::POST,
        url,
        headers: HeaderMap::new(),
        body: Some(&request(&config.auth)),
        // One token more does no harm.
        repeatable: true,
        secrets: &[secret],
    };
    let answer = http.send(&call).await.map_err(|error| explain(error, &config.auth))?;
    let garbled = |message: String| Error::new(Kind::Garbled, message).on(&call.method, &call.url);
    let token = answer.headers.get("x-subject-token").and_then(|token| token.to_str().ok());
    let token = token.filter(|token| !token.is_empty());
    let document: Document =
        serde_json::from_slice(&answer.body).map_err(|error| garbled(fault::not_a_document(&answer.body, &error)))?;
    let token = token.ok_or_else(|| garbled("no token in the answer; is this Keystone's URL?".to_owned()))?;
    let Token { issued_at, expires_at, project, user, roles, catalog } = document.token;
    if project.id.is_empty() {
        return Err(garbled("the token has no project".to_owned()));
    }
    // Both times are by Keystone's clock, and ours may differ.
    let life = expires_at.duration_since(issued_at.unwrap_or_else(Timestamp::now));
    let life = Duration::try_from(life).unwrap_or_default();
    Ok(Session {
        token: Secret::new(token),
        renew_at: begin + life - early(life),
        expires_at: begin + life,
        project_id: project.id,
        project_name: project.name,
        user_id: user.id,
        roles: roles.into_iter().map(|role| role.name).collect(),
        catalog,
    })
}

/// How long before its end a token is renewed: enough for a call that begins now, and for Keystone to be away for a while.
fn early(life: Duration) -> Duration {
    (life / 4).min(Duration::from_mins(5))
}

fn request(auth: &Auth) -> Value {
    match auth {
        Auth::Password { user: who, password, project } => {
            let mut user = user(who);
            user["password"] = json!(password.expose());
            let scope = match project {
                Project::Id(id) => json!({"id": id}),
                Project::Name(name, of) => json!({"name": name, "domain": domain(of)}),
            };
            json!({"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": {"project": scope}}})
        }
        // A scope is not allowed here: the credential has its own.
        Auth::ApplicationCredential { credential, secret } => {
            let mut which = match credential {
                Credential::Id(id) => json!({"id": id}),
                Credential::Name(name, of) => json!({"name": name, "user": user(of)}),
            };
            which["secret"] = json!(secret.expose());
            json!({"auth": {"identity": {"methods": ["application_credential"], "application_credential": which}}})
        }
    }
}

fn user(user: &User) -> Value {
    match user {
        User::Id(id) => json!({"id": id}),
        User::Name(name, of) => json!({"name": name, "domain": domain(of)}),
    }
}

fn domain(domain: &Domain) -> Value {
    match domain {
        Domain::Id(id) => json!({"id": id}),
        Domain::Name(name) => json!({"name": name}),
    }
}

/// Keystone does not say why, so that nobody can guess names. Its users need a hint nevertheless.
fn explain(error: Error, auth: &Auth) -> Error {
    // A deleted application credential is 404. Left at that, whatever is asked for would seem to be gone.
    let error = if error.kind() == Kind::NotFound { error.with_kind(Kind::Unauthorized) } else { error };
    match (error.kind(), auth) {
        (Kind::Unauthorized, Auth::Password { user: User::Id(user) | User::Name(user, _), .. }) => {
            error.map_message(|said| {
                format!(
                    "keystone refuses user {user}: {said} Wrong password, domain or project, or the user is disabled"
                )
            })
        }
        (
            Kind::Unauthorized,
            Auth::ApplicationCredential { credential: Credential::Id(id) | Credential::Name(id, _), .. },
        ) => error.map_message(|said| {
            format!("keystone refuses application credential {id}: {said} Expired, deleted, or the secret is wrong")
        }),
        (Kind::Garbled, _) => error.map_message(|said| format!("{said}; is auth_url Keystone's?")),
        _ => error,
    }
}
