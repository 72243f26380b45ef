//! Listings of many pages, some of which fail.

use openstack_client::{Kind, Listing};
use serde_json::{Value, json};

use crate::fake::{Cloud, Reply, Seen};

fn ids<T>(listing: &Listing<T>, id: impl Fn(&T) -> &str) -> Vec<String> {
    listing.items.iter().map(|item| id(item).to_owned()).collect()
}

fn server(id: &str) -> Value {
    json!({"id": id, "name": id, "status": "ACTIVE", "addresses": {"net": [{"addr": "10.0.0.7", "version": 4}]}, "created": "2026-01-01T00:00:00Z"})
}

/// Pages of one item each, by marker, with links at this origin.
fn pages(seen: &Seen, collection: &str, of: &[Value]) -> Value {
    let at = seen.line.split_once("marker=").map_or(0, |(_, marker)| marker.parse().unwrap());
    let mut page = json!({collection: [of[at]]});
    if at + 1 < of.len() {
        let path = seen.line.split([' ', '?']).nth(1).unwrap();
        let href = format!("http://{}{path}?marker={}", seen.header("host").unwrap(), at + 1);
        page[format!("{collection}_links")] = json!([{"rel": "previous", "href": "x"}, {"rel": "next", "href": href}]);
    }
    page
}

#[tokio::test]
async fn all_pages_of_every_service_are_read() {
    let cloud = Cloud::start(|seen| {
        let path = seen.line.split([' ', '?']).nth(1).unwrap();
        let collection = match path.rsplit('/').find(|part| *part != "detail").unwrap() {
            "security-groups" => "security_groups",
            other => other,
        };
        let items = ["a", "b", "c"].map(|id| {
            let mut item = server(id);
            item["routes"] = json!([]);
            item["floating_ip_address"] = json!("192.0.2.1");
            item
        });
        Reply::ok(&pages(seen, collection, &items))
    })
    .await;
    let client = cloud.client();
    let expected = ["a", "b", "c"];
    let network = client.network();
    assert_eq!(ids(&network.routers(&[]).await.unwrap(), |item| &item.id), expected);
    assert_eq!(ids(&network.ports(&[]).await.unwrap(), |item| &item.id), expected);
    assert_eq!(ids(&network.networks(&[]).await.unwrap(), |item| &item.id), expected);
    assert_eq!(ids(&network.subnets(&[]).await.unwrap(), |item| &item.id), expected);
    assert_eq!(ids(&network.security_groups(&[]).await.unwrap(), |item| &item.id), expected);
    assert_eq!(ids(&network.floating_ips(&[]).await.unwrap(), |item| &item.id), expected);
    assert_eq!(ids(&client.load_balancers().list(&[]).await.unwrap(), |item| &item.id), expected);
    assert_eq!(ids(&client.load_balancers().listeners(&[]).await.unwrap(), |item| &item.id), expected);
    assert_eq!(ids(&client.load_balancers().pools(&[]).await.unwrap(), |item| &item.id), expected);
    assert_eq!(ids(&client.block_storage().volumes(&[]).await.unwrap(), |item| &item.id), expected);
    assert_eq!(ids(&client.block_storage().snapshots(&[]).await.unwrap(), |item| &item.id), expected);
    assert_eq!(ids(&client.block_storage().backups(&[]).await.unwrap(), |item| &item.id), expected);
    let before = cloud.seen().len();
    let servers = client.compute().servers().await.unwrap();
    assert_eq!(ids(&servers, |item| &item.id), expected);
    assert!(servers.is_complete());
    assert_eq!(cloud.seen().len() - before, 4, "three pages, and the first again for cells that went down meanwhile");
    assert_eq!(cloud.logins(), 1);
}

#[tokio::test]
async fn a_second_page_that_fails_makes_the_listing_incomplete() {
    let cloud = Cloud::start(|seen| {
        if seen.line.contains("marker=") {
            return Reply::json(400, &json!({"badRequest": {"code": 400, "message": "marker [b] not found"}}));
        }
        Reply::ok(&pages(seen, "servers", &[server("a"), server("b")]))
    })
    .await;
    let listing = cloud.client().compute().servers().await.unwrap();
    assert_eq!(ids(&listing, |item| &item.id), ["a"]);
    assert!(!listing.is_complete());
    let error = listing.complete().unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.message().starts_with("the listing is incomplete: marker [b] not found"), "{error}");
}

#[tokio::test]
async fn a_link_to_another_origin_gets_neither_a_request_nor_the_token() {
    let thief = Cloud::start(|_| Reply::ok(&json!({"routers": []}))).await;
    let link = format!("{}/v2.0/routers?marker=a", thief.url());
    let cloud = Cloud::start(move |_| {
        Reply::ok(&json!({"routers": [{"id": "a", "routes": []}], "routers_links": [{"rel": "next", "href": link}]}))
    })
    .await;
    let listing = cloud.client().network().routers(&[]).await.unwrap();
    assert!(!listing.is_complete() && listing.gaps[0].message().contains("another origin"), "{:?}", listing.gaps);
    assert_eq!(thief.seen().len() + thief.logins(), 0);
}

#[tokio::test]
async fn an_empty_listing_is_complete_and_for_the_caller_to_doubt() {
    let cloud = Cloud::start(|_| Reply::ok(&json!({"servers": []}))).await;
    let listing = cloud.client().compute().servers().await.unwrap();
    assert!(listing.is_complete() && listing.items.is_empty());
}

#[tokio::test]
async fn servers_of_a_cell_that_is_down_are_known_to_exist_and_the_listing_to_be_incomplete() {
    let cloud = Cloud::start(|_| {
        let down =
            json!({"id": "b", "status": "UNKNOWN", "tenant_id": "p1", "created": "2026-01-01T00:00:00Z", "links": []});
        Reply::ok(&json!({"servers": [server("a"), down]}))
    })
    .await;
    let listing = cloud.client().compute().servers().await.unwrap();
    assert_eq!(ids(&listing, |item| &item.id), ["a", "b"]);
    assert!(listing.items[1].is_unknown() && listing.items[1].ips().next().is_none());
    assert_eq!(listing.gaps[0].message(), "nova knows nothing about server b now: a cell may be down");
    assert_eq!(
        cloud.seen()[0].line,
        "GET /compute/v2.1/servers/detail",
        "a filter or a limit would hide cells that are down"
    );
    assert_eq!(cloud.seen()[0].header("openstack-api-version"), Some("compute 2.69"));
}

#[tokio::test]
async fn a_cell_that_goes_down_between_two_pages_is_noticed() {
    let mut asked = 0;
    let cloud = Cloud::start(move |seen| {
        asked += 1;
        // The second page leaves out without a word what the first one would show as unknown.
        match asked {
            1 | 2 => Reply::ok(&pages(seen, "servers", &[server("a"), server("b")])),
            _ => Reply::ok(&json!({"servers": [server("a"), {"id": "c", "status": "UNKNOWN"}]})),
        }
    })
    .await;
    let listing = cloud.client().compute().servers().await.unwrap();
    assert_eq!(ids(&listing, |item| &item.id), ["a", "b", "c"]);
    assert!(!listing.is_complete());
}

#[tokio::test]
async fn server_groups_are_read_to_their_end_though_nova_gives_no_links() {
    let cloud = Cloud::start(|seen| {
        let at: usize = seen.line.split_once("offset=").map_or(0, |(_, offset)| offset.parse().unwrap());
        let groups: Vec<_> =
            (at..5.min(at + 2)).map(|n| json!({"id": format!("g{n}"), "name": "g", "members": ["s1"]})).collect();
        Reply::ok(&json!({"server_groups": groups}))
    })
    .await;
    let listing = cloud.client().compute().server_groups().await.unwrap();
    assert_eq!(ids(&listing, |item| &item.id), ["g0", "g1", "g2", "g3", "g4"]);
    assert!(listing.is_complete());
}

#[tokio::test]
async fn things_with_little_or_odd_in_them_are_read_or_reported_and_never_a_panic() {
    let cloud = Cloud::start(|seen| {
        if seen.line.contains("ports") {
            return Reply::ok(&json!({"ports": [
            {"id": "bare"},
            {"id": "nulls", "name": null, "fixed_ips": null, "security_groups": null, "device_id": null, "tags": null, "tenant_id": "p1", "project_id": "p1"},
            {"id": "odd", "fixed_ips": [{"ip_address": "not an address"}]},
            {"name": "nameless"},
        ]}));
        }
        // Without the extension, a router has no routes to show: that is not a router without routes.
        Reply::ok(&json!({"routers": [{"id": "r1"}]}))
    })
    .await;
    let client = cloud.client();
    let ports = client.network().ports(&[]).await.unwrap();
    assert_eq!(ids(&ports, |item| &item.id), ["bare", "nulls"]);
    assert_eq!(ports.gaps.len(), 2);
    assert_eq!(ports.items[0].security_groups, None);
    assert!(!client.network().routers(&[]).await.unwrap().is_complete());
}
