//! What was written to Kubernetes, as the API server itself counts it.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;
use kube::Client;

/// Requests that write, by verb and resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct Writes(BTreeMap<String, u64>);

/// The API server writes these itself, or they are the Leases of the controller and of the API server.
const OF_OTHERS: [&str; 8] = [
    "leases",
    "flowschemas",
    "prioritylevelconfigurations",
    "ipaddresses",
    "servicecidrs",
    "apiservices",
    "customresourcedefinitions",
    "subjectaccessreviews",
];

impl Writes {
    /// All of them since the API server started.
    pub(crate) async fn read(client: &Client) -> Result<Self> {
        let mut writes = BTreeMap::new();
        for Requests { verb, resource, subresource, count } in requests(client).await? {
            let writing = matches!(&*verb, "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE" | "DELETECOLLECTION");
            if writing && !OF_OTHERS.contains(&&*resource) {
                let slash = if subresource.is_empty() { "" } else { "/" };
                *writes.entry(format!("{verb} {resource}{slash}{subresource}")).or_default() += count;
            }
        }
        Ok(Self(writes))
    }

    /// What came since then.
    pub(crate) async fn since(client: &Client, before: &Self) -> Result<Self> {
        let mut now = Self::read(client).await?;
        for (what, count) in &mut now.0 {
            *count -= before.0.get(what).copied().unwrap_or_default().min(*count);
        }
        now.0.retain(|_, count| *count > 0);
        Ok(now)
    }

    /// Without these.
    pub(crate) fn without(mut self, what: &[&str]) -> Self {
        self.0.retain(|kind, _| !what.contains(&kind.as_str()));
        self
    }

    /// How many of each kind.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(kind, count)| (kind.as_str(), *count))
    }

    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    pub(crate) fn total(&self) -> f64 {
        self.0.values().sum::<u64>() as f64
    }
}

/// How many lists of this resource the API server has answered; each page is one.
pub(crate) async fn lists(client: &Client, resource: &str) -> Result<usize> {
    let all = requests(client).await?;
    let lists = all.iter().filter(|requests| requests.verb == "LIST" && requests.resource == resource);
    Ok(usize::try_from(lists.map(|requests| requests.count).sum::<u64>())?)
}

struct Requests {
    verb: String,
    resource: String,
    subresource: String,
    count: u64,
}

async fn requests(client: &Client) -> Result<Vec<Requests>> {
    let page = client.request_text(http::Request::get("/metrics").body(Vec::new())?).await?;
    let lines = page.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")?.rsplit_once("} "));
    let requests = lines.map(|(labels, count)| {
        let label = |name: &str| {
            // With what comes before it: "subresource" ends as "resource" does.
            let found = format!(",{labels}").split_once(&format!(",{name}=\""))?.1.split('"').next()?.to_owned();
            Some(found)
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let count = count.parse::<f64>()? as u64;
        let label = |name| label(name).unwrap_or_default();
        Ok(Requests { verb: label("verb"), resource: label("resource"), subresource: label("subresource"), count })
    });
    requests.collect()
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.0.iter().map(|(what, count)| format!("{count} {what}")).collect();
        f.write_str(&words.join(", "))
    }
}
