//! Annotations, labels and other names, with what `names.rs` says about each.

use std::fmt::Write;
use std::fs;

use crate::reference::cell;
use crate::repository;

/// Modules of `names.rs` that users meet, with the page's words for them.
const SECTIONS: [(&str, &str); 5] = [
    ("annotation", "Annotations"),
    ("label", "Labels"),
    ("finalizer", "Finalizers"),
    ("class", "Values of `spec.loadBalancerClass`"),
    ("condition", "Conditions"),
];

pub(crate) fn page() -> String {
    let source = fs::read_to_string(repository("crates/api/src/names.rs")).unwrap();
    let mut page = String::from(
        "# Annotations, labels and other names\n\nThose of `kube-dc.com` and `cloudsigma.com` mean what they mean to the \
         controllers that they come from.\n",
    );
    for (module, title) in SECTIONS {
        let begin = source.find(&format!("pub mod {module} {{")).unwrap();
        let body = source[begin..].split("\n}\n").next().unwrap();
        write!(page, "\n## {title}\n\n| name | meaning |\n|---|---|\n").unwrap();
        let mut words = Vec::new();
        for line in body.lines().map(str::trim) {
            if let Some(text) = line.strip_prefix("/// ") {
                words.push(text);
            } else if let Some((_, value)) = line.strip_prefix("pub const ").and_then(|line| line.split_once(" = ")) {
                let value = value.trim_end_matches(';').trim_matches('"');
                writeln!(page, "| `{value}` | {} |", cell(&plain(&words.join(" "), body, &source))).unwrap();
                words.clear();
            } else {
                words.clear();
            }
        }
    }
    page
}

/// Links of the API documentation lead nowhere here: a constant is shown by its value, anything else by its name. That of
/// its own module is meant before a namesake elsewhere.
fn plain(text: &str, module: &str, source: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[`") {
        let (name, after) = after.split_once("`]").unwrap();
        let defined = format!("pub const {name}: &str = ");
        let value = module.lines().chain(source.lines()).find_map(|line| line.trim().strip_prefix(&defined));
        plain.push_str(before);
        write!(plain, "`{}`", value.map_or(name, |value| value.trim_end_matches(';').trim_matches('"'))).unwrap();
        rest = after.strip_prefix('(').and_then(|after| after.split_once(')')).map_or(after, |(_, after)| after);
    }
    plain + rest
}
