//! `make demo`: a load balancer vanishes from OVN, and is back before anybody could look.
//!
//! Everything is real and on this machine: etcd, kube-apiserver, OVN with its data path in network namespaces, and the
//! `groundcrew` process. Every number that is printed was measured in this run.

mod playground;
mod requests;
mod scenes;
mod story;
mod world;

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Parser, Subcommand};
use groundcrew_testkit::HeldLogs;

use story::Story;

/// Shows a load balancer that is deleted behind Kubernetes' back and comes back by itself.
#[derive(Parser)]
#[command(name = "demo")]
struct Args {
    /// Leave it running after the repair, and say how to look around
    #[arg(long)]
    keep: bool,
    /// Start everything but groundcrew, and give a shell
    #[arg(long, conflicts_with = "keep")]
    playground: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// The client outside, which the demo starts in its network namespace
    #[command(hide = true)]
    Requests(requests::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match args.command {
        Some(Command::Requests(args)) => story::exit_code(requests::send(&args).await),
        None if args.playground => story::exit_code(Box::pin(playground::play()).await),
        None => story::exit_code(tell(args.keep).await),
    }
}

async fn tell(keep: bool) -> Result<()> {
    let logs = HeldLogs::hold()?;
    let mut story = Story::default();
    story::print("Everything here is real and runs on this machine. Times are measured as it goes.\n")?;
    match Box::pin(scenes::play(&mut story, &logs, keep)).await {
        Ok(()) => story::print("\nThe end: nothing of it is running any more.\n"),
        Err(error) => {
            logs.keep()?;
            let logs = logs.path().display();
            Err(anyhow!("step {story} failed: {error:#}\nThe logs of every process are in {logs}"))
        }
    }
}
