//! `groundcrew explain service`: why a Service answers, or does not.

mod facts;
mod gather;
mod hops;
#[cfg(test)]
mod tests;

use groundcrew_core::runtime::StartError;

use crate::cluster::ClusterArgs;
use crate::output::{Answer, Output, Report};
use crate::ovn::OvnArgs;

/// Flags of `groundcrew explain service`.
#[derive(Debug, Clone, clap::Args)]
pub struct ExplainArgs {
    /// The Service, as NAMESPACE/NAME; or NAME alone with --namespace
    #[arg(value_name = "NAMESPACE/NAME", value_parser = key)]
    service: Key,

    /// Namespace of a Service that is named without one; without it the context's own
    #[arg(long, short, env = "GROUNDCREW_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// How the answer is printed
    #[arg(long, short, env = "GROUNDCREW_OUTPUT", value_name = "FORMAT", default_value = "table")]
    output: Output,

    #[command(flatten)]
    pub(crate) ovn: OvnArgs,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    namespace: Option<String>,
    name: String,
}

/// As a person writes it; what Kubernetes would not take is refused here, because it becomes part of a path.
fn key(text: &str) -> Result<Key, String> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    let fine =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !fine(name) || !namespace.is_none_or(fine) {
        return Err("write it as NAMESPACE/NAME".into());
    }
    Ok(Key { namespace: namespace.map(str::to_owned), name: name.to_owned() })
}

/// Looks at everything between a client and the Service's pods.
pub async fn explain(args: &ExplainArgs) -> Result<Answer, StartError> {
    let client = args.cluster.client().await?;
    let default = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let namespace = args.service.namespace.clone().unwrap_or(default);
    // Boxed: it reads a dozen things at once, and would be copied whole.
    let facts = Box::pin(gather::gather(&client, args, &namespace, &args.service.name)).await;
    Ok(Report::new(format!("Service {}", facts.key()), hops::hops(&facts)).answer(args.output))
}
