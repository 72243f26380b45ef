//! Load balancers as a Service controller writes them, and what it reads of them.

use std::sync::Arc;

use ovsdb_client::{Op, Row, Set, StrMap, Uuid, Value};

ovsdb_client::table! {
    pub(crate) struct LoadBalancer = "Load_Balancer" {
        pub(crate) name: Arc<str>,
        pub(crate) vips: StrMap,
        pub(crate) protocol: Option<Box<str>>,
        pub(crate) options: StrMap,
        pub(crate) external_ids: StrMap,
        pub(crate) health_check: Set<Uuid>,
        pub(crate) ip_port_mappings: StrMap,
        pub(crate) selection_fields: Set<Box<str>>,
    }
    indexes LoadBalancersBy {
        name: Arc<str> = |row| Some(row.name.clone()),
        owner: Arc<str> = |row| row.external_ids.get("groundcrew.dev/service").map(Arc::from),
    }
}

ovsdb_client::database! {
    pub(crate) struct Northbound = "OVN_Northbound" {
        pub(crate) load_balancers: LoadBalancer,
    }
}

pub(crate) fn columns() -> Vec<&'static str> {
    LoadBalancer::COLUMNS.iter().map(|column| column.name).collect()
}

pub(crate) fn owner(n: usize) -> String {
    format!("project-{}/service-{n}", n % 100)
}

pub(crate) fn insert(n: usize) -> Op {
    let (high, low) = (n / 250, n % 250);
    let backends = |port| {
        let backend = |pod: usize| format!("10.{}.{}.{}:{port}", pod, high % 250, low + 1);
        [backend(1), backend(2), backend(3)].join(",")
    };
    let vip = format!("198.51.{}.{}", high % 250, low + 1);
    Op::insert(LoadBalancer::TABLE)
        .uuid(Uuid::new_v4())
        .set("name", format!("groundcrew/{}/tcp", owner(n)))
        .set("protocol", Some("tcp"))
        .set("vips", Value::map([(format!("{vip}:80"), backends(31080)), (format!("{vip}:443"), backends(31443))]))
        .set("options", Value::map([("reject", "true"), ("hairpin_snat_ip", "169.254.0.1"), ("affinity_timeout", "0")]))
        .set(
            "external_ids",
            Value::map([
                ("groundcrew.dev/cluster", "3f0c1f3a-0a54-4f6b-8d38-0a4d9d2ad6c5".to_owned()),
                ("groundcrew.dev/service", owner(n)),
                ("groundcrew.dev/uid", Uuid::new_v4().to_string()),
                ("groundcrew.dev/eip", format!("slb-service-{n}-7c1a9f")),
                ("groundcrew.dev/generation", (n % 7).to_string()),
            ]),
        )
        .into()
}
