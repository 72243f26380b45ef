//! Writes what the book says into `EIp`s.

use groundcrew_api::eip::EIp;
use groundcrew_core::leader::{Term, WriteError};
use groundcrew_core::provider::ProviderError;
use jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::Value;
use uuid::Uuid;

use super::book::Write;
use super::eip::{self, EipKey};
use super::{Addresses, kubernetes, unanswered};
use crate::error::Error;

/// Create or marks, status, and once more of each after a conflict.
const MOST_WRITES: usize = 4;

impl Addresses {
    /// Writes until the `EIp` says what it should.
    pub(super) async fn store(&self, key: &EipKey, term: &Term) -> Result<(), Error> {
        let api: Api<EIp> = Api::namespaced(self.client.clone(), &key.namespace);
        for _ in 0..MOST_WRITES {
            let (write, uid) = {
                let state = self.lock();
                (state.book.pending(key, Timestamp::now()), state.book.uid(key))
            };
            let Some(write) = write else { return Ok(()) };
            let conflict = match write {
                Write::Create(eip) => self.create(&api, key, &eip, term).await?,
                Write::Marks(patch) => self.patch(&api, key, &patch, term).await?,
                Write::Status(patch) => self.patch_status(&api, key, &patch, term).await?,
                Write::LetGo(patch) => {
                    self.unreserve_of(key, term).await?;
                    let conflict = self.patch(&api, key, &patch, term).await?;
                    if !conflict {
                        self.forget(key, uid);
                    }
                    conflict
                }
                // What somebody changed may be a new user, so it is decided again whether it goes.
                Write::Delete => {
                    if self.delete(&api, key, term).await? {
                        return Ok(());
                    }
                    continue;
                }
            };
            if conflict {
                self.refresh(&api, key).await?;
            }
        }
        Err(Error::Lost)
    }

    /// Whether it was there already.
    async fn create(&self, api: &Api<EIp>, key: &EipKey, eip: &EIp, term: &Term) -> Result<bool, Error> {
        let write = async { answer(&format!("make EIp {key}"), api.create(&PostParams::default(), eip).await) };
        self.learn(term.write(self.deadline, write).await)
    }

    /// Whether somebody else was quicker.
    async fn patch_status(&self, api: &Api<EIp>, key: &EipKey, patch: &Value, term: &Term) -> Result<bool, Error> {
        let write = async {
            let patched = api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await;
            answer(&format!("update the status of EIp {key}"), patched)
        };
        self.learn(term.write(self.deadline, write).await)
    }

    /// Whether somebody else was quicker.
    async fn patch(&self, api: &Api<EIp>, key: &EipKey, patch: &Value, term: &Term) -> Result<bool, Error> {
        let write = async {
            let patched = api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await;
            answer(&format!("update EIp {key}"), patched)
        };
        self.learn(term.write(self.deadline, write).await)
    }

    fn learn(&self, written: Result<Option<EIp>, WriteError<ProviderError>>) -> Result<bool, Error> {
        let written = written.map_err(ProviderError::from)?;
        if let Some(eip) = &written {
            self.observe(eip);
        }
        Ok(written.is_none())
    }

    /// Looks at what is there instead of what was expected.
    async fn refresh(&self, api: &Api<EIp>, key: &EipKey) -> Result<(), Error> {
        let tried = format!("read EIp {key}");
        let found = tokio::time::timeout(self.deadline, api.get_opt(&key.name)).await;
        let found = found.map_err(|_| unanswered(&tried))?.map_err(|error| kubernetes(&tried, &error))?;
        let Some(eip) = found else {
            let known = self.lock().book.uid(key);
            if let Some(uid) = known {
                // The watch tells it too late to wake anybody.
                self.vanish(key, uid);
            }
            return Ok(());
        };
        self.observe(&eip);
        if self.lock().book.is_in_the_way(&eip) {
            let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
            return Err(Error::ForeignEip { namespace, name });
        }
        Ok(())
    }

    /// Whether it is gone; if not, somebody changed it and the book knows how. First the deletion, which nobody can have
    /// overtaken; then what kube-ovn holds, which is free for anybody from that moment on; then the finalizer. Cut between
    /// any two, the object shows that it is on its way out.
    async fn delete(&self, api: &Api<EIp>, key: &EipKey, term: &Term) -> Result<bool, Error> {
        let tried = format!("delete EIp {key}");
        let (made, known) = {
            let state = self.lock();
            (state.book.made(key), state.book.version(key))
        };
        let uid = known.as_ref().map(|(uid, _)| *uid);
        let marked = self.mark_deleted(api, key, known, &tried, term).await?;
        if let Marked::Changed = marked {
            return Ok(false);
        }
        if let Marked::Leaving(eip) = &marked {
            self.observe(eip);
            if !matches!(self.lock().book.pending(key, Timestamp::now()), Some(Write::Delete | Write::LetGo(_))) {
                // Somebody joined while the answer was on its way. It goes with him.
                return Ok(false);
            }
        }
        if let Some(made) = made {
            self.unreserve_made(&made, key, term).await?;
        }
        if let Marked::Leaving(eip) = marked {
            let patch = eip::without_finalizer(&eip);
            let let_go = async {
                match api.patch(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                    Ok(_) => Ok(()),
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                    Err(error) => Err(ProviderError::from_kube(&format!("cannot {tried}"), &error)),
                }
            };
            term.write(self.deadline, let_go).await.map_err(ProviderError::from)?;
        }
        self.forget(key, uid);
        Ok(true)
    }

    /// Deletes exactly the object that is known, in the state in which it is known.
    async fn mark_deleted(
        &self,
        api: &Api<EIp>,
        key: &EipKey,
        known: Option<(Uuid, String)>,
        tried: &str,
        term: &Term,
    ) -> Result<Marked, Error> {
        let Some((uid, version)) = known else { return Ok(Marked::Gone) };
        let known = Preconditions { uid: Some(uid.to_string()), resource_version: Some(version) };
        let params = DeleteParams { preconditions: Some(known), ..DeleteParams::default() };
        let remove = async {
            match api.delete(&key.name, &params).await {
                Ok(deleting) => {
                    let left = deleting.left().filter(|eip| eip.metadata.finalizers.iter().flatten().next().is_some());
                    Ok(left.map_or(Marked::Gone, |eip| Marked::Leaving(Box::new(eip))))
                }
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Marked::Gone),
                Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Marked::Changed),
                Err(error) => Err(ProviderError::from_kube(&format!("cannot {tried}"), &error)),
            }
        };
        let marked = term.write(self.deadline, remove).await.map_err(ProviderError::from)?;
        let Marked::Changed = marked else { return Ok(marked) };
        // Somebody changed it, or put another object under its name, which is none of ours.
        let found = tokio::time::timeout(self.deadline, api.get_opt(&key.name)).await;
        let found = found.map_err(|_| unanswered(tried))?.map_err(|error| kubernetes(tried, &error))?;
        match found.filter(|eip| eip.metadata.uid == Some(uid.to_string())) {
            Some(eip) => self.observe(&eip),
            None => return Ok(Marked::Gone),
        }
        Ok(Marked::Changed)
    }
}

/// What became of a request to delete.
enum Marked {
    Gone,
    /// It stays until its finalizers go.
    Leaving(Box<EIp>),
    Changed,
}

/// `None` for a conflict: it exists already, or has changed.
fn answer(tried: &str, answer: Result<EIp, kube::Error>) -> Result<Option<EIp>, ProviderError> {
    match answer {
        Ok(eip) => Ok(Some(eip)),
        Err(kube::Error::Api(status))
            if status.is_already_exists() || status.is_conflict() || status.is_not_found() =>
        {
            Ok(None)
        }
        Err(error) => Err(ProviderError::from_kube(&format!("cannot {tried}"), &error)),
    }
}
