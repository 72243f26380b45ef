//! Carries a plan out. The only module that changes the cloud.
//!
//! One step after the other, so that we never race with ourselves; after each, the router is read again: an answer that was
//! lost may have been a success, and a success may have been undone by another writer.

use std::collections::BTreeSet;

use groundcrew_core::leader::Term;
use groundcrew_core::provider::{AddressPair, ErrorKind, Port, Ports, ProviderError, Route, Routes};
use tracing::{info, warn};

use super::findings::Stale;
use super::plan::{Plan, Step};
use super::rules::Rules;

/// How often a whole list is made anew because another writer was quicker.
const ATTEMPTS: usize = 3;

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The cloud refused, or did not answer.
    #[error(transparent)]
    Cloud(#[from] ProviderError),
    /// Nothing but whole lists would do, and they are not allowed.
    #[error(
        "the cloud cannot remove single routes (no extension extraroute-atomic), and --allow-whole-list-writes is off"
    )]
    WholeListsOnly,
    /// Whoever has the port now was not looked at, or the cloud no longer shows its pairs.
    #[error("port {0} is no longer what it was when it was looked at")]
    PortChanged(String),
    /// It was written, and is there again or still.
    #[error("{0} of them are still there after the write")]
    StillThere(usize),
}

/// A step that was not done.
#[derive(Debug)]
pub struct Failure {
    /// What was to be done.
    pub step: String,
    /// Why it was not.
    pub error: ApplyError,
}

/// How a pass ended. What failed is planned again from a fresh look, never retried blindly.
#[derive(Debug, Default)]
pub struct Applied {
    /// Routes that are gone, with their router.
    pub removed: Vec<(String, Stale)>,
    /// Routes that are back.
    pub put_back: usize,
    /// Pairs that are gone.
    pub stripped: usize,
    /// What was not done.
    pub failures: Vec<Failure>,
    /// Routers that got a whole list, whatever came of it.
    pub overwritten: BTreeSet<String>,
}

/// One failure does not stop the rest.
pub(crate) async fn apply<C: Routes + Ports>(plan: &Plan, cloud: &C, term: &Term, rules: &Rules) -> Applied {
    let mut applied = Applied::default();
    for step in &plan.steps {
        let done = match step {
            Step::Remove { router, stale } => applied.remove(cloud, router, stale, term, rules).await,
            Step::PutBack { router, routes } => applied.put_back(cloud, router, routes, term).await,
            Step::Strip { port, pairs, .. } => applied.strip(cloud, port, pairs, term).await,
        };
        match done {
            Ok(()) => info!(%step, "done"),
            Err(error) => {
                warn!(%step, %error, "not done; looking again");
                applied.failures.push(Failure { step: step.to_string(), error });
            }
        }
    }
    applied
}

impl Applied {
    async fn remove<C: Routes>(
        &mut self,
        cloud: &C,
        id: &str,
        stale: &[Stale],
        term: &Term,
        rules: &Rules,
    ) -> Result<(), ApplyError> {
        let routes: Vec<_> = stale.iter().map(|stale| stale.route.clone()).collect();
        let written = if cloud.single_routes().await? {
            cloud.remove_routes(id, &routes, term).await
        } else if rules.whole_lists {
            self.overwrite(cloud, id, term, |there| there.retain(|route| !routes.contains(route))).await
        } else {
            return Err(ApplyError::WholeListsOnly);
        };
        let written = unless_unknown(written)?;
        let after = cloud.router(id).await?.routes;
        let (left, gone): (Vec<_>, Vec<_>) = stale.iter().cloned().partition(|stale| after.contains(&stale.route));
        self.removed.extend(gone.into_iter().map(|stale| (id.to_owned(), stale)));
        all_done(written, left.len())
    }

    async fn put_back<C: Routes>(
        &mut self,
        cloud: &C,
        id: &str,
        routes: &[Route],
        term: &Term,
    ) -> Result<(), ApplyError> {
        let add = |there: &mut Vec<Route>| {
            let missing: Vec<_> = routes.iter().filter(|route| !there.contains(route)).cloned().collect();
            there.extend(missing);
        };
        let written = if cloud.single_routes().await? {
            cloud.add_routes(id, routes, term).await
        } else {
            self.overwrite(cloud, id, term, add).await
        };
        let written = unless_unknown(written)?;
        let after = cloud.router(id).await?.routes;
        let back = routes.iter().filter(|route| after.contains(route)).count();
        self.put_back += back;
        all_done(written, routes.len() - back)
    }

    /// Reads, changes and writes the whole list. A writer who comes in between is noticed only if the cloud compares
    /// revisions, and not always then: the next pass looks for what Nodes miss, and puts it back.
    async fn overwrite<C: Routes>(
        &mut self,
        cloud: &C,
        id: &str,
        term: &Term,
        change: impl Fn(&mut Vec<Route>),
    ) -> Result<(), ProviderError> {
        let mut last = Ok(());
        for _ in 0..ATTEMPTS {
            let seen = cloud.router(id).await?;
            let mut routes = seen.routes.clone();
            change(&mut routes);
            if routes == seen.routes {
                return Ok(());
            }
            self.overwritten.insert(id.to_owned());
            last = cloud.replace_routes(&seen, &routes, term).await;
            match &last {
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                _ => break,
            }
        }
        last
    }

    async fn strip<C: Ports>(
        &mut self,
        cloud: &C,
        port: &Port,
        pairs: &[AddressPair],
        term: &Term,
    ) -> Result<(), ApplyError> {
        let port = &current(cloud, port).await?;
        let rest: Vec<_> = port.pairs.iter().flatten().filter(|pair| !pairs.contains(pair)).cloned().collect();
        let now = cloud.set_port_pairs(port, &rest, term).await?;
        let left = now.pairs.iter().flatten().filter(|pair| pairs.contains(pair)).count();
        self.stripped += pairs.len() - left;
        all_done(Ok(()), left)
    }
}

/// A port to write a whole list to. Where the cloud counts revisions it notices what another wrote since the look; where it
/// does not, that would be lost without a word, so the port is read again.
async fn current<C: Ports>(cloud: &C, seen: &Port) -> Result<Port, ApplyError> {
    if seen.revision.is_some() {
        return Ok(seen.clone());
    }
    let now = cloud.port(&seen.id).await?;
    if now.device == seen.device && now.pairs.is_some() { Ok(now) } else { Err(ApplyError::PortChanged(now.id)) }
}

/// An error after which a look is worth while is kept for it; any other ends the step.
fn unless_unknown(written: Result<(), ProviderError>) -> Result<Result<(), ProviderError>, ProviderError> {
    match written {
        Err(error) if !error.maybe_applied() => Err(error),
        written => Ok(written),
    }
}

fn all_done(written: Result<(), ProviderError>, left: usize) -> Result<(), ApplyError> {
    match (written, left) {
        (_, 0) => Ok(()),
        (Err(error), _) => Err(error.into()),
        (Ok(()), left) => Err(ApplyError::StillThere(left)),
    }
}
