//! Links between the documents, and from them into the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::repository;

/// Every document that people read.
pub(crate) fn documents() -> Vec<PathBuf> {
    let mut found = vec![repository("README.md")];
    let mut folders = vec![repository("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "md") {
                found.push(entry);
            }
        }
    }
    found
}

/// Targets of the links of a page, without those inside code.
fn links(page: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
            continue;
        }
        if code || line.starts_with("    ") {
            continue;
        }
        let spoken: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for (at, _) in spoken.match_indices("](") {
            if let Some((target, _)) = spoken[at + 2..].split_once(')') {
                links.push(target.to_owned());
            }
        }
    }
    links
}

/// What a heading is called in an address, as GitHub and mdBook do it.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let slug = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        title
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                _ => None,
            })
            .collect::<String>()
    };
    headings.map(slug).collect()
}

#[test]
fn no_link_leads_nowhere() {
    let mut broken = Vec::new();
    for path in documents() {
        let page = fs::read_to_string(&path).unwrap();
        for link in links(&page) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap_or(Path::new("")).join(file) };
            let there = target.exists()
                && (anchor.is_empty() || anchors(&fs::read_to_string(&target).unwrap_or_default()).contains(anchor));
            if !there {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The book has the pages of `docs` and nothing else: what is elsewhere is named by its path.
#[test]
fn no_link_leaves_the_book() {
    let book = repository("docs").canonicalize().unwrap();
    let mut leaving = Vec::new();
    for path in documents().into_iter().filter(|path| !path.ends_with("README.md")) {
        for link in links(&fs::read_to_string(&path).unwrap()) {
            let file = link.split('#').next().unwrap_or_default();
            if link.contains("://") || link.starts_with("mailto:") || file.is_empty() {
                continue;
            }
            let target = path.parent().unwrap_or(Path::new("")).join(file).canonicalize();
            if target.is_ok_and(|target| !target.starts_with(&book)) {
                leaving.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(leaving.is_empty(), "{leaving:#?}");
}

#[test]
fn every_page_can_be_found() {
    let documents = documents();
    let linked: BTreeSet<_> = documents
        .iter()
        .flat_map(|path| {
            let folder = path.parent().unwrap_or(Path::new(""));
            let files = links(&fs::read_to_string(path).unwrap()).into_iter();
            files.filter_map(|link| folder.join(link.split('#').next()?).canonicalize().ok()).collect::<Vec<_>>()
        })
        .collect();
    let pages = documents.iter().filter(|path| !path.ends_with("SUMMARY.md") && !path.ends_with("README.md"));
    let lost: Vec<_> = pages.filter(|page| !linked.contains(&page.canonicalize().unwrap())).collect();
    assert!(lost.is_empty(), "no page has a link to {lost:#?}");
}
