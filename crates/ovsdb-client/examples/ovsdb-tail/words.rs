//! Says what changed, in the words of somebody who looks at it.

use ovsdb_client::{Atom, Changed, Rows, Uuid, Value};

use super::tables::{AnyRow, AnyTables, elements};

/// One line for each row that differs.
pub fn describe(changed: &Changed<AnyTables>) -> Vec<String> {
    let (before, after) = (&*changed.before, &*changed.after);
    let uuids: std::collections::BTreeSet<Uuid> = match &changed.rows {
        Rows::Some(rows) => rows.iter().map(|row| row.uuid).collect(),
        Rows::Everything => before.rows.keys().chain(after.rows.keys()).copied().collect(),
    };
    uuids.into_iter().filter_map(|uuid| line(uuid, before, after)).collect()
}

fn line(uuid: Uuid, before: &AnyTables, after: &AnyTables) -> Option<String> {
    match (before.rows.get(&uuid), after.rows.get(&uuid)) {
        (None, None) => None,
        (Some(old), None) => Some(format!("- {} {}", old.table, label(uuid, old))),
        (None, Some(new)) => {
            let columns: Vec<_> = new
                .columns
                .iter()
                .filter(|(name, value)| *name != "name" && !is_blank(value))
                .map(|(name, value)| format!("\n    {name}: {}", show(value, after)))
                .collect();
            Some(format!("+ {} {}{}", new.table, label(uuid, new), columns.concat()))
        }
        (Some(old), Some(new)) => {
            let names: std::collections::BTreeSet<_> = old.columns.keys().chain(new.columns.keys()).collect();
            let differences: Vec<_> = names
                .into_iter()
                .filter(|name| old.columns.get(*name) != new.columns.get(*name))
                .map(|name| {
                    format!("\n    {name}: {}", difference(old.columns.get(name), new.columns.get(name), before, after))
                })
                .collect();
            (!differences.is_empty()).then(|| format!("~ {} {}{}", new.table, label(uuid, new), differences.concat()))
        }
    }
}

fn difference(old: Option<&Value>, new: Option<&Value>, before: &AnyTables, after: &AnyTables) -> String {
    match (old, new) {
        (old @ (None | Some(Value::Map(_))), Some(Value::Map(new))) => {
            let old = if let Some(Value::Map(old)) = old { old.as_slice() } else { &[] };
            let value =
                |pairs: &[(Atom, Atom)], key: &Atom| pairs.iter().find(|(own, _)| own == key).map(|(_, v)| v.clone());
            let gone = old.iter().filter(|(key, _)| value(new, key).is_none()).map(|(key, _)| format!("-{key}"));
            let rest = new.iter().filter_map(|(key, now)| match value(old, key) {
                None => Some(format!("+{key}={now}")),
                Some(was) if was != *now => Some(format!("{key}={was} -> {now}")),
                Some(_) => None,
            });
            gone.chain(rest).collect::<Vec<_>>().join(", ")
        }
        (old @ (None | Some(Value::Set(_))), new @ Some(Value::Set(_))) | (old @ Some(Value::Set(_)), new) => {
            let (old, new) =
                (old.cloned().map(elements).unwrap_or_default(), new.cloned().map(elements).unwrap_or_default());
            let gone = old.iter().filter(|atom| !new.contains(atom)).map(|atom| format!("-{}", name(atom, before)));
            let come = new.iter().filter(|atom| !old.contains(atom)).map(|atom| format!("+{}", name(atom, after)));
            gone.chain(come).collect::<Vec<_>>().join(", ")
        }
        (old, new) => {
            let text =
                |value: Option<&Value>, tables| value.map_or_else(|| "nothing".into(), |value| show(value, tables));
            format!("{} -> {}", text(old, before), text(new, after))
        }
    }
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Atom(atom) => {
            matches!(atom, Atom::String(text) if text.is_empty()) || matches!(atom, Atom::Boolean(false))
        }
        Value::Set(atoms) => atoms.is_empty(),
        Value::Map(pairs) => pairs.is_empty(),
        Value::StrMap(map) => map.is_empty(),
    }
}

fn show(value: &Value, tables: &AnyTables) -> String {
    match value {
        Value::Atom(atom) => name(atom, tables),
        Value::Set(atoms) => {
            format!("[{}]", atoms.iter().map(|atom| name(atom, tables)).collect::<Vec<_>>().join(", "))
        }
        Value::Map(_) | Value::StrMap(_) => value.to_string(),
    }
}

/// A reference by the name of what it refers to.
fn name(atom: &Atom, tables: &AnyTables) -> String {
    match atom {
        Atom::Uuid(uuid) => tables.rows.get(uuid).map_or_else(|| uuid.to_string(), |row| label(*uuid, row)),
        other => other.to_string(),
    }
}

fn label(uuid: Uuid, row: &AnyRow) -> String {
    match row.columns.get("name") {
        Some(Value::Atom(Atom::String(name))) if !name.is_empty() => name.clone(),
        _ => uuid.to_string().chars().take(8).collect(),
    }
}
