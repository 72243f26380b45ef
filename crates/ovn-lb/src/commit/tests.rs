//! The committer on a real northbound server.

use groundcrew_core::provider::{Owner, Protocol};
use groundcrew_testkit::ovn::Northbound as Server;
use groundcrew_testkit::{Signal, eventually};
use ovsdb_client::{Config, Replica, parse_list};
use prometheus::Registry;

use super::*;
use crate::desired::desired;
use crate::marks;
use crate::plan::{Plan, plan};
use crate::testing::{owner, site, wanted};

/// Generous: a loaded two-core machine, not the committer, decides how long things take here.
const SOON: Duration = Duration::from_mins(1);
const DEADLINE: Duration = Duration::from_mins(1);
/// It is waited for.
const SHORT_DEADLINE: Duration = Duration::from_secs(3);

struct Process {
    view: View,
    metrics: Metrics,
    committer: Committer,
    term: Term,
}

impl Process {
    /// Connected, but without a term.
    async fn new(server: &Server, identity: &str) -> Self {
        Self::with_deadline(server, identity, DEADLINE).await
    }

    async fn with_deadline(server: &Server, identity: &str, deadline: Duration) -> Self {
        Self::of_class(server, identity, "c", deadline).await
    }

    async fn of_class(server: &Server, identity: &str, class: &str, deadline: Duration) -> Self {
        let view = View { replica: Replica::open(Config::new(parse_list(&server.remotes()).unwrap())) };
        view.replica.synced().await;
        let metrics = Metrics::new(&Registry::new()).unwrap();
        let northd = Northd::new(view.replica.clone(), tokio::sync::broadcast::Sender::new(16));
        let (committer, task) =
            Committer::new(view.clone(), "c1".into(), class.into(), deadline, metrics.clone(), northd);
        tokio::spawn(task);
        Self { view, metrics, committer, term: Term::alone(identity) }
    }

    /// With a short deadline it may take more than one try.
    async fn until_begun(&self) {
        eventually("the term has begun", SOON, async || self.committer.begin(&self.term).await).await.unwrap();
    }

    fn plan(&self, owner: &Owner) -> Plan {
        plan(&desired(&wanted(owner, &["192.0.2.7"]), &site()), &site(), &self.view.now().unwrap())
    }

    async fn serve(&self, owner: &Owner) -> Result<Option<i64>, Error> {
        self.committer.commit(self.plan(owner).steps, &self.term).await
    }
}

async fn project(server: &Server, namespace: &str) {
    server.nbctl(["lr-add", namespace, "--", "ls-add", &format!("{namespace}-default")]).await.unwrap();
}

async fn server() -> Server {
    let server = Server::standalone().await.unwrap();
    project(&server, "shop").await;
    server
}

#[tokio::test]
async fn what_was_committed_is_seen_at_once() {
    let server = server().await;
    let process = Process::new(&server, "a").await;
    process.view_has_project("shop").await;
    process.committer.begin(&process.term).await.unwrap();
    for n in 0..50 {
        let owner = owner("shop", &format!("web{n}"));
        process.serve(&owner).await.unwrap();
        assert!(process.plan(&owner).is_empty(), "a second look would write again");
    }
    let attached = server.nbctl(["lr-lb-list", "shop"]).await.unwrap();
    assert_eq!(attached.lines().count(), 1 + 50, "{attached}");
}

#[tokio::test]
async fn many_changes_at_once_share_a_few_transactions() {
    let server = server().await;
    let process = Process::new(&server, "a").await;
    process.view_has_project("shop").await;
    process.committer.begin(&process.term).await.unwrap();
    let owners: Vec<_> = (0..1_000).map(|n| owner("shop", &format!("web{n}"))).collect();
    let commits = owners.iter().map(|owner| process.serve(owner));
    for outcome in futures::future::join_all(commits).await {
        outcome.unwrap();
    }
    assert!(owners.iter().all(|owner| process.plan(owner).is_empty()));
    let transactions = process.metrics.commits.with_label_values(&["ok"]).get();
    assert!(transactions <= 3, "{transactions} transactions");
}

#[tokio::test]
async fn whoever_gave_up_is_not_served_behind_his_back() {
    let server = server().await;
    let process = Process::new(&server, "a").await;
    process.view_has_project("shop").await;
    process.committer.begin(&process.term).await.unwrap();
    let (gone, next) = (owner("shop", "gone"), owner("shop", "next"));
    // Polled once, so that it is in the queue, and dropped before the task of the committer runs.
    let _ = futures::FutureExt::now_or_never(process.serve(&gone));
    process.serve(&next).await.unwrap();
    assert!(process.plan(&next).is_empty());
    assert!(!process.plan(&gone).is_empty(), "its Service may have been released since");
}

#[tokio::test]
async fn without_a_term_nothing_is_written() {
    let server = server().await;
    let process = Process::new(&server, "a").await;
    process.view_has_project("shop").await;
    assert!(matches!(process.serve(&owner("shop", "web")).await, Err(Error::NoTerm)));
    assert_eq!(server.nbctl(["lb-list"]).await.unwrap(), "");
}

#[tokio::test]
async fn a_newer_term_fences_the_older_one_out() {
    let server = server().await;
    let (old, new) = (Process::new(&server, "old").await, Process::new(&server, "new").await);
    old.view_has_project("shop").await;
    new.view_has_project("shop").await;
    old.committer.begin(&old.term).await.unwrap();
    old.serve(&owner("shop", "before")).await.unwrap();
    eventually("the other process sees the epoch", SOON, async || match new.committer.begin(&new.term).await {
        Err(Error::Lost) => Err("epoch not seen yet"),
        done => {
            done.unwrap();
            Ok(())
        }
    })
    .await
    .unwrap();
    let refused = old.serve(&owner("shop", "after")).await;
    assert!(matches!(&refused, Err(Error::Fenced { epoch }) if epoch == "2/new c"), "{refused:?}");
    new.serve(&owner("shop", "after")).await.unwrap();
}

#[tokio::test]
async fn a_second_class_is_not_served_while_the_first_has_anything() {
    let server = server().await;
    let first = Process::new(&server, "first").await;
    let second = Process::of_class(&server, "second", "other", DEADLINE).await;
    first.view_has_project("shop").await;
    second.view_has_project("shop").await;
    first.committer.begin(&first.term).await.unwrap();
    first.serve(&owner("shop", "one")).await.unwrap();
    eventually("the second sees the row", SOON, async || {
        let nb = second.view.now().unwrap();
        if nb.load_balancers.iter().next().is_some() { Ok(()) } else { Err("no row") }
    })
    .await
    .unwrap();
    let refused = second.committer.begin(&second.term).await;
    assert!(matches!(&refused, Err(Error::OtherClass { epoch, .. }) if epoch == "1/first c"), "{refused:?}");
    first.serve(&owner("shop", "two")).await.unwrap();

    server.nbctl(["--all", "destroy", "Load_Balancer"]).await.unwrap();
    eventually("the second begins", SOON, async || second.committer.begin(&second.term).await).await.unwrap();
}

#[tokio::test]
async fn the_leader_of_a_restored_or_rebuilt_database_goes_on() {
    let mut server = server().await;
    let process = Process::new(&server, "a").await;
    process.view_has_project("shop").await;
    process.committer.begin(&process.term).await.unwrap();
    process.serve(&owner("shop", "web")).await.unwrap();

    server.rebuild_empty().await.unwrap();
    project(&server, "shop").await;
    process.view_has_project("shop").await;
    eventually("the Service is served in the new database", SOON, async || process.serve(&owner("shop", "web")).await)
        .await
        .unwrap();
    assert!(process.plan(&owner("shop", "web")).is_empty());
}

#[tokio::test]
async fn only_the_loser_of_a_batch_plans_again() {
    let server = server().await;
    project(&server, "gone").await;
    let process = Process::new(&server, "a").await;
    process.view_has_project("shop").await;
    process.view_has_project("gone").await;
    process.committer.begin(&process.term).await.unwrap();

    let (winner, loser) = (owner("shop", "web"), owner("gone", "web"));
    let (winning, losing) = (process.plan(&winner).steps, process.plan(&loser).steps);
    server.nbctl(["lr-del", "gone"]).await.unwrap();
    let (won, lost) =
        tokio::join!(process.committer.commit(winning, &process.term), process.committer.commit(losing, &process.term));
    won.unwrap();
    assert!(matches!(lost, Err(Error::Lost)), "{lost:?}");
    let rows = server.nbctl(["lb-list"]).await.unwrap();
    assert!(rows.contains("shop-web-tcp-") && !rows.contains("gone-web-tcp-"), "{rows}");
}

#[tokio::test]
async fn a_row_that_is_there_already_is_lost_not_doubled() {
    let server = server().await;
    let process = Process::new(&server, "a").await;
    process.view_has_project("shop").await;
    process.committer.begin(&process.term).await.unwrap();
    let owner = owner("shop", "web");
    let steps = process.plan(&owner).steps;
    process.committer.commit(steps.clone(), &process.term).await.unwrap();
    let again = process.committer.commit(steps, &process.term).await;
    assert!(matches!(again, Err(Error::Lost)), "{again:?}");
    let uuid = marks::row_uuid("c1", &owner, Protocol::Tcp).to_string();
    assert_eq!(server.nbctl(["--bare", "--columns=_uuid", "list", "Load_Balancer"]).await.unwrap().trim(), uuid);
}

#[tokio::test]
async fn a_hung_server_leaves_an_unknown_outcome_and_the_next_look_finds_what_became_of_it() {
    let server = server().await;
    let process = Process::with_deadline(&server, "a", SHORT_DEADLINE).await;
    process.view_has_project("shop").await;
    process.until_begun().await;
    let owner = owner("shop", "web");
    server.signal(0, Signal::SIGSTOP).unwrap();
    let hung = process.serve(&owner).await;
    assert!(matches!(hung, Err(Error::Unknown { .. })), "{hung:?}");
    server.signal(0, Signal::SIGCONT).unwrap();
    // A change without steps, as of a Service that is released and has no row yet: when it is answered, the write that
    // nobody waited for has been seen or can never happen.
    eventually("the epoch has moved on", SOON, async || process.committer.commit(Vec::new(), &process.term).await)
        .await
        .unwrap();
    assert!(process.plan(&owner).is_empty(), "the row is seen, so that it is neither made twice nor left behind");
    let epoch = server.nbctl(["get", "NB_Global", ".", "external_ids:groundcrew-epoch-c1"]).await.unwrap();
    assert_ne!(epoch.trim().trim_matches('"'), "1/a c", "a write that is still on its way would pass its guard");
}

/// A change that the server does not answer yet, and behind it one more than enough for a transaction to be put together ahead.
/// Returns when that has been done.
async fn hold_up<'a>(
    process: &'a Process,
    server: &Server,
    first: &'a Owner,
    rest: &'a [Owner],
) -> (Commit<'a>, Vec<Commit<'a>>) {
    server.signal(0, Signal::SIGSTOP).unwrap();
    let mut first: Commit<'_> = Box::pin(process.serve(first));
    assert!(futures::poll!(&mut first).is_pending());
    tokio::task::yield_now().await;
    let mut rest: Vec<Commit<'_>> = rest.iter().map(|owner| Box::pin(process.serve(owner)) as _).collect();
    for commit in &mut rest {
        assert!(futures::poll!(commit).is_pending());
    }
    // The committer shares this thread and takes some from the queue at each of its turns.
    for _ in 0..rest.len() {
        tokio::task::yield_now().await;
    }
    (first, rest)
}

type Commit<'a> = futures::future::BoxFuture<'a, Result<Option<i64>, Error>>;

#[tokio::test]
async fn what_is_put_together_ahead_leaves_out_whoever_gives_up_before_its_turn() {
    let server = server().await;
    let process = Process::new(&server, "a").await;
    process.view_has_project("shop").await;
    process.committer.begin(&process.term).await.unwrap();
    let first = owner("shop", "first");
    let owners: Vec<_> = (0..=MANY).map(|n| owner("shop", &format!("web{n}"))).collect();
    let (first, mut rest) = hold_up(&process, &server, &first, &owners).await;
    drop(rest.remove(0));
    server.signal(0, Signal::SIGCONT).unwrap();
    first.await.unwrap();
    for commit in rest {
        commit.await.unwrap();
    }
    assert!(!process.plan(&owners[0]).is_empty(), "its Service may have been released since");
    assert!(owners[1..].iter().all(|owner| process.plan(owner).is_empty()));
    let transactions = process.metrics.commits.with_label_values(&["ok"]).get();
    assert_eq!(transactions, 3, "the first, what was put together ahead, and the one that came later");
}

#[tokio::test]
async fn what_was_put_together_ahead_is_made_anew_when_the_epoch_has_moved_on() {
    let server = server().await;
    let process = Process::with_deadline(&server, "a", SHORT_DEADLINE).await;
    process.view_has_project("shop").await;
    process.until_begun().await;
    let first = owner("shop", "first");
    let owners: Vec<_> = (0..=MANY).map(|n| owner("shop", &format!("web{n}"))).collect();
    let (hung, rest) = hold_up(&process, &server, &first, &owners).await;
    let hung = hung.await;
    server.signal(0, Signal::SIGCONT).unwrap();
    assert!(matches!(hung, Err(Error::Unknown { .. })), "{hung:?}");
    for commit in rest {
        commit.await.unwrap();
    }
    assert!(owners.iter().all(|owner| process.plan(owner).is_empty()));
    assert!(process.plan(&first).is_empty(), "it was on its way before the epoch moved on, and is seen");
    let refused = process.metrics.commits.with_label_values(&["lost"]).get();
    assert_eq!(refused, 0, "nothing was sent under the epoch before");
}

#[tokio::test]
async fn a_read_only_server_refuses_everybody_and_nobody_is_split() {
    let server = server().await;
    let process = Process::new(&server, "a").await;
    process.view_has_project("shop").await;
    process.committer.begin(&process.term).await.unwrap();
    server.set_read_only(true).await.unwrap();
    // Becoming read-only throws clients out: until they are back nothing is seen, and what was on its way is open.
    let reason = eventually("the server refuses", SOON, async || {
        process.view.now()?;
        match process.serve(&owner("shop", "web")).await {
            Err(Error::Rejected { reason }) => Ok(reason),
            Err(error) => Err(error),
            Ok(number) => panic!("a read-only server wrote {number:?}"),
        }
    })
    .await
    .unwrap();
    assert!(reason.contains("not allowed"), "{reason}");
}

impl Process {
    async fn view_has_project(&self, namespace: &str) {
        let switch = format!("{namespace}-default");
        eventually("the replica has the project", SOON, async || {
            let nb = self.view.now()?;
            let found = nb.routers.find(|by| &by.name, namespace).count() == 1
                && nb.switches.find(|by| &by.name, switch.as_str()).count() == 1;
            if found { Ok(()) } else { Err(Error::Lost) }
        })
        .await
        .unwrap();
    }
}
