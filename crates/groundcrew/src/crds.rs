//! `groundcrew crds`.

use std::io::Write;

const EIP: &str = "EIp";
/// `kubectl apply` overwrites what is there without a word.
const CAUTION: &str = "note: the definition of EIps is among these; where kube-dc has brought its own, use --no-eip";

/// Flags of `groundcrew crds`.
#[derive(Debug, clap::Args)]
pub(crate) struct Crds {
    /// Leave the definition of EIps out: kube-dc has brought its own, which must not be overwritten
    #[arg(long, env = "GROUNDCREW_NO_EIP")]
    no_eip: bool,
}

/// The definitions, one YAML document each. A word of caution is on standard error, and so not in them.
pub(crate) fn yaml(args: &Crds) -> anyhow::Result<String> {
    if !args.no_eip {
        let _ = writeln!(std::io::stderr(), "{CAUTION}");
    }
    let mut yaml = String::new();
    for crd in groundcrew_api::crds().iter().filter(|crd| !(args.no_eip && crd.spec.names.kind == EIP)) {
        yaml.push_str("---\n");
        yaml.push_str(&serde_saphyr::to_string(crd)?);
    }
    Ok(yaml)
}
