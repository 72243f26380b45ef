//! What the pages tell people to install.

use std::fs;
use std::path::Path;

use crate::helm::{KUBE_VERSION, REPOSITORY, helm, objects, succeeded, values};

/// The words of a line, as a shell has them.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn every_installation_that_a_page_shows_renders() {
    let mut shown = 0;
    for page in ["docs/install.md", "docs/net-probe.md", "charts/groundcrew/README.md"] {
        let text = fs::read_to_string(Path::new(REPOSITORY).join(page)).unwrap().replace("\\\n", " ");
        let lines = text.lines().filter(|line| line.starts_with("helm install ") || line.starts_with("helm upgrade "));
        // An upgrade adds to what the page has installed, or to anything.
        let mut set = vec!["--values".to_owned(), values("all").to_str().unwrap().to_owned()];
        for line in lines {
            let (mut words, mut what) = (words(line).into_iter().skip(1), Vec::new());
            if words.next().as_deref() == Some("install") {
                set.clear();
            }
            while let Some(word) = words.next() {
                match &*word {
                    "--set" => set.extend([word, words.next().unwrap()]),
                    "--namespace" | "--kubeconfig" => drop(words.next()),
                    "--create-namespace" | "--reset-then-reuse-values" => {}
                    _ => what.push(word),
                }
            }
            assert!(what.len() == 2 && what[1] == "charts/groundcrew", "{page}: {what:?}");
            let mut helm = helm();
            helm.current_dir(REPOSITORY).arg("template").args(what).args(["--kube-version", KUBE_VERSION]).args(&set);
            assert!(!objects(&succeeded(helm.output().unwrap())).is_empty(), "{page}: {line}");
            shown += 1;
        }
    }
    assert!(shown > 7, "only {shown} were found");
}
