//! Places at which a test may stop this process to see what happens next. Nothing at all in a release.

/// Stops the process with `SIGSTOP` when `GROUNDCREW_FAULT` names this point. The variable is read once and is
/// `<point>@<n>`: the n-th time (from 1) that the point is reached.
#[cfg(feature = "fault-points")]
pub fn point(name: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static ARMED: LazyLock<Option<(String, u64)>> = LazyLock::new(|| {
        let value = std::env::var("GROUNDCREW_FAULT").ok()?;
        let (point, n) = value.rsplit_once('@')?;
        Some((point.to_owned(), n.parse().ok()?))
    });
    static REACHED: AtomicU64 = AtomicU64::new(0);

    if let Some((armed, n)) = &*ARMED
        && armed == name
        && REACHED.fetch_add(1, Ordering::Relaxed) + 1 == *n
    {
        // A failure to raise shows in the test that waits for the stop.
        let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
    }
}

/// Nothing: this build has no such places.
#[cfg(not(feature = "fault-points"))]
pub fn point(_: &str) {}
