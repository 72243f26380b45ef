//! One token for everybody, renewed early, by one caller at a time.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::config::Config;
use crate::error::{Error, Kind};
use crate::http::Http;
use crate::keystone::{self, Session};

/// How long a renewal ahead of time may hold up the call that made it.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Tokens {
    current: RwLock<Option<Arc<Session>>>,
    /// Held by whoever asks Keystone; has the last failure and when it came.
    asking: Mutex<Option<(Instant, Error)>>,
}

impl Tokens {
    /// A session that should be accepted.
    pub(crate) async fn get(&self, http: &Http, config: &Config) -> Result<Arc<Session>, Error> {
        let now = Instant::now();
        match self.current() {
            Some(session) if now < session.renew_at => Ok(session),
            Some(session) if now < session.expires_at => {
                // Still good: one caller renews it, the others go on with it.
                let Ok(mut asking) = self.asking.try_lock() else { return Ok(session) };
                match self.ask(&session, &mut asking, http, config).await {
                    Ok(fresh) => Ok(fresh),
                    Err(error) => {
                        warn!(%error, "cannot renew the token yet");
                        Ok(session)
                    }
                }
            }
            old => self.replace(old.as_ref(), http, config).await,
        }
    }

    /// Another session than the one that was refused. However many callers were refused, Keystone is asked once, and all get
    /// its answer: with a wrong password, more attempts may lock the user.
    pub(crate) async fn replace(
        &self,
        refused: Option<&Arc<Session>>,
        http: &Http,
        config: &Config,
    ) -> Result<Arc<Session>, Error> {
        let since = Instant::now();
        let mut asking = self.asking.lock().await;
        match (self.current(), refused) {
            (Some(session), Some(refused)) if !Arc::ptr_eq(&session, refused) => return Ok(session),
            (Some(session), None) => return Ok(session),
            _ => {}
        }
        if let Some((at, error)) = &*asking
            && *at >= since
        {
            return Err(error.clone());
        }
        match self.fresh(http, config).await {
            Ok(session) => {
                *asking = None;
                Ok(session)
            }
            Err(error) => {
                *asking = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Renews a session ahead of its end, unless somebody did or failed a moment ago.
    async fn ask(
        &self,
        old: &Arc<Session>,
        failed: &mut Option<(Instant, Error)>,
        http: &Http,
        config: &Config,
    ) -> Result<Arc<Session>, Error> {
        if let Some(session) = self.current().filter(|session| !Arc::ptr_eq(session, old)) {
            return Ok(session);
        }
        let pause = (old.expires_at - old.renew_at) / 10;
        if failed.as_ref().is_some_and(|(at, _)| at.elapsed() < pause) {
            return Ok(Arc::clone(old));
        }
        // The caller at hand has a good token and should not wait for long.
        let asked = match tokio::time::timeout(PATIENCE, self.fresh(http, config)).await {
            Ok(asked) => asked,
            Err(_) => Err(Error::new(Kind::Unavailable, format!("no answer from keystone within {PATIENCE:?}"))),
        };
        *failed = asked.as_ref().err().map(|error| (Instant::now(), error.clone()));
        asked
    }

    async fn fresh(&self, http: &Http, config: &Config) -> Result<Arc<Session>, Error> {
        let session = Arc::new(keystone::authenticate(http, config).await?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&session));
        Ok(session)
    }

    fn current(&self) -> Option<Arc<Session>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
