//! The custom resources, from their definitions.

use std::fmt::Write;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use crate::reference::cell;

pub(crate) fn page() -> String {
    let mut page = String::from(
        "# Custom resources\n\n`groundcrew crds` prints the definitions with all their rules. Fields in bold are required. \
         What is under `status` is written by the controllers.\n",
    );
    for crd in groundcrew_api::crds() {
        let spec = &crd.spec;
        for version in &spec.versions {
            let short: Vec<_> = spec.names.short_names.iter().flatten().map(|name| format!(" or `{name}`")).collect();
            let short = short.concat();
            let (kind, plural) = (&spec.names.kind, &spec.names.plural);
            write!(page, "\n## {kind}\n\n`{}/{}`, {}; `kubectl get {plural}`{short}.\n", spec.group, version.name, {
                if spec.scope == "Namespaced" { "in a namespace" } else { "of the cluster" }
            })
            .unwrap();
            let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).unwrap();
            if let Some(text) = &schema.description {
                write!(page, "\n{}\n", text.trim()).unwrap();
            }
            page.push_str("\n| field | type | what |\n|---|---|---|\n");
            fields(&mut page, "", schema);
        }
    }
    page
}

fn fields(page: &mut String, prefix: &str, schema: &JSONSchemaProps) {
    let required = schema.required.clone().unwrap_or_default();
    for (name, field) in schema.properties.iter().flatten() {
        if prefix.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        let path = format!("{prefix}{name}");
        let shown = if required.contains(name) { format!("**`{path}`**") } else { format!("`{path}`") };
        let text = cell(field.description.as_deref().unwrap_or_default());
        let default = field.default.as_ref().map(|value| format!(" Default: `{}`.", value.0)).unwrap_or_default();
        writeln!(page, "| {shown} | {} | {text}{default} |", kind(field)).unwrap();
        // Those of Kubernetes itself are known.
        if name == "conditions" {
            continue;
        }
        fields(page, &format!("{path}."), field);
        if let Some(JSONSchemaPropsOrArray::Schema(item)) = &field.items {
            fields(page, &format!("{path}[]."), item);
        }
    }
}

fn kind(schema: &JSONSchemaProps) -> String {
    let values: Vec<_> = schema.enum_.iter().flatten().map(|value| value.0.to_string()).collect();
    if !values.is_empty() {
        return values.join(", ");
    }
    let of = |inner: &JSONSchemaProps| inner.type_.clone().unwrap_or_else(|| "any".into());
    match (&schema.items, &schema.additional_properties) {
        (Some(JSONSchemaPropsOrArray::Schema(item)), _) => format!("list of {}", of(item)),
        (_, Some(JSONSchemaPropsOrBool::Schema(item))) => format!("map of {}", of(item)),
        _ => of(schema),
    }
}
