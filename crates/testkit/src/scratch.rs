//! Directories that go when they are no longer needed, whatever ended their user.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};

/// Set to keep every directory, also of tests that pass.
const KEEP: &str = "GROUNDCREW_KEEP";

/// The part of a path that `sun_path` leaves to the names in a scratch directory.
const LONGEST_DIR: usize = 80;

/// A directory of one fixture. Removed when dropped, unless the dropping thread panics.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new, empty directory with `name` in its name.
    pub fn new(name: &str) -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let root = root()?;
        let path = root.join(format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in it.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() && std::env::var_os(KEEP).is_none() && !HELD.load(Ordering::Relaxed) {
            // What could not be removed now is the sweeper's.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

static HELD: AtomicBool = AtomicBool::new(false);

/// The logs of a program that returns errors, as a test does not: they stay until the process ends, so that it can
/// still decide to keep them when the fixtures are gone.
#[derive(Debug)]
pub struct HeldLogs(&'static Path);

impl HeldLogs {
    /// To be called before the first fixture is made.
    pub fn hold() -> Result<Self> {
        HELD.store(true, Ordering::Relaxed);
        root().map(Self)
    }

    /// Where they are.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0
    }

    /// Leaves them there after the end.
    pub fn keep(&self) -> Result<()> {
        mark_kept(self.0).with_context(|| format!("keep {}", self.0.display()))
    }
}

/// The directory of this process, with its sweeper.
fn root() -> Result<&'static Path> {
    static ROOT: OnceLock<(PathBuf, ChildStdin)> = OnceLock::new();
    static STARTING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one_at_a_time = STARTING.lock();
    if ROOT.get().is_none() {
        let path = new_directory(&std::env::temp_dir())?;
        keep_after_panic(&path);
        let pipe = sweeper(&path)?;
        let _ = ROOT.set((path, pipe));
    }
    ROOT.get().map(|(path, _)| path.as_path()).context("scratch directory")
}

fn new_directory(parent: &Path) -> Result<PathBuf> {
    // A number may be taken: by logs that were kept, or from another PID namespace that shares the directory.
    for attempt in 0..1000 {
        let path = parent.join(format!("groundcrew-{}-{attempt}", std::process::id()));
        anyhow::ensure!(
            path.as_os_str().len() <= LONGEST_DIR,
            "{} is too long for a unix socket in it: set TMPDIR to a shorter path",
            path.display()
        );
        match fs::create_dir(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path.clone()).with_context(|| format!("create {}", path.display())),
        }
    }
    bail!("no free name in {}", parent.display())
}

/// Removes `path` once this process has ended. No destructor can do that: statics have none, and a test run is ended
/// by SIGKILL or Ctrl-C as well. The kernel closes the pipe in every case.
fn sweeper(path: &Path) -> Result<ChildStdin> {
    // Children get their parent-death signal at the same moment and may still write: hence the second try.
    let script = r#"
        cat >/dev/null
        if [ -e "$0/keep" ]; then rm -rf "$0"/*/etcd "$0"/*/mysql "$0/keep"; rmdir "$0" 2>/dev/null; exit; fi
        rm -rf "$0" || { sleep 1; rm -rf "$0"; }"#;
    let mut sweeper = Command::new("sh")
        .args(["-c", script])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Out of the way of a Ctrl-C that is meant for the tests.
        .process_group(0)
        .spawn()
        .context("start sh")?;
    sweeper.stdin.take().context("stdin of the sweeper")
}

/// Fixtures shared by a whole test binary are never dropped: a panic marks all that is there as worth keeping.
fn keep_after_panic(root: &Path) {
    if std::env::var_os(KEEP).is_some() {
        let _ = mark_kept(root);
    }
    let before = std::panic::take_hook();
    let root = root.to_owned();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        #[allow(clippy::print_stderr, reason = "whoever reads of the failed test wants to know")]
        if mark_kept(&root).is_ok() {
            eprintln!("the logs are kept in {}", root.display());
        }
    }));
}

/// The sweeper looks for this file.
fn mark_kept(root: &Path) -> std::io::Result<()> {
    fs::write(root.join("keep"), "")
}
