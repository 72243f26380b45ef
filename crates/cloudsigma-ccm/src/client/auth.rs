//! As whom the API is asked: a user with a password, or a user whom a service provider stands in for.
//!
//! The stand-in needs three tokens, each with an end of its own: the service account's, a ticket for the provider's API,
//! and the user's. Each is renewed early, by one caller at a time.

use std::time::Duration;

use reqwest::Url;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::warn;

use super::error::{Error, Kind};
use super::http::{Http, Posted};
use super::secret::Secret;

const TICKET: &str = "urn:ietf:params:oauth:grant-type:uma-ticket";
const AUDIENCE: &str = "service_provider_api";
/// How long before its end a token is renewed, unless it lives shorter than thrice that.
const EARLY: Duration = Duration::from_mins(5);
/// How long a token that cannot be renewed yet is used before that is tried again: who gives them out may hang, and everybody
/// would wait for that, one after the other.
const AGAIN: Duration = Duration::from_secs(30);
/// What a token lives that does not say.
const USUAL_LIFE: Duration = Duration::from_mins(15);

/// As whom.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// HTTP Basic.
    Password {
        /// The user's e-mail address.
        user: String,
        /// Its password.
        password: Secret,
    },
    /// A service provider on behalf of one of its users.
    Impersonation {
        /// Keycloak, as `https://auth.example.com/auth`.
        oauth: Url,
        /// The service account.
        client_id: String,
        /// Its secret.
        client_secret: Secret,
        /// The user.
        user_email: String,
    },
}

#[derive(Debug)]
pub(super) struct Auth {
    how: How,
    tokens: Mutex<Tokens>,
}

#[derive(Debug)]
enum How {
    Password { user: String, password: Secret },
    Impersonation(Box<StandIn>),
}

#[derive(Debug)]
struct StandIn {
    keycloak: Url,
    impersonate: Url,
    client_id: String,
    client_secret: Secret,
    user_email: String,
}

#[derive(Debug, Default)]
struct Tokens {
    account: Option<Token>,
    ticket: Option<Token>,
    user: Option<Token>,
    /// Instead of the first one, which was refused.
    password: Option<Secret>,
}

#[derive(Debug, Clone)]
struct Token {
    secret: Secret,
    renew: Instant,
    end: Instant,
}

impl Auth {
    /// The stand-in is asked for on the API's own host, which is the direct one then.
    pub(super) fn new(credentials: Credentials, api: &Url) -> Result<Self, Error> {
        let how = match credentials {
            Credentials::Password { user, password } => How::Password { user, password },
            Credentials::Impersonation { oauth, client_id, client_secret, user_email } => {
                let unusable = |error| Error::new(Kind::Invalid, format!("{oauth} cannot be used: {error}"));
                let base = format!("{}/", oauth.as_str().trim_end_matches('/'));
                let keycloak = Url::parse(&base).map_err(unusable)?;
                let keycloak = keycloak.join("realms/cloudsigma/protocol/openid-connect/token").map_err(unusable)?;
                let impersonate = api.join("/service_provider/api/v1/user/impersonate").map_err(unusable)?;
                How::Impersonation(Box::new(StandIn { keycloak, impersonate, client_id, client_secret, user_email }))
            }
        };
        Ok(Self { how, tokens: Mutex::default() })
    }

    /// Whether a refusal may be that of a token which ended early, or of a password that was changed since it was read.
    pub(super) fn renews(&self) -> bool {
        match &self.how {
            How::Password { password, .. } => password.changes(),
            How::Impersonation(_) => true,
        }
    }

    pub(super) async fn header(&self, http: &Http) -> Result<HeaderValue, Error> {
        match &self.how {
            How::Password { user, password } => {
                basic(user, self.tokens.lock().await.password.as_ref().unwrap_or(password))
            }
            How::Impersonation(_) => bearer(&self.user_token(&mut *self.tokens.lock().await, http).await?),
        }
    }

    /// Another header than the one that was refused, if there is one. However many callers were refused, each token is
    /// asked for once.
    pub(super) async fn replace(&self, refused: &HeaderValue, http: &Http) -> Result<Option<HeaderValue>, Error> {
        let mut tokens = self.tokens.lock().await;
        if let How::Password { user, password } = &self.how {
            let now = password.now();
            let header = basic(user, &now)?;
            tokens.password = Some(now);
            // The same once more would only be one more wrong attempt.
            return Ok((header != *refused).then_some(header));
        }
        if let Some(token) = &tokens.user
            && bearer(token)? == *refused
        {
            *tokens = Tokens::default();
        }
        bearer(&self.user_token(&mut tokens, http).await?).map(Some)
    }

    pub(super) async fn token(&self, http: &Http) -> Result<Option<Secret>, Error> {
        match &self.how {
            How::Password { .. } => Ok(None),
            How::Impersonation { .. } => Ok(Some(self.user_token(&mut *self.tokens.lock().await, http).await?.secret)),
        }
    }

    /// A token that is good for a while yet; the old one while a new one cannot be had.
    async fn user_token(&self, tokens: &mut Tokens, http: &Http) -> Result<Token, Error> {
        if let Some(token) = fresh(tokens.user.as_ref(), Instant::now()) {
            return Ok(token);
        }
        match self.renew(tokens, http).await {
            Ok(token) => {
                tokens.user = Some(token.clone());
                Ok(token)
            }
            Err(error) => {
                let now = Instant::now();
                let Some(token) = tokens.user.as_mut().filter(|token| now < token.end) else { return Err(error) };
                warn!(%error, "cannot renew the token yet");
                token.renew = token.end.min(now + AGAIN);
                Ok(token.clone())
            }
        }
    }

    async fn renew(&self, tokens: &mut Tokens, http: &Http) -> Result<Token, Error> {
        let How::Impersonation(stand_in) = &self.how else {
            return Err(Error::new(Kind::Invalid, "a password needs no token"));
        };
        let kept = tokens.account.is_some() || tokens.ticket.is_some();
        match stand_in.renew(tokens, http).await {
            // What was kept may have ended early, as when who gave it was started anew: nobody else would notice.
            Err(error) if kept && !matches!(error.kind(), Kind::Unavailable | Kind::Throttled) => {
                (tokens.account, tokens.ticket) = (None, None);
                stand_in.renew(tokens, http).await
            }
            renewed => renewed,
        }
    }
}

impl StandIn {
    async fn renew(&self, tokens: &mut Tokens, http: &Http) -> Result<Token, Error> {
        let Self { keycloak, impersonate, client_id, client_secret, user_email } = self;
        let now = Instant::now();
        let account = if let Some(token) = fresh(tokens.account.as_ref(), now) {
            token
        } else {
            let client_secret = client_secret.now();
            let form = [
                ("grant_type", "client_credentials"),
                ("client_id", client_id),
                ("client_secret", client_secret.expose()),
            ];
            let token = read(&http.post(keycloak, None, Posted::Form(&form)).await?)?;
            tokens.account.insert(token).clone()
        };
        let ticket = if let Some(token) = fresh(tokens.ticket.as_ref(), now) {
            token
        } else {
            let form = [("grant_type", TICKET), ("audience", AUDIENCE)];
            let token = read(&http.post(keycloak, Some(bearer(&account)?), Posted::Form(&form)).await?)?;
            tokens.ticket.insert(token).clone()
        };
        let body = json!({ "user_email": user_email, "subject_token": account.secret.expose() });
        read(&http.post(impersonate, Some(bearer(&ticket)?), Posted::Json(&body)).await?)
    }
}

fn fresh(token: Option<&Token>, now: Instant) -> Option<Token> {
    token.filter(|token| now < token.renew).cloned()
}

fn read(answer: &Value) -> Result<Token, Error> {
    let secret = answer["access_token"].as_str().filter(|token| !token.is_empty());
    let secret = secret.ok_or_else(|| Error::new(Kind::Garbled, "an answer without access_token"))?;
    let life = answer["expires_in"].as_u64().filter(|seconds| *seconds > 0).map_or(USUAL_LIFE, Duration::from_secs);
    let now = Instant::now();
    Ok(Token { secret: Secret::new(secret), renew: now + life - EARLY.min(life / 3), end: now + life })
}

fn bearer(token: &Token) -> Result<HeaderValue, Error> {
    hidden(&format!("Bearer {}", token.secret.expose()))
}

fn basic(user: &str, password: &Secret) -> Result<HeaderValue, Error> {
    hidden(&format!("Basic {}", base64(&format!("{user}:{}", password.expose()))))
}

/// A header whose value is not printed.
fn hidden(value: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| Error::new(Kind::Invalid, "the credentials have characters that cannot be sent"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for bytes in text.as_bytes().chunks(3) {
        let bits = bytes.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte)) << (8 * (3 - bytes.len()));
        for digit in 0..4 {
            let shown = digit <= bytes.len();
            out.push(if shown { char::from(DIGITS[bits >> (18 - 6 * digit) & 63]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use groundcrew_testkit::cloudsigma::{CLIENT_ID, CLIENT_SECRET, CloudSigma, USER};
    use tokio::net::TcpListener;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    /// A stand-in that has these tokens.
    fn stand_in(oauth: &str, api: &str, tokens: Tokens) -> (Auth, Http) {
        let credentials = Credentials::Impersonation {
            oauth: oauth.parse().unwrap(),
            client_id: CLIENT_ID.to_owned(),
            client_secret: Secret::new(CLIENT_SECRET),
            user_email: USER.to_owned(),
        };
        let auth = Auth { tokens: Mutex::new(tokens), ..Auth::new(credentials, &api.parse().unwrap()).unwrap() };
        (auth, Http::new(Duration::from_mins(1), Duration::ZERO).unwrap())
    }

    fn token(secret: &str, renew: Instant) -> Token {
        Token { secret: Secret::new(secret), renew, end: Instant::now() + HOUR }
    }

    #[tokio::test]
    async fn tokens_that_were_ended_early_are_asked_for_anew_although_they_were_good_for_longer() {
        let cloud = CloudSigma::start().await.unwrap();
        let later = Instant::now() + HOUR;
        let tokens =
            Tokens { account: Some(token("ended", later)), ticket: Some(token("ended", later)), ..Tokens::default() };
        let (auth, http) = stand_in(&cloud.oauth_url(), &cloud.direct_url(), tokens);
        assert_eq!(auth.header(&http).await.unwrap(), "Bearer test-token-User-1");
        assert_eq!(cloud.token_counts(), [1, 1, 1]);
    }

    #[tokio::test]
    async fn a_token_is_renewed_before_it_ends() {
        let cloud = CloudSigma::start().await.unwrap();
        let tokens = Tokens { user: Some(token("old", Instant::now())), ..Tokens::default() };
        let (auth, http) = stand_in(&cloud.oauth_url(), &cloud.direct_url(), tokens);
        assert_eq!(auth.header(&http).await.unwrap(), "Bearer test-token-User-1", "the old one has an hour left");
    }

    #[tokio::test]
    async fn a_token_that_cannot_be_renewed_yet_is_used_without_asking_at_every_request() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let asked = Arc::<AtomicUsize>::default();
        let counted = asked.clone();
        // Nobody is answered.
        let deaf = tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        let tokens = Tokens { user: Some(token("old", Instant::now())), ..Tokens::default() };
        let (auth, http) = stand_in(&url, &url, tokens);
        assert_eq!(auth.header(&http).await.unwrap(), "Bearer old");
        let first = asked.load(Ordering::SeqCst);
        assert!(first > 0);
        assert_eq!(auth.header(&http).await.unwrap(), "Bearer old");
        assert_eq!(asked.load(Ordering::SeqCst), first);
        deaf.abort();
    }

    #[test]
    fn basic_credentials_are_encoded_as_the_standard_says() {
        for (plain, encoded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("a:é", "YTrDqQ==")] {
            assert_eq!(base64(plain), encoded);
        }
    }

    #[test]
    fn a_short_lived_token_is_renewed_before_its_end_too() {
        let token = read(&json!({ "access_token": "t", "expires_in": 60 })).unwrap();
        assert!(token.renew < token.end && token.renew > Instant::now());
        assert!(read(&json!({ "expires_in": 60 })).is_err());
    }
}
