//! `nft` and `conntrack`: what the kernel offers only through interfaces that these programs know.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::PlatformError;

/// What takes longer hangs; the next look tries again.
const DEADLINE: Duration = Duration::from_secs(2);

/// Runs a program with `input`. `Err` has its words, in one line.
pub(super) async fn run(program: &'static str, args: &[&str], input: &str) -> Result<(), PlatformError> {
    run_within(DEADLINE, program, args, input).await
}

async fn run_within(
    deadline: Duration,
    program: &'static str,
    args: &[&str],
    input: &str,
) -> Result<(), PlatformError> {
    let failed = |said: String| PlatformError::Program { program, said };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => PlatformError::NotInstalled { program },
        _ => failed(error.to_string()),
    })?;
    let stdin = child.stdin.take();
    let ended = timeout(deadline, async {
        if let Some(mut stdin) = stdin {
            // A program that does not read to the end says why itself.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    });
    match ended.await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(failed(said.split_whitespace().collect::<Vec<_>>().join(" ")))
        }
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(PlatformError::Hung { program, within: deadline }),
    }
}

#[cfg(test)]
mod tests {
    use groundcrew_testkit::eventually;

    use super::*;

    /// With a machine that is busy with other tests.
    const PATIENCE: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn a_program_that_hangs_is_given_up_and_ended() {
        let mark = format!("1000.{}", std::process::id());
        let hung = run_within(Duration::from_millis(100), "sleep", &[&mark], "").await;
        assert_eq!(hung.unwrap_err().to_string(), "sleep failed: no end within 100ms");
        eventually("it is gone", PATIENCE, async || {
            let running = std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
                let line = std::fs::read_to_string(process.path().join("cmdline"));
                line.is_ok_and(|line| line.split('\0').any(|word| word == mark))
            });
            if running { Err("it runs") } else { Ok(()) }
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn what_a_program_says_is_told_in_one_line() {
        let failed = run_within(PATIENCE, "sh", &["-c", "cat >&2; exit 1"], "first\n  second\n").await;
        assert_eq!(failed.unwrap_err().to_string(), "sh failed: first second");
        let missing = run("groundcrew-no-such-program", &[], "").await;
        assert!(missing.unwrap_err().to_string().contains("is not installed"));
    }
}
