//! `make playground`: a cluster without nodes, OVN with a data path, and a shell in the middle. The tutorial is typed here.

use std::fs;
use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use groundcrew_testkit::kube::ControlPlane;
use groundcrew_testkit::ovn::lab::Lab;
use groundcrew_testkit::{ReservedPort, Scratch};

use crate::scenes::typed;
use crate::story::print;
use crate::world::beside_us;

const WELCOME: &str = "\
Everything is real and runs on this machine: etcd, kube-apiserver, OVN, and no groundcrew yet.
Type what docs/tutorial.md says; `exit` ends everything and cleans up.
";

/// Runs what standard input says, or a shell for whoever sits there.
pub(crate) async fn play() -> Result<()> {
    let (control_plane, lab) = tokio::try_join!(ControlPlane::start(), Lab::start())?;
    let (bin, port) = (Scratch::new("playground")?, ReservedPort::new()?);
    let outside = typed(&lab.client().command(&Command::new("env"))?);
    script(&bin.join("outside"), &outside)?;
    // Whatever becomes of the shell: its groundcrew ends with it.
    let groundcrew = format!("setpriv --pdeathsig TERM -- {}", beside_us("groundcrew")?.display());
    script(&bin.join("groundcrew"), &groundcrew)?;

    let mut shell = tokio::process::Command::new("bash");
    if std::io::stdin().is_terminal() {
        print(WELCOME)?;
        shell.args(["--norc", "-i"]).env("PS1", "playground$ ");
    } else {
        shell.args(["-euo", "pipefail"]);
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let kubectl = kubectl()?;
    let status = shell
        .current_dir(bin.path())
        .env("PATH", format!("{}:{kubectl}:{path}", bin.path().display()))
        .env("KUBECONFIG", control_plane.kubeconfig_path())
        .env("OVN_NB_DB", lab.northbound().remotes())
        .env("ADMIN", port.address().to_string())
        .env("POD1", lab.pod(0).address().to_string())
        .env("POD2", lab.pod(1).address().to_string())
        .status()
        .await
        .context("start bash")?;
    ensure!(status.success(), "the shell ended with {status}");
    Ok(())
}

fn script(path: &Path, command: &str) -> Result<()> {
    fs::write(path, format!("#!/bin/sh\nexec {command} \"$@\"\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// The directory that has kubectl.
fn kubectl() -> Result<String> {
    let setup = concat!(env!("CARGO_MANIFEST_DIR"), "/../hack/setup");
    let found = Command::new(setup).args(["which", "kubectl"]).output().context("run hack/setup")?;
    ensure!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr).trim());
    let path = String::from_utf8(found.stdout)?;
    let directory = Path::new(path.trim()).parent().context("kubectl is nowhere")?;
    Ok(directory.display().to_string())
}
