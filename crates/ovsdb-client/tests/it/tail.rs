//! The example `ovsdb-tail`: a database whose tables are known at run time only, told in words.

#[path = "../../examples/ovsdb-tail/tables.rs"]
mod tables;
#[path = "../../examples/ovsdb-tail/words.rs"]
mod words;

use groundcrew_testkit::ovn::Northbound as Server;
use ovsdb_client::{Changes, Replica};

use crate::nb::{config, soon};
use tables::AnyTables;

/// What one command changes, in words, without what is not about it.
async fn told(changes: &mut Changes<AnyTables>, about: &str) -> String {
    soon(async {
        loop {
            let lines = words::describe(&changes.next().await);
            let lines: Vec<_> = lines.into_iter().filter(|line| line.contains(about)).collect();
            if !lines.is_empty() {
                return lines.join("\n");
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_any_table_are_told_in_words() {
    let server = Server::standalone().await.unwrap();
    let replica = Replica::open_as(config(&server.unix(0)), AnyTables::new("OVN_Northbound", []));
    soon(replica.synced()).await;
    let mut changes = replica.changes();
    soon(changes.next()).await;

    server.nbctl(["lb-add", "web", "192.0.2.1:80", "10.0.0.1:80"]).await.unwrap();
    assert_eq!(
        told(&mut changes, "Load_Balancer").await,
        "+ Load_Balancer web\n    protocol: \"tcp\"\n    vips: {\"192.0.2.1:80\"=\"10.0.0.1:80\"}"
    );
    server.nbctl(["lr-add", "r"]).await.unwrap();
    assert_eq!(told(&mut changes, "Logical_Router").await, "+ Logical_Router r");
    server.nbctl(["lr-lb-add", "r", "web"]).await.unwrap();
    assert_eq!(told(&mut changes, "Logical_Router").await, "~ Logical_Router r\n    load_balancer: +web");
    server
        .nbctl(["set", "load_balancer", "web", "vips:\"192.0.2.1:80\"=\"10.0.0.2:80\"", "external_ids:k=v"])
        .await
        .unwrap();
    assert_eq!(
        told(&mut changes, "Load_Balancer").await,
        "~ Load_Balancer web\n    external_ids: +\"k\"=\"v\"\n    vips: \"192.0.2.1:80\"=\"10.0.0.1:80\" -> \"10.0.0.2:80\""
    );
    server.nbctl(["lb-del", "web"]).await.unwrap();
    let gone = told(&mut changes, "web").await;
    assert!(
        gone.contains("- Load_Balancer web") && gone.contains("~ Logical_Router r\n    load_balancer: -web"),
        "{gone}"
    );
}
