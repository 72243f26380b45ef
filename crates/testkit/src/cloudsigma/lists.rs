//! Lists: pages, filters and fields.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::reply::Reply;

/// What a list has when nobody says how many it should.
const DEFAULT_LIMIT: usize = 20;

pub(super) type Query = BTreeMap<String, String>;

/// `fields` names what a short view has; a detailed one has everything.
pub(super) fn list(objects: Vec<Value>, query: &Query, short: Option<&[&str]>, cut: Option<usize>) -> Reply {
    let number = |name: &str| query.get(name).and_then(|text| text.parse::<usize>().ok());
    let limit = number("limit").unwrap_or(DEFAULT_LIMIT);
    let offset = number("offset").unwrap_or(0);
    let matching: Vec<_> = objects.into_iter().filter(|object| matches(object, query)).collect();
    let total = matching.len();
    let most = if limit == 0 { usize::MAX } else { limit };
    let asked: Option<Vec<&str>> = query.get("fields").map(|fields| fields.split(',').collect());
    let page = matching.into_iter().skip(offset).take(most).take(cut.unwrap_or(usize::MAX));
    let page = page.map(|object| match (&asked, short) {
        (Some(fields), _) => only(&object, fields),
        (None, Some(fields)) => only(&object, fields),
        (None, None) => object,
    });
    let page: Vec<_> = page.collect();
    Reply::ok(&json!({ "meta": { "limit": limit, "offset": offset, "total_count": total }, "objects": page }))
}

/// A comma means "or"; names that are no filter are ignored, as there.
fn matches(object: &Value, query: &Query) -> bool {
    let filters = query.iter().filter(|(name, _)| !matches!(name.as_str(), "limit" | "offset" | "fields"));
    let mut filters = filters.filter(|(name, _)| name.as_str() != "do");
    filters.all(|(name, wanted)| match name.strip_suffix("__contains") {
        Some(name) => object[name].as_str().is_some_and(|text| text.contains(wanted)),
        None if name == "tag" => object["tags"]
            .as_array()
            .is_some_and(|tags| tags.iter().any(|tag| wanted.split(',').any(|uuid| tag["uuid"] == uuid))),
        None if object.get(name).is_none() => true,
        None => wanted.split(',').any(|value| object[name] == value),
    })
}

fn only(object: &Value, fields: &[&str]) -> Value {
    let picked: Map<_, _> =
        fields.iter().filter_map(|field| Some(((*field).to_owned(), object.get(*field)?.clone()))).collect();
    Value::Object(picked)
}
