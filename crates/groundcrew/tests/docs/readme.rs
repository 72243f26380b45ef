//! What the README and the page about testing repeat from elsewhere.

use std::fs;

use crate::repository;

/// Names and descriptions, as `make help` has them.
pub(crate) fn targets() -> Vec<(String, String)> {
    let makefile = fs::read_to_string(repository("Makefile")).unwrap();
    let target = |line: &str| {
        let (rule, about) = line.split_once(" ## ")?;
        let (name, _) = rule.split_once(':')?;
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        plain.then(|| (name.to_owned(), about.to_owned()))
    };
    let targets: Vec<_> = makefile.lines().filter_map(target).collect();
    assert!(targets.len() > 20, "{targets:?}");
    targets
}

#[test]
fn the_readme_lists_the_targets_of_the_makefile() {
    let (path, begin, end) = (repository("README.md"), "$ make help\n", "```");
    let readme = fs::read_to_string(&path).unwrap();
    let (head, rest) = readme.split_once(begin).unwrap();
    let (listed, tail) = rest.split_once(end).unwrap();
    let wanted: Vec<_> = targets().iter().map(|(name, about)| format!("  make {name:<15} {about}\n")).collect();
    let wanted = wanted.concat();
    if std::env::var_os("GROUNDCREW_BLESS").is_some() {
        return fs::write(path, format!("{head}{begin}{wanted}{end}{tail}")).unwrap();
    }
    assert_eq!(listed, wanted, "README.md does not have what `make help` prints");
}

/// What CI leaves to people is said where they read about testing.
#[test]
fn the_page_about_testing_tells_what_ci_does_not_run() {
    let script = fs::read_to_string(repository(".ci/run")).unwrap();
    let page = fs::read_to_string(repository("docs/testing.md")).unwrap();
    let table = page.split("## What CI does not run\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    for (target, _) in targets() {
        let checks = target.starts_with("e2e")
            || target.ends_with("test")
            || ["advisories", "browser", "docs", "image", "lint", "soak"].contains(&&*target);
        let by_ci = script.lines().any(|line| line == format!("make {target}"));
        let listed = table.contains(&format!("| `make {target}` |"));
        assert_eq!(listed, checks && !by_ci, "make {target}");
    }
}
