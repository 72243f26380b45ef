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
    let failed = |said: String| PlatformError::Program { program, said };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => PlatformError::NotInstalled { program },
        _ => failed(error.to_string()),
    })?;
    let stdin = child.stdin.take();
    let ended = timeout(DEADLINE, async {
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
        Err(_) => Err(failed(format!("no end within {DEADLINE:?}"))),
    }
}
