//! Tags: lists of what they are on, replaced whole.

use serde_json::{Value, json};

use super::account::{Account, OWNER, resources};
use super::reply::Reply;

impl Account {
    pub(super) fn tag(&self, uuid: &str) -> Option<Value> {
        let mut tag = self.tags.get(uuid)?.clone();
        tag["uuid"] = uuid.into();
        tag["owner"] = json!({ "uuid": OWNER });
        tag["resource_uri"] = format!("/api/2.0/tags/{uuid}/").into();
        let resources = resources(&tag).map(|uuid| {
            let kind = if self.ips.contains_key(uuid) { "ips" } else { "servers" };
            json!({ "uuid": uuid, "res_type": kind, "resource_uri": format!("/api/2.0/{kind}/{uuid}/"), "owner": { "uuid": OWNER } })
        });
        tag["resources"] = resources.collect();
        Some(tag)
    }

    pub(super) fn all_tags(&self) -> Vec<Value> {
        self.tags.keys().filter_map(|uuid| self.tag(uuid)).collect()
    }

    pub(super) fn post_tags(&mut self, body: &Value) -> Reply {
        let Some(wanted) = body["objects"].as_array() else {
            return Reply::invalid("objects", "This field is required");
        };
        let mut made = Vec::new();
        for tag in wanted {
            let tag = match self.checked(tag) {
                Ok(tag) => tag,
                Err(refused) => return refused,
            };
            let uuid = format!("00000000-0000-4000-a000-{:012}", self.number());
            self.tags.insert(uuid.clone(), tag);
            made.extend(self.tag(&uuid));
        }
        Reply::json(201, &json!({ "objects": made }))
    }

    pub(super) fn put_tag(&mut self, uuid: &str, body: &Value) -> Reply {
        if !self.tags.contains_key(uuid) {
            return Reply::not_found(uuid);
        }
        match self.checked(body) {
            Ok(tag) => {
                self.tags.insert(uuid.to_owned(), tag);
                Reply::ok(&self.tag(uuid).unwrap_or_default())
            }
            Err(refused) => refused,
        }
    }

    pub(super) fn delete_tag(&mut self, uuid: &str) -> Reply {
        self.tags.remove(uuid).map_or_else(|| Reply::not_found(uuid), |_| Reply::empty(204))
    }

    fn checked(&self, tag: &Value) -> Result<Value, Reply> {
        let name = tag["name"].as_str().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Reply::invalid("name", "This field is required"))?;
        let mut on = Vec::new();
        for resource in tag["resources"].as_array().into_iter().flatten() {
            // The live API wants objects, whatever the documentation shows.
            let uuid = resource["uuid"].as_str();
            let uuid = uuid.ok_or_else(|| Reply::invalid("resources", "Expected an object with a uuid"))?;
            if !self.ips.contains_key(uuid) && !self.servers.contains_key(uuid) {
                return Err(Reply::invalid("resources", "No such resource"));
            }
            on.push(json!({ "uuid": uuid }));
        }
        let meta = tag.get("meta").filter(|meta| meta.is_object()).cloned().unwrap_or_else(|| json!({}));
        Ok(json!({ "name": name, "meta": meta, "resources": on }))
    }
}
