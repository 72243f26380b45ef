//! The `cloud.conf` of the OpenStack cloud controller manager: an ini file in the dialect of Go's `gcfg`.

use std::collections::BTreeMap;
use std::path::Path;

use super::clouds;
use super::given::{Given, Place};
use super::{Config, ConfigError};
use crate::secret::Secret;

pub(super) fn read(file: &Path) -> Result<Config, ConfigError> {
    let text = super::read_file(file)?;
    let name = file.display().to_string();
    let mut global = section(&text, "global").map_err(|reason| ConfigError::Syntax { file: name.clone(), reason })?;
    let mut take = |key: &str| global.remove(key).filter(|value| !value.is_empty());
    let place = Place::CloudConf(name.clone());
    if take("use-clouds").is_some_and(|value| is_true(&value)) {
        let missing = |what: &str| ConfigError::Missing {
            place: place.to_string(),
            what: what.to_owned(),
            hint: " (use-clouds is set)".to_owned(),
        };
        let clouds = take("clouds-file").ok_or_else(|| missing("clouds-file"))?;
        let cloud = take("cloud").ok_or_else(|| missing("cloud"))?;
        return clouds::read(Path::new(&clouds), None, &cloud);
    }
    if take("trust-id").is_some() {
        return Err(place.invalid("trust_id", "is not understood; use an application credential instead"));
    }
    let given = Given {
        auth_url: take("auth-url"),
        username: take("username"),
        user_id: take("user-id"),
        password: take("password").map(Secret::new),
        user_domain_name: take("user-domain-name"),
        user_domain_id: take("user-domain-id"),
        project_name: take("tenant-name"),
        project_id: take("tenant-id"),
        project_domain_name: take("tenant-domain-name"),
        project_domain_id: take("tenant-domain-id"),
        domain_name: take("domain-name"),
        domain_id: take("domain-id"),
        application_credential_id: take("application-credential-id"),
        application_credential_name: take("application-credential-name"),
        application_credential_secret: take("application-credential-secret").map(Secret::new),
        region_name: take("region"),
        interface: take("os-endpoint-type"),
        cacert: take("ca-file"),
        insecure: take("tls-insecure"),
        ..Given::default()
    };
    Config::from_given(&place, given)
}

fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "true" | "yes" | "on" | "1")
}

/// The values of one section. As in `gcfg`, names know no case, a name alone means true, the last of several wins, values may be
/// quoted in part, and `;` or `#` outside quotes begins a comment.
fn section(text: &str, wanted: &str) -> Result<BTreeMap<String, String>, String> {
    let mut values = BTreeMap::new();
    let mut inside = false;
    let mut lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    while let Some((number, line)) = lines.next() {
        // The line itself is not shown: it may be the password's.
        let wrong = |what: &str| format!("line {}: {what}", number + 1);
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let (header, _) = header.split_once(']').ok_or_else(|| wrong("a section without its `]`"))?;
            inside = header.trim().eq_ignore_ascii_case(wanted);
            continue;
        }
        let (key, mut rest) = match line.split_once('=') {
            Some((key, rest)) => (key.trim(), rest.to_owned()),
            None => (line.split([';', '#']).next().unwrap_or_default().trim(), "true".to_owned()),
        };
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            return Err(wrong("not `name = value`"));
        }
        let value = loop {
            match unquote(&rest) {
                Ok(value) => break value,
                Err(Odd::Continues) => {
                    rest.pop();
                    rest.push_str(lines.next().ok_or_else(|| wrong("the value does not end"))?.1);
                }
                Err(Odd::Quote) => return Err(wrong("a value with a quote that does not close")),
                Err(Odd::Escape) => {
                    return Err(wrong(r#"a value with a backslash before something else than \, ", n or t"#));
                }
            }
        };
        if inside {
            values.insert(key.to_ascii_lowercase(), value);
        }
    }
    Ok(values)
}

enum Odd {
    /// A backslash at the end of the line: the value goes on in the next.
    Continues,
    Quote,
    Escape,
}

fn unquote(raw: &str) -> Result<String, Odd> {
    let mut value = String::new();
    // Up to where the value is more than blanks that would be cut at the end.
    let mut kept = 0;
    let mut quoted = false;
    let mut rest = raw.trim_start().chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => {
                quoted = !quoted;
                kept = value.len();
            }
            '\\' => {
                match rest.next() {
                    None => return Err(Odd::Continues),
                    Some('n') => value.push('\n'),
                    Some('t') => value.push('\t'),
                    Some(c @ ('\\' | '"')) => value.push(c),
                    Some(_) => return Err(Odd::Escape),
                }
                kept = value.len();
            }
            ';' | '#' if !quoted => break,
            c => {
                value.push(c);
                if quoted || !c.is_whitespace() {
                    kept = value.len();
                }
            }
        }
    }
    if quoted {
        return Err(Odd::Quote);
    }
    value.truncate(kept);
    Ok(value)
}
