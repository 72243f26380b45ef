//! A real browser, asked through its own protocol: JSON on two pipes, each message with a zero byte behind it.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use groundcrew_testkit::Scratch;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

/// One page of it. Dropping it ends the browser.
pub(crate) struct Browser {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    last: u64,
    session: Option<String>,
    _process: Child,
    _profile: Scratch,
}

impl Browser {
    /// Shows this address in a window of this width.
    pub(crate) async fn open(url: &str, width: u32) -> Result<Self> {
        let profile = Scratch::new("browser")?;
        let line = "exec chromium-headless-shell --no-sandbox --disable-gpu --remote-debugging-pipe \
            --user-data-dir=\"$0\" about:blank 3<&0 4>&1 >/dev/null 2>&1";
        let mut command = Command::new("bash");
        command.args(["-c", line]).arg(profile.path()).kill_on_drop(true).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let (orders, answers) = (process.stdin.take().context("no pipe")?, process.stdout.take().context("no pipe")?);
        let answers = BufReader::new(answers);
        let mut browser = Self { orders, answers, last: 0, session: None, _process: process, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let target = target.context("no browser answers; run `hack/setup browser`")?["targetId"].clone();
        let session = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true })).await?;
        browser.session = Some(session["sessionId"].as_str().context("no session")?.to_owned());
        let window = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", window).await?;
        browser.call("Page.navigate", json!({ "url": url })).await?;
        Ok(browser)
    }

    /// What an expression is on the page.
    pub(crate) async fn ask(&mut self, expression: &str) -> Result<Value> {
        let answer = self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true })).await?;
        if let Some(thrown) = answer.get("exceptionDetails") {
            bail!("{expression}: {thrown}");
        }
        Ok(answer["result"]["value"].clone())
    }

    async fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.last += 1;
        let mut order = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = &self.session {
            order["sessionId"] = session.clone().into();
        }
        self.orders.write_all(format!("{order}\0").as_bytes()).await?;
        timeout(DEADLINE, self.answer()).await.with_context(|| format!("no answer to {method}"))?
    }

    /// The answer to the last call; what the browser tells besides is not asked for.
    async fn answer(&mut self) -> Result<Value> {
        loop {
            let mut message = Vec::new();
            if self.answers.read_until(0, &mut message).await? == 0 {
                bail!("the browser has ended");
            }
            message.pop();
            let message: Value = serde_json::from_slice(&message)?;
            if message["id"] == self.last {
                return match message.get("error") {
                    Some(error) => bail!("{error}"),
                    None => Ok(message["result"].clone()),
                };
            }
        }
    }
}
