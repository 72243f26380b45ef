//! `groundcrew deorbit plan|run|status|abort`, for people and pipelines.
//!
//! `run` makes the object and takes part in the election for it: where a controller leads in the cluster, that one works and
//! `run` follows it; where there is none, as in a hook of Helm, `run` works itself. Either way it is the same controller.

mod follow;
mod lead;
mod show;
mod wish;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use groundcrew_api::deorbit::{Deorbit, DeorbitSpec, OnBudgetEnd};
use groundcrew_core::runtime::{Runtime, RuntimeArgs, StartError, run_until};
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use tokio_util::sync::CancellationToken;

pub use follow::Follow;
pub use show::{exit, plan_diff, plan_table, progress, report_table};
use wish::Found;
pub use wish::Wish;

use super::apply::Applied;
use super::cloud::Clouds;
use super::run::{Preview, Runner};
use super::{Args, start};

/// Nothing is left.
pub const CLEAN: u8 = 0;
/// It could not be done or found out.
pub const FAILED: u8 = 1;
/// Something is left, or it has not ended.
pub const LEFTOVERS: u8 = 3;
/// Nothing was done.
pub const REFUSED: u8 = 4;

/// How the result looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// One document.
    Json,
}

/// Flags of all four.
#[derive(Debug, Clone, clap::Args)]
pub struct Shown {
    /// The name of the Deorbit object
    #[arg(long, env = "GROUNDCREW_NAME", default_value = "deorbit")]
    pub name: String,

    /// How the result looks
    #[arg(long, short, env = "GROUNDCREW_OUTPUT", default_value = "table")]
    pub output: Output,
}

/// Prints. A reader that has gone, as with `| head`, is no error.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Longer than any single look.
const LOOK: Duration = Duration::from_mins(3);

/// Runs one command on a runtime of its own, until it has a code to exit with or the time is up.
async fn command<F>(mut args: RuntimeArgs, within: Duration, alone: bool, work: F) -> u8
where
    F: AsyncFnOnce(Runtime, Done) -> Result<(), StartError>,
{
    // A person's machine has other things on that port, and two runs may meet.
    args.admin_address = ([127, 0, 0, 1], 0).into();
    args.no_leader_election |= alone;
    if args.lease_namespace.is_none() && !args.no_leader_election {
        args.lease_namespace = Box::pin(lead::namespace(&args)).await;
    }
    let done = Done { code: Arc::new(AtomicU8::new(FAILED)), stop: CancellationToken::new() };
    let (stop, code) = (done.stop.clone(), done.code.clone());
    let running =
        run_until(stop, CancellationToken::new(), "deorbit", args, async move |runtime| work(runtime, done).await);
    match tokio::time::timeout(within, running).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            complain(&format!("error: {error}"));
            return FAILED;
        }
        Err(_) => {
            complain(&format!(
                "error: not done within {} s: Kubernetes or the cloud does not answer",
                within.as_secs()
            ));
            return LEFTOVERS;
        }
    }
    code.load(Ordering::SeqCst)
}

/// Ends a command.
#[derive(Clone)]
pub struct Done {
    code: Arc<AtomicU8>,
    stop: CancellationToken,
}

impl Done {
    fn with(&self, code: u8) {
        self.code.store(code, Ordering::SeqCst);
        self.stop.cancel();
    }
}

fn runner(runtime: &Runtime, args: &Args, clouds: Clouds) -> Runner {
    Runner {
        client: runtime.client.clone(),
        clouds,
        deadline: runtime.write_deadline,
        leases: args.leases(),
        namespace: runtime.about.namespace.clone().unwrap_or_else(|| "default".into()),
        last: Applied::default(),
        blocked: None,
    }
}

/// What would go. Nothing is written.
pub async fn plan<B>(runtime: RuntimeArgs, args: Args, wish: Wish, output: Output, clouds: B) -> u8
where
    B: AsyncFnOnce(&Runtime) -> Result<Clouds, StartError>,
{
    let spec = wish.spec();
    Box::pin(command(runtime, LOOK, true, async move |runtime, done| {
        let runner = runner(&runtime, &args, clouds(&runtime).await?);
        let Preview { plan, things, refusals, uid } = Box::pin(runner.preview(&spec, true)).await?;
        match output {
            Output::Table => {
                say(&plan_table(&plan));
                for refusal in &refusals {
                    complain(&format!("it would be refused: {refusal}"));
                }
                if refusals.is_empty() {
                    complain(&format!("to do it: groundcrew deorbit run --confirm {uid} (and the flags of this line)"));
                }
            }
            Output::Json => {
                let document = serde_json::json!({ "plan": plan, "refusals": refusals, "things": things });
                say(&format!("{document}\n"));
            }
        }
        done.with(if refusals.is_empty() { CLEAN } else { REFUSED });
        Ok(())
    }))
    .await
}

/// Does it, or follows whoever does.
pub async fn run<B>(
    runtime: RuntimeArgs,
    args: Args,
    wish: Wish,
    shown: Shown,
    report: Option<PathBuf>,
    clouds: B,
) -> u8
where
    B: AsyncFnOnce(&Runtime) -> Result<Clouds, StartError>,
{
    if runtime.dry_run {
        // The object alone would have a controller in the cluster do all of it.
        complain("error: --dry-run writes nothing, not even what asks for it: look with groundcrew deorbit plan");
        return REFUSED;
    }
    let spec = wish.spec();
    let total = match super::stage::Limits::read(&spec.budgets) {
        Ok(limits) => limits.total(),
        Err(why) => {
            complain(&format!("error: {why}"));
            return REFUSED;
        }
    };
    // The controller ends in time by itself; this is for when it cannot even write that down.
    command(runtime, total + follow::SLACK + 2 * LOOK, false, async move |runtime, done| {
        // Without them nothing can be done, so that nothing is asked for.
        let clouds = clouds(&runtime).await?;
        let order = Order { args, spec, shown, report, total, clouds };
        let tasks = runtime.tasks.clone();
        tasks.spawn("follow", async move { done.with(order.carry_out(runtime).await) });
        Ok(())
    })
    .await
}

/// What `run` was asked for.
struct Order {
    args: Args,
    spec: DeorbitSpec,
    shown: Shown,
    report: Option<PathBuf>,
    total: Duration,
    clouds: Clouds,
}

impl Order {
    /// The code to exit with.
    async fn carry_out(self, runtime: Runtime) -> u8 {
        let Self { args, spec, shown, report, total, clouds } = self;
        let api: Api<Deorbit> = Api::all(runtime.client.clone());
        let held = loop {
            match wish::ask(&api, &shown.name, &spec).await {
                Ok(Found::Asked(held)) => break held,
                Ok(Found::Going) => {
                    let (mut runner, role) = (runner(&runtime, &args, Clouds::default()), runtime.role.clone());
                    let gone = follow::until_gone(&api, &shown.name, &mut runner, role, true);
                    match tokio::time::timeout(LOOK, gone).await {
                        Ok(Ok(())) => {}
                        Ok(Err(code)) => return code,
                        Err(_) => {
                            complain(&format!("error: the Deorbit {} that was there before does not go", shown.name));
                            return FAILED;
                        }
                    }
                }
                Err(error) => {
                    complain(&format!("error: {error}"));
                    return REFUSED;
                }
            }
        };
        if let Err(error) = start(&runtime, args, clouds.clone()).await {
            complain(&format!("error: {error}"));
            return FAILED;
        }
        let proceed = spec.on_budget_end == OnBudgetEnd::Proceed;
        let follow = Follow { api, name: shown.name, output: shown.output, report, total, held, clouds, proceed };
        follow.until_the_end().await
    }
}

/// How far it is.
pub async fn status(runtime: RuntimeArgs, shown: Shown) -> u8 {
    command(unmarked(runtime), LOOK, true, async move |runtime, done| {
        let api: Api<Deorbit> = Api::all(runtime.client.clone());
        let Some(deorbit) = api.get_opt(&shown.name).await? else {
            complain(&format!("there is no Deorbit {}", shown.name));
            done.with(REFUSED);
            return Ok(());
        };
        let status = deorbit.status.unwrap_or_default();
        match shown.output {
            Output::Json => say(&format!("{}\n", serde_json::to_string(&status)?)),
            Output::Table => say(&show::status_table(&status)),
        }
        done.with(exit(&status));
        Ok(())
    })
    .await
}

/// Puts everything back, if nothing was deleted yet.
pub async fn abort(runtime: RuntimeArgs, args: Args, shown: Shown) -> u8 {
    if runtime.dry_run {
        complain("error: --dry-run writes nothing: look with groundcrew deorbit status");
        return REFUSED;
    }
    command(unmarked(runtime), LOOK, false, async move |runtime, done| {
        let api: Api<Deorbit> = Api::all(runtime.client.clone());
        if let Some(code) = order_abort(&api, &shown.name).await? {
            done.with(code);
            return Ok(());
        }
        let mut runner = runner(&runtime, &args, Clouds::default());
        let role = runtime.role.clone();
        runtime.tasks.spawn("abort", async move {
            done.with(follow::until_aborted(&api, &shown.name, &mut runner, role).await);
        });
        Ok(())
    })
    .await
}

/// Deletes the Deorbit as it is while nothing has been deleted, or not at all. Gives the code to exit with if there is nothing
/// to wait for.
async fn order_abort(api: &Api<Deorbit>, name: &str) -> kube::Result<Option<u8>> {
    loop {
        let Some(deorbit) = api.get_opt(name).await? else {
            complain(&format!("there is no Deorbit {name}"));
            return Ok(Some(CLEAN));
        };
        if deorbit.status.as_ref().is_some_and(|status| status.irreversible_at.is_some()) {
            complain(&format!(
                "too late: things have been deleted. To stop where it is: kubectl delete deorbit {name}"
            ));
            return Ok(Some(REFUSED));
        }
        let seen = Preconditions { uid: deorbit.metadata.uid, resource_version: deorbit.metadata.resource_version };
        match api.delete(name, &DeleteParams { preconditions: Some(seen), ..DeleteParams::default() }).await {
            // Whoever carries it out has gone on meanwhile, perhaps too far.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            deleted => return deleted.map(|_| None),
        }
    }
}

/// These touch nothing outside, so that they need not know the cluster's name there.
fn unmarked(args: RuntimeArgs) -> RuntimeArgs {
    RuntimeArgs { cluster_id: args.cluster_id.or_else(|| Some("deorbit".into())), ..args }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        wish: Wish,
        #[command(flatten)]
        shown: Shown,
        #[command(flatten)]
        deorbit: Args,
        #[command(flatten)]
        runtime: RuntimeArgs,
    }

    #[tokio::test]
    async fn a_dry_run_neither_asks_for_the_end_of_a_cluster_nor_aborts_it() {
        let line = || Line::parse_from(["test", "--dry-run", "--kubeconfig", "/nowhere"]);
        let Line { wish, shown, deorbit, runtime } = line();
        let run = run(runtime, deorbit, wish, shown, None, async |_: &Runtime| Ok(Clouds::default()));
        assert_eq!(Box::pin(run).await, REFUSED);
        let Line { shown, deorbit, runtime, .. } = line();
        assert_eq!(Box::pin(abort(runtime, deorbit, shown)).await, REFUSED);
    }
}
