//! `groundcrew crds`.

const EIP: &str = "EIp";

/// Flags of `groundcrew crds`.
#[derive(Debug, clap::Args)]
pub(crate) struct Crds {
    /// Leave the definition of EIps out: kube-dc has brought its own, which must not be overwritten
    #[arg(long, env = "GROUNDCREW_NO_EIP")]
    no_eip: bool,
}

/// The definitions, one YAML document each.
pub(crate) fn yaml(args: &Crds) -> anyhow::Result<String> {
    let mut yaml = String::new();
    for crd in groundcrew_api::crds().iter().filter(|crd| !(args.no_eip && crd.spec.names.kind == EIP)) {
        yaml.push_str("---\n");
        yaml.push_str(&serde_saphyr::to_string(crd)?);
    }
    Ok(yaml)
}
