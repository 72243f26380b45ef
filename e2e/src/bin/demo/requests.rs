//! The client outside: a request every ten milliseconds, each on a connection of its own, and what became of it.
//!
//! It runs in the network namespace of the lab's client, as a process that [`Requests`] starts and listens to: a line
//! for each request that has ended.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use groundcrew_testkit::ovn::Host;
use nix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::story::print;
use crate::world::SOON;

pub(crate) const EVERY: Duration = Duration::from_millis(10);
/// Whoever waits longer was not served: a lost SYN is sent again after a second, and would make an outage look like
/// patience.
const PATIENCE: Duration = Duration::from_millis(900);
/// So many in a row are a steady service. They take longer than [`PATIENCE`], so what was asked before has ended.
const STEADY: usize = 100;

#[derive(clap::Args)]
pub(crate) struct Args {
    server: SocketAddr,
}

/// What became of one request. Times are those of the machine's monotonic clock, which all processes share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    sent: Duration,
    ended: Duration,
    /// Who answered.
    backend: Option<String>,
}

impl Display for Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = self.backend.as_deref().unwrap_or_default();
        write!(out, "{} {} {backend}", self.sent.as_micros(), self.ended.as_micros())
    }
}

impl FromStr for Request {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().with_context(|| format!("no line of the client: {line:?}"));
        let (sent, ended) = (word()?.parse()?, word()?.parse()?);
        let backend = Some(word()?.to_owned()).filter(|backend| !backend.is_empty());
        Ok(Self { sent: Duration::from_micros(sent), ended: Duration::from_micros(ended), backend })
    }
}

/// The clock of a [`Request`].
pub(crate) fn now() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into())
}

/// The client's side: sends until its standard input ends.
pub(crate) async fn send(args: &Args) -> Result<()> {
    let mut ticks = interval(EVERY);
    // Late ones are left out: a burst would measure the backends, not the way to them.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (ended, mut end) = oneshot::channel();
    // A thread, which nobody has to wait for if the requests fail first.
    std::thread::spawn(move || ended.send(std::io::stdin().read(&mut [0])));
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            _ = ticks.tick() => { open.spawn(request(args.server)); }
            Some(request) = open.join_next() => print(&format!("{}\n", request??))?,
            _ = &mut end => break,
        }
    }
    while let Some(request) = open.join_next().await {
        print(&format!("{}\n", request??))?;
    }
    Ok(())
}

async fn request(server: SocketAddr) -> Result<Request> {
    let sent = now()?;
    let backend = timeout(PATIENCE, get(server)).await.ok().and_then(Result::ok);
    Ok(Request { sent, ended: now()?, backend })
}

/// The first line of the body.
async fn get(server: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(format!("GET / HTTP/1.0\r\nHost: {server}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("half an answer")?;
    ensure!(head.split(' ').nth(1) == Some("200"), "{head}");
    body.lines().next().map(str::to_owned).context("an empty answer")
}

/// The demo's side: the running client and all that it has told.
pub(crate) struct Requests {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    seen: Vec<Request>,
    /// When the last answered request was sent of those that made the service steady.
    steady: Duration,
}

impl Requests {
    pub(crate) fn start(client: &Host, server: SocketAddr) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["requests", &server.to_string()]);
        let mut command = tokio::process::Command::from(client.command(&command)?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("start the client outside")?;
        let stdin = child.stdin.take().context("stdin of the client")?;
        let lines = BufReader::new(child.stdout.take().context("stdout of the client")?).lines();
        Ok(Self { child, stdin, lines, seen: Vec::new(), steady: Duration::ZERO })
    }

    /// Listens until [`STEADY`] requests in a row that were sent after `since` have had an answer.
    pub(crate) async fn until_steady(&mut self, since: Duration) -> Result<()> {
        let steady = async {
            let mut in_a_row = 0;
            while in_a_row < STEADY {
                let line = self.lines.next_line().await?.context("the client outside has ended")?;
                let request: Request = line.parse()?;
                let good = request.backend.is_some() && request.sent > since;
                (in_a_row, self.steady) =
                    if good { (in_a_row + 1, self.steady.max(request.sent)) } else { (0, self.steady) };
                self.seen.push(request);
            }
            Ok(())
        };
        let end = timeout(SOON, steady).await;
        end.unwrap_or_else(|_| bail!("no {STEADY} answers in a row within {SOON:?}"))
    }

    /// How many answers each backend has given.
    pub(crate) fn by_backend(&self) -> BTreeMap<&str, usize> {
        let mut answers = BTreeMap::new();
        for backend in self.seen.iter().filter_map(|request| request.backend.as_deref()) {
            *answers.entry(backend).or_default() += 1;
        }
        answers
    }

    /// Lets the open ones end, and counts what `event` may have cost until the service was steady.
    pub(crate) async fn finish(mut self, event: Duration) -> Result<Tally> {
        drop(self.stdin);
        while let Some(line) = self.lines.next_line().await? {
            self.seen.push(line.parse()?);
        }
        let status = self.child.wait().await?;
        ensure!(status.success(), "the client outside ended with {status}");
        Ok(Tally::of(event, self.steady, self.seen))
    }
}

/// The requests that were open at some event or sent after it, until the service was steady, in the order in which they
/// were sent.
pub(crate) struct Tally(Vec<Request>);

impl Tally {
    fn of(event: Duration, steady: Duration, mut requests: Vec<Request>) -> Self {
        // What had ended before is not its doing, nor is what was sent when all was well again: of that nobody waited for
        // what came after it.
        requests.retain(|request| request.ended > event && request.sent <= steady);
        requests.sort_by_key(|request| request.sent);
        Self(requests)
    }

    pub(crate) fn sent(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn failed(&self) -> usize {
        self.0.iter().filter(|request| request.backend.is_none()).count()
    }

    pub(crate) fn slowest_answer(&self) -> Duration {
        let answered = self.0.iter().filter(|request| request.backend.is_some());
        answered.map(|request| request.ended.saturating_sub(request.sent)).max().unwrap_or_default()
    }

    /// From the first request without an answer to the first answer to one that was sent after the last without; zero
    /// if there was none without.
    pub(crate) fn outage(&self) -> Result<Duration> {
        let lost = |request: &&Request| request.backend.is_none();
        let (Some(first), Some(end)) = (self.0.iter().find(lost), self.0.iter().rfind(lost)) else {
            return Ok(Duration::ZERO);
        };
        let good_again = self.0.iter().find(|request| request.sent > end.sent && request.backend.is_some());
        Ok(good_again.context("the service did not come back")?.ended.saturating_sub(first.sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(sent: u64, ended: u64, backend: Option<&str>) -> Request {
        let at = Duration::from_millis;
        Request { sent: at(sent), ended: at(ended), backend: backend.map(str::to_owned) }
    }

    #[test]
    fn a_line_tells_all_of_a_request() {
        for told in [request(7, 9, Some("pod1")), request(7, 907, None)] {
            assert_eq!(told.to_string().parse::<Request>().unwrap(), told);
        }
        assert!("x".parse::<Request>().is_err());
    }

    #[test]
    fn an_outage_lasts_until_the_first_answer_after_its_last_victim() {
        let good = |sent| request(sent, sent + 2, Some("pod1"));
        // As they end: the lost ones last.
        let ended = vec![good(0), good(10), good(40), good(50), request(20, 920, None), request(30, 930, None)];
        let tally = Tally::of(Duration::from_millis(5), Duration::MAX, ended);
        assert_eq!(tally.outage().unwrap(), Duration::from_millis(22));
        assert_eq!((tally.sent(), tally.failed()), (5, 2));
    }

    #[test]
    fn what_was_lost_before_is_not_held_against_the_event() {
        let ended = vec![request(0, 900, None), request(1000, 1002, Some("pod1"))];
        let tally = Tally::of(Duration::from_millis(950), Duration::MAX, ended);
        assert_eq!((tally.outage().unwrap(), tally.failed()), (Duration::ZERO, 0));
    }

    #[test]
    fn a_service_that_stays_away_has_no_outage_to_tell() {
        assert!(Tally::of(Duration::ZERO, Duration::MAX, vec![request(0, 900, None)]).outage().is_err());
    }

    #[test]
    fn what_is_lost_after_the_service_was_steady_is_not_held_against_the_event() {
        let good = |sent| request(sent, sent + 2, Some("pod1"));
        let ended = vec![request(10, 910, None), good(20), good(1020), request(1030, 1930, None)];
        let tally = Tally::of(Duration::ZERO, Duration::from_millis(1020), ended);
        assert_eq!((tally.outage().unwrap(), tally.failed()), (Duration::from_millis(12), 1));
    }
}
