//! Programs that start others and would leave them behind: each is the first of a process namespace, which ends with it.

use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{find, output, through};
use crate::process::bind_to_parent;

/// The same command, which takes everything that it started with it when this process ends or kills it. Only SIGKILL
/// reaches it.
pub(crate) async fn bind_with_children(command: &Command) -> Result<Command> {
    const ALONE: [&str; 4] = ["--pid", "--fork", "--kill-child", "--"];
    const USER: [&str; 3] = ["--user", "--map-root-user", "--"];
    let unshare = find("unshare", "base")?;
    let first = through(unshare.clone(), ALONE, command);
    let may = async |probe: Command| output(probe).await;
    if may(through(unshare.clone(), ALONE, &Command::new("true"))).await.is_ok() {
        return bind_to_parent(&first);
    }
    may(through(unshare.clone(), USER, &through(unshare.clone(), ALONE, &Command::new("true")))).await.context(
        "process namespaces are refused: run the tests as root, or allow them with \
         `sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0` (whichever exists)",
    )?;
    // The parent-death signal is lost on the way into a user namespace: it has to be set inside.
    Ok(through(unshare, USER, &bind_to_parent(&first)?))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;
    use crate::process::Process;
    use crate::{Scratch, eventually};

    #[tokio::test]
    async fn what_a_program_left_running_ends_with_it() {
        const SOON: Duration = Duration::from_mins(1);
        let dir = Scratch::new("pidns").unwrap();
        let file = dir.join("lock");
        let lock = File::create(&file).unwrap();
        let mut parent = Command::new("sh");
        parent.args(["-c", "(flock \"$0\" sleep 1000 &); exec sleep 1000"]).arg(&file);
        let parent = Process::spawn_bound("parent", bind_with_children(&parent).await.unwrap(), dir.path()).unwrap();
        let taken = eventually("the orphan has the lock", SOON, async || match lock.try_lock() {
            Err(_) => Ok(()),
            Ok(()) => Err(lock.unlock().map_or_else(|error| error.to_string(), |()| "it is free".into())),
        });
        taken.await.unwrap();
        drop(parent);
        eventually("the orphan has ended", SOON, async || lock.try_lock()).await.unwrap();
    }
}
