use std::path::Path;

/// Copies a directory with everything in it.
pub(crate) fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    // etcd refuses a data directory that others may read.
    std::fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o700))
}
