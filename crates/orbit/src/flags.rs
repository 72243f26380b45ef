//! How flags are read that several controllers have.

use ipnet::IpNet;

/// Everything is no range of pods: routes to it would be removed, and a security group opened to the world.
pub(crate) fn pod_cidr(text: &str) -> Result<IpNet, String> {
    let range: IpNet = text.parse().map_err(|_| "write it as 10.244.0.0/16")?;
    match range.prefix_len() {
        0 => Err("all addresses cannot be pods'".into()),
        _ if range != range.trunc() => Err(format!("did you mean {}?", range.trunc())),
        _ => Ok(range),
    }
}

pub(crate) fn percent(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|percent| (1..=100).contains(percent)).ok_or_else(|| "write a number from 1 to 100".into())
}
