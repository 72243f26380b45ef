//! `groundcrew crds`.

/// All definitions, one YAML document each.
pub(crate) fn yaml() -> anyhow::Result<String> {
    let mut yaml = String::new();
    for crd in groundcrew_api::crds() {
        yaml.push_str("---\n");
        yaml.push_str(&serde_saphyr::to_string(&crd)?);
    }
    Ok(yaml)
}
