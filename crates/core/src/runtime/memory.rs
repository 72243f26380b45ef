//! Gives memory back that a list took. A list of ten thousand objects passes through tens of megabytes, and what it leaves
//! behind lies between them: glibc returns only the end of its heap by itself, so that each list would make the process
//! larger.

use std::fs;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Often enough to have given it back before somebody looks; the look itself is one read of a small file.
const INTERVAL: Duration = Duration::from_secs(3);
/// What a process may grow by before it is worth some milliseconds.
const SLACK: u64 = 8 << 10;

pub(super) async fn give_back(stop: CancellationToken) {
    let mut kept = 0;
    while stop.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_some() {
        let Some(resident) = resident() else { continue };
        if resident <= kept + SLACK {
            kept = kept.min(resident);
        } else if tokio::task::spawn_blocking(trim).await.is_ok() {
            kept = self::resident().unwrap_or(resident);
        }
    }
}

/// In KiB.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "no crate that is here wraps it")]
fn trim() {
    // SAFETY: it takes no pointer, and the allocator locks itself.
    unsafe { libc::malloc_trim(0) };
}

/// Others give back by themselves, or cannot.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_env = "gnu")]
    fn what_lies_between_things_that_stay_is_given_back() {
        const EACH: usize = 16 << 10;
        let mut list: Vec<_> = (0..4_096).map(|_| vec![1_u8; EACH]).collect();
        // Every hundredth stays, so that the end of the heap says nothing.
        let stay: Vec<_> = list.iter_mut().step_by(100).map(std::mem::take).collect();
        drop(list);
        let before = resident().unwrap();
        trim();
        let after = resident().unwrap();
        assert!(after + (32 << 10) < before, "{before} KiB, then {after} KiB");
        assert_eq!(stay.len(), 41);
    }
}
