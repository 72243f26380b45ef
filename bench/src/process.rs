//! What a process costs, as the kernel counts it.

use anyhow::{Context, Result};

/// MiB of the process: `VmRSS:` is what it has now, `VmHWM:` the most that it ever had.
pub(crate) fn memory(pid: u32, field: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

/// CPU milliseconds of the process so far.
pub(crate) fn cpu(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<_> = stat.rsplit(") ").next().context("no fields")?.split(' ').collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks * 10.0)
}
