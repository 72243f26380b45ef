use std::fmt::Display;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{Instant, sleep, timeout_at};

/// Asks `probe` until it answers `Ok`, and hands that answer on; past `within`, an error with `what` was waited for and
/// the last reason of `probe`. A probe that hangs is cut off at the deadline.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// let started = std::time::Instant::now();
/// let waited = groundcrew_testkit::eventually("30 ms have passed", Duration::from_secs(5), async || {
///     let elapsed = started.elapsed();
///     if elapsed >= Duration::from_millis(30) { Ok(elapsed) } else { Err(format!("only {elapsed:?}")) }
/// });
/// assert!(waited.await.unwrap() >= Duration::from_millis(30));
/// # }
/// ```
pub async fn eventually<T, E: Display>(
    what: &str,
    within: Duration,
    mut probe: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T> {
    let deadline = Instant::now() + within;
    // Most things are ready in milliseconds; what is not should not have its cores taken by the asking.
    let mut pause = Duration::from_millis(2);
    let mut last = String::from("no answer at all");
    loop {
        match timeout_at(deadline, probe()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(reason)) => last = format!("{reason:#}"),
            Err(_) => return Err(anyhow!("not within {within:?}: {what} (last: {last})")),
        }
        if Instant::now() + pause >= deadline {
            return Err(anyhow!("not within {within:?}: {what} (last: {last})"));
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}
