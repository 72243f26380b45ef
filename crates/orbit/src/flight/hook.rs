//! The operator's own way to a device behind the cloud, for routes there that nothing in the cloud's API takes away.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use reqwest::Url;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tracing::info;

/// As much of what a hook says is logged.
const LONGEST: usize = 4_096;

/// What is called.
#[derive(Clone, PartialEq, Eq)]
pub enum Target {
    /// It gets a POST.
    Url(Url),
    /// It is run.
    Program(PathBuf),
}

/// Why a hook did not do it.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// No answer, or no end.
    #[error("the hook took longer than {} s (--resync-hook-timeout)", .0.as_secs())]
    Slow(Duration),
    /// It could not be run.
    #[error("cannot run the hook: {0}")]
    Run(#[from] std::io::Error),
    /// It ended badly.
    #[error("the hook ended with {0}")]
    Failed(ExitStatus),
    /// It could not be called.
    #[error("cannot call the hook: {0}")]
    Call(String),
    /// It answered with an error.
    #[error("the hook answered {0}")]
    Answered(reqwest::StatusCode),
}

/// A hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// What is called.
    pub target: Target,
    /// How long it may take.
    pub timeout: Duration,
}

impl Target {
    /// Reads what an operator wrote.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with("http://") || text.starts_with("https://") {
            return text.parse().map(Self::Url).map_err(|error| format!("this is no URL: {error}"));
        }
        if text.starts_with('/') {
            return Ok(Self::Program(text.into()));
        }
        Err("write a URL that begins with http:// or https://, or a file that begins with /".into())
    }
}

/// Without what may be secret in a URL: user, path and query. Many hooks have a token in their paths.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => write!(f, "{}://{}", url.scheme(), url.host_str().unwrap_or_default()),
            Self::Program(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Hook {
    /// Tells it which Nodes are out of reach. What it says goes to the log.
    pub(crate) async fn call(&self, nodes: &[&str]) -> Result<(), HookError> {
        let call = async {
            match &self.target {
                Target::Url(url) => post(url.clone(), nodes).await,
                Target::Program(path) => run(path, nodes).await,
            }
        };
        tokio::time::timeout(self.timeout, call).await.map_err(|_| HookError::Slow(self.timeout))?
    }
}

async fn post(url: Url, nodes: &[&str]) -> Result<(), HookError> {
    // The error of a request has its URL in it.
    let told = |error: reqwest::Error| HookError::Call(error.without_url().to_string());
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().map_err(told)?;
    let mut answer = client.post(url).json(&json!({"nodes": nodes})).send().await.map_err(told)?;
    let mut said = Vec::new();
    while said.len() < LONGEST
        && let Some(chunk) = answer.chunk().await.map_err(told)?
    {
        said.extend_from_slice(&chunk);
    }
    said.truncate(LONGEST);
    info!(status = %answer.status(), said = %String::from_utf8_lossy(&said), "the hook has answered");
    if answer.status().is_success() { Ok(()) } else { Err(HookError::Answered(answer.status())) }
}

/// Our credentials are in the environment, and none of its business.
async fn run(path: &Path, nodes: &[&str]) -> Result<(), HookError> {
    let mut child = Command::new(path)
        .args(nodes)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = tokio::join!(read(stdout), read(stderr));
    let status = child.wait().await?;
    info!(%status, stdout, stderr, "the hook has ended");
    if status.success() { Ok(()) } else { Err(HookError::Failed(status)) }
}

/// The beginning of it; whatever comes after is read and dropped, so that nobody waits for us to take it.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let mut said = Vec::new();
    let mut chunk = [0; 1_024];
    while let Ok(n @ 1..) = pipe.read(&mut chunk).await {
        let room = LONGEST.saturating_sub(said.len());
        said.extend_from_slice(&chunk[..n.min(room)]);
    }
    String::from_utf8_lossy(&said).into_owned()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    use super::*;

    /// A shell, whose script is in the place of the Nodes.
    fn shell(timeout: Duration) -> Hook {
        Hook { target: Target::Program("/bin/sh".into()), timeout }
    }

    #[tokio::test]
    async fn a_program_gets_the_nodes_and_none_of_our_environment() {
        let hook = shell(Duration::from_secs(20));
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        hook.call(&["-c", "[ \"$0 $1\" = 'a b' ] && [ -z \"$CARGO_MANIFEST_DIR\" ]", "a", "b"]).await.unwrap();
        assert!(matches!(hook.call(&["-c", "exit 1"]).await, Err(HookError::Failed(_))));
        let missing = Hook { target: Target::Program("/no/such/program".into()), ..hook };
        assert!(matches!(missing.call(&["a"]).await, Err(HookError::Run(_))));
    }

    #[tokio::test]
    async fn a_program_that_talks_a_lot_or_does_not_end_holds_up_nobody() {
        let talks =
            shell(Duration::from_secs(20)).call(&["-c", "head -c 1000000 /dev/zero; exit 3"]).await.unwrap_err();
        assert!(matches!(talks, HookError::Failed(status) if status.code() == Some(3)), "{talks}");
        let slow = shell(Duration::from_millis(50)).call(&["-c", "exec sleep 60"]).await.unwrap_err();
        assert!(matches!(slow, HookError::Slow(_)), "{slow}");
    }

    /// A server that answers one request with this, and tells what it was asked.
    async fn answer(reply: String) -> (Hook, JoinHandle<String>) {
        // As the runtime does before anything starts on it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/resync?key=fixture", listener.local_addr().unwrap());
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = String::new();
            while !asked.ends_with('}') {
                let mut chunk = [0; 1_024];
                let n = stream.read(&mut chunk).await.unwrap();
                assert!(n > 0, "{asked}");
                asked.push_str(std::str::from_utf8(&chunk[..n]).unwrap());
            }
            stream.write_all(reply.as_bytes()).await.unwrap();
            // Kept open for whoever waits for an answer.
            if reply.is_empty() {
                std::future::pending::<()>().await;
            }
            asked
        });
        (Hook { target: Target::parse(&url).unwrap(), timeout: Duration::from_secs(20) }, asked)
    }

    #[tokio::test]
    async fn a_url_gets_the_nodes_as_json_and_only_a_success_is_one() {
        let (hook, asked) = answer("HTTP/1.1 204 No Content\r\n\r\n".into()).await;
        hook.call(&["a", "b"]).await.unwrap();
        let asked = asked.await.unwrap();
        assert!(asked.starts_with("POST /resync?key=fixture HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("content-type: application/json\r\n"), "{asked}");
        assert!(asked.ends_with("\r\n\r\n{\"nodes\":[\"a\",\"b\"]}"), "{asked}");
        for status in [404, 500] {
            let (hook, _) = answer(format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n")).await;
            let error = hook.call(&["a"]).await.unwrap_err();
            assert!(matches!(error, HookError::Answered(answered) if answered.as_u16() == status), "{error}");
        }
    }

    #[tokio::test]
    async fn a_redirect_is_not_followed_and_an_answer_that_does_not_come_is_not_waited_for() {
        let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = elsewhere.local_addr().unwrap();
        let (hook, _) = answer(format!("HTTP/1.1 307 Go\r\nlocation: http://{to}/\r\ncontent-length: 0\r\n\r\n")).await;
        let error = hook.call(&["a"]).await.unwrap_err();
        assert!(matches!(error, HookError::Answered(status) if status.as_u16() == 307), "{error}");
        assert!(elsewhere.accept().now_or_never().is_none(), "nobody came");

        let (hook, _) = answer(String::new()).await;
        let error = Hook { timeout: Duration::from_millis(200), ..hook }.call(&["a"]).await.unwrap_err();
        assert!(matches!(error, HookError::Slow(_)), "{error}");
        let free = groundcrew_testkit::ReservedPort::new().unwrap();
        let nobody = Hook {
            target: Target::parse(&format!("http://{}/key-fixture", free.address())).unwrap(),
            timeout: Duration::from_secs(20),
        };
        let error = nobody.call(&["a"]).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot call the hook") && !error.contains("fixture"), "{error}");
    }

    #[test]
    fn what_may_be_secret_in_a_url_is_not_shown() {
        let target = Target::parse("https://me:fixture@device.example/fixture?key=fixture").unwrap();
        assert_eq!(format!("{target} {target:?}"), "https://device.example https://device.example");
        assert!(Target::parse("resync").is_err());
    }
}
