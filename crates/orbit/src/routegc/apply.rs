//! Carries a plan out. The only module that changes the cloud.
//!
//! One step after the other, so that we never race with ourselves; after each, the router is read again: an answer that was
//! lost may have been a success, and a success may have been undone by another writer.

use std::collections::BTreeSet;
use std::time::Duration;

use groundcrew_core::leader::Term;
use groundcrew_core::provider::{AddressPair, ErrorKind, Port, Ports, ProviderError, Route, Routes};
use tracing::{info, warn};

use super::findings::Stale;
use super::plan::{Plan, Step};
use super::rules::Rules;

/// How often a whole list is made anew because another writer was quicker.
const ATTEMPTS: u32 = 8;
/// How long to step aside for him, times the attempt: who comes at once meets the same writers again.
const STEP_ASIDE: Duration = Duration::from_millis(100);

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
    /// Pairs that are back.
    pub allowed: usize,
    /// Routers and ports that got a whole list, or may have got it, or that still miss what an earlier one cost them.
    pub overwritten: BTreeSet<String>,
}

/// One failure does not stop the rest.
pub(crate) async fn apply<C: Routes + Ports>(plan: &Plan, cloud: &C, term: &Term, rules: &Rules) -> Applied {
    let mut applied = Applied::default();
    for step in &plan.steps {
        let done = match step {
            Step::Remove { router, stale } => applied.remove(cloud, router, stale, term, rules).await,
            Step::PutBack { router, routes } => applied.put_back(cloud, router, routes, term).await,
            Step::Allow { port, pairs, .. } => applied.allow(cloud, port, pairs, term).await,
            Step::Strip { port, pairs, .. } => applied.strip(cloud, port, pairs, term).await,
        };
        match done {
            Ok(()) => info!(%step, "done"),
            Err(error) => {
                warn!(%step, %error, "not done; looking again");
                if let Step::PutBack { router: id, .. } | Step::Allow { port: Port { id, .. }, .. } = step {
                    applied.overwritten.insert(id.clone());
                }
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
        for attempt in 0..ATTEMPTS {
            tokio::time::sleep((STEP_ASIDE * attempt).mul_f64(rand::random_range(0.2..1.0))).await;
            let seen = cloud.router(id).await?;
            let mut routes = seen.routes.clone();
            change(&mut routes);
            if routes == seen.routes {
                return Ok(());
            }
            last = cloud.replace_routes(&seen, &routes, term).await;
            // A list that was refused has cost nobody anything.
            if last.as_ref().err().is_none_or(ProviderError::maybe_applied) {
                self.overwritten.insert(id.to_owned());
            }
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
        seen: &Port,
        pairs: &[AddressPair],
        term: &Term,
    ) -> Result<(), ApplyError> {
        let is_stale = |pair: &AddressPair| pairs.contains(pair);
        let (written, after) = self.rewrite(cloud, seen, term, |there| there.retain(|pair| !is_stale(pair))).await?;
        let left = after.iter().filter(|pair| is_stale(pair)).count();
        self.stripped += pairs.len() - left;
        all_done(written, left)
    }

    async fn allow<C: Ports>(
        &mut self,
        cloud: &C,
        seen: &Port,
        pairs: &[AddressPair],
        term: &Term,
    ) -> Result<(), ApplyError> {
        // The cloud adds the address of the port's hardware, which does not make it another pair.
        let has = |there: &[AddressPair], pair: &AddressPair| there.iter().any(|known| known.range == pair.range);
        let add = |there: &mut Vec<AddressPair>| {
            let missing: Vec<_> = pairs.iter().filter(|pair| !has(there, pair)).cloned().collect();
            there.extend(missing);
        };
        let (written, after) = self.rewrite(cloud, seen, term, add).await?;
        let back = pairs.iter().filter(|pair| has(&after, pair)).count();
        self.allowed += back;
        all_done(written, pairs.len() - back)
    }

    /// Reads, changes and writes the whole list of a port, and reads it again. What another wrote between our read and our write
    /// may be lost, also where the cloud compares revisions: the next pass looks for what the Node misses.
    async fn rewrite<C: Ports>(
        &mut self,
        cloud: &C,
        seen: &Port,
        term: &Term,
        change: impl Fn(&mut Vec<AddressPair>),
    ) -> Result<(Result<(), ProviderError>, Vec<AddressPair>), ApplyError> {
        let now = cloud.port(&seen.id).await?;
        let before = match &now.pairs {
            Some(pairs) if now.device == seen.device => pairs,
            _ => return Err(ApplyError::PortChanged(now.id)),
        };
        let mut pairs = before.clone();
        change(&mut pairs);
        if pairs == *before {
            return Ok((Ok(()), pairs));
        }
        let written = unless_unknown(cloud.set_port_pairs(&now, &pairs, term).await.map(drop))?;
        self.overwritten.insert(now.id.clone());
        let after = cloud.port(&now.id).await?;
        Ok((written, after.pairs.ok_or(ApplyError::PortChanged(after.id))?))
    }
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
