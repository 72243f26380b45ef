//! What a test wants to go wrong.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::account::Account;

/// Something that happens to requests of one kind.
#[derive(Debug)]
pub struct Fault {
    method: &'static str,
    path: String,
    after: usize,
    times: usize,
    effect: Effect,
}

/// What happens.
pub enum Effect {
    /// This answer, and nothing else.
    Answer(u16, String),
    /// Nothing is done and nothing answered, ever.
    Hang,
    /// It begins when the test lets it.
    Held(Hold),
    /// It takes this long to begin.
    Delay(Duration),
    /// It is done at once, and the answer takes this long: what it says may not be true any more when it arrives.
    Late(Duration),
    /// It is done, and the connection ends without an answer.
    LoseAnswer,
    /// It is answered as if done, and is not.
    Ignore,
    /// A list ends early, though `total_count` tells the truth.
    CutList(usize),
    /// Somebody else is quicker: this happens to the account just before.
    Before(Box<dyn FnMut(&mut Account) + Send>),
}

/// Where requests are held until a test lets them go. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Hold(Arc<Held>);

#[derive(Debug)]
struct Held {
    arrived: AtomicUsize,
    let_go: Semaphore,
}

impl Default for Hold {
    fn default() -> Self {
        Self(Arc::new(Held { arrived: AtomicUsize::new(0), let_go: Semaphore::new(0) }))
    }
}

impl Hold {
    /// How many have come here so far, those among them that were let go.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.0.arrived.load(Ordering::SeqCst)
    }

    /// Lets one go, or the next that comes.
    pub fn let_one_go(&self) {
        self.0.let_go.add_permits(1);
    }

    /// Lets all go, those that are still to come as well.
    pub fn end(&self) {
        self.0.let_go.close();
    }

    fn arrive(&self) {
        self.0.arrived.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) async fn wait(&self) {
        if let Ok(turn) = self.0.let_go.acquire().await {
            turn.forget();
        }
    }
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answer(..) => "Answer",
            Self::Hang => "Hang",
            Self::Held(_) => "Held",
            Self::Delay(_) => "Delay",
            Self::Late(_) => "Late",
            Self::LoseAnswer => "LoseAnswer",
            Self::Ignore => "Ignore",
            Self::CutList(_) => "CutList",
            Self::Before(_) => "Before",
        })
    }
}

impl Fault {
    /// Every request with this method whose path (`ips/`, `servers/<uuid>/`) begins like this.
    pub fn on(method: &'static str, path: impl Into<String>, effect: Effect) -> Self {
        Self { method, path: path.into(), after: 0, times: usize::MAX, effect }
    }

    /// Not before so many of them have passed unharmed.
    #[must_use]
    pub fn after(mut self, passed: usize) -> Self {
        self.after = passed;
        self
    }

    /// Only so many times.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// The answer of a service that is down.
    #[must_use]
    pub fn down(method: &'static str, path: &str) -> Self {
        Self::on(method, path, Effect::Answer(500, "<html>Internal Server Error</html>".to_owned()))
    }
}

/// What is left of the faults that hit one request.
#[derive(Debug, Default)]
pub(super) struct Struck {
    pub(super) answer: Option<(u16, String)>,
    pub(super) hang: bool,
    pub(super) held: Option<Hold>,
    pub(super) delay: Duration,
    pub(super) late: Duration,
    pub(super) lose_answer: bool,
    pub(super) ignore: bool,
    pub(super) cut: Option<usize>,
}

pub(super) fn strike(faults: &mut Vec<Fault>, account: &mut Account, method: &str, path: &str) -> Struck {
    let mut struck = Struck::default();
    for fault in faults.iter_mut().filter(|fault| fault.method == method && path.starts_with(&fault.path)) {
        if fault.after > 0 {
            fault.after -= 1;
            continue;
        }
        fault.times = fault.times.saturating_sub(1);
        match &mut fault.effect {
            Effect::Answer(status, body) => struck.answer = Some((*status, body.clone())),
            Effect::Hang => struck.hang = true,
            Effect::Held(hold) => {
                hold.arrive();
                struck.held = Some(hold.clone());
            }
            Effect::Delay(time) => struck.delay += *time,
            Effect::Late(time) => struck.late += *time,
            Effect::LoseAnswer => struck.lose_answer = true,
            Effect::Ignore => struck.ignore = true,
            Effect::CutList(count) => struck.cut = Some(*count),
            Effect::Before(change) => change(account),
        }
    }
    faults.retain(|fault| fault.times > 0);
    struck
}
