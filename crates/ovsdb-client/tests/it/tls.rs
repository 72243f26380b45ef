//! `ssl:` endpoints: who is let in, who is believed.

use std::process::Command;
use std::sync::Arc;

use groundcrew_testkit::ovn::{Northbound as Server, ServerName};
use groundcrew_testkit::pki::Authority;
use groundcrew_testkit::process::Process;
use ovsdb_client::{Cause, ConnectError, Replica, State, Tls, Uuid};

use crate::nb::{Northbound, PATIENCE, config, in_time, new_lb, soon};

async fn error_with(server: &Server, tls: Option<Tls>) -> Arc<ConnectError> {
    let config = config(&server.ssl(0).unwrap()).handshake_timeout(PATIENCE);
    let replica = Replica::<Northbound>::open(match tls {
        Some(tls) => config.tls(tls),
        None => config,
    });
    let mut states = replica.client().watch_state();
    let state = soon(states.wait_for(|state| matches!(state, State::Disconnected { .. }))).await.unwrap().clone();
    let State::Disconnected { error } = state else { unreachable!() };
    assert!(error.to_string().starts_with(&server.ssl(0).unwrap()), "{error}");
    error
}

fn trusted(server: &Server) -> Tls {
    let files = server.tls().unwrap();
    Tls::new(&files.authority).identity(&files.client.certificate, &files.client.key)
}

async fn works(server: &Server, tls: Tls) {
    works_at(&server.ssl(0).unwrap(), tls).await;
}

async fn works_at(endpoint: &str, tls: Tls) {
    let replica = Replica::<Northbound>::open(config(endpoint).tls(tls));
    soon(replica.synced()).await;
    let id = Uuid::new_v4();
    replica.client().transact(&[new_lb(id, "a")], in_time()).await.unwrap();
    assert!(replica.snapshot().load_balancers.get(id).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_opens_the_door() {
    let server = Server::standalone_tls(ServerName::Loopback).await.unwrap();
    works(&server, trusted(&server)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_speaks_only_tls_1_2_is_understood() {
    // For its files: the switch that pins the version exists on the command line only.
    let other = Server::standalone_tls(ServerName::Loopback).await.unwrap();
    let files = other.tls().unwrap();
    let dir = groundcrew_testkit::Scratch::new("tls12").unwrap();
    let (database, port) = (dir.path().join("nb.db"), groundcrew_testkit::ReservedPort::new().unwrap());
    let schema = "/usr/share/ovn/ovn-nb.ovsschema";
    let created = Command::new("ovsdb-tool").arg("create").arg(&database).arg(schema).status().unwrap();
    assert!(created.success());
    let mut server = Command::new("ovsdb-server");
    server
        .env("OVS_RUNDIR", dir.path())
        .args(["-vsyslog:off", "--unixctl=none", "--ssl-protocols=TLSv1.2"])
        .arg(format!("--remote=pssl:{}:127.0.0.1", port.number()))
        .arg(format!("--private-key={}", files.server.key.display()))
        .arg(format!("--certificate={}", files.server.certificate.display()))
        .arg(format!("--ca-cert={}", files.authority.display()))
        .arg(&database);
    let _server = Process::spawn("ovsdb-server", &server, dir.path()).unwrap();
    works_at(&format!("ssl:{}", port.address()), trusted(&other)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_ovs_pki_is_believed_only_where_names_are_not_verified() {
    let server = Server::standalone_tls(ServerName::OvsPki).await.unwrap();
    let error = error_with(&server, Some(trusted(&server))).await;
    assert!(matches!(error.cause, Cause::WrongName(_)), "{error}");
    assert!(error.to_string().contains("Tls::any_name"), "{error}");
    works(&server, trusted(&server).any_name()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_authority_is_not_believed_whether_names_are_verified_or_not() {
    let server = Server::standalone_tls(ServerName::Loopback).await.unwrap();
    let dir = groundcrew_testkit::Scratch::new("pki").unwrap();
    let other = Authority::new("somebody-else", dir.path()).unwrap();
    let files = server.tls().unwrap();
    let tls = Tls::new(&other.certificate).identity(&files.client.certificate, &files.client.key);
    for tls in [tls.clone(), tls.any_name()] {
        let error = error_with(&server, Some(tls)).await;
        assert!(matches!(error.cause, Cause::Untrusted(_)), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_the_server_does_not_know_is_turned_away() {
    let server = Server::standalone_tls(ServerName::Loopback).await.unwrap();
    let files = server.tls().unwrap();
    let nobody = Tls::new(&files.authority);
    let stranger = Tls::new(&files.authority).identity(&files.stranger.certificate, &files.stranger.key);
    for tls in [nobody, stranger] {
        let error = error_with(&server, Some(tls)).await;
        // Under TLS 1.3 the server refuses after the handshake, so it is the first read that fails.
        assert!(matches!(error.cause, Cause::Tls(_) | Cause::Frame(_) | Cause::Send(_)), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_ours_that_are_no_certificates_are_named() {
    let server = Server::standalone_tls(ServerName::Loopback).await.unwrap();
    let error = error_with(&server, Some(Tls::new("/nonexistent/ca.pem"))).await;
    assert!(error.to_string().contains("/nonexistent/ca.pem"), "{error}");
    let error = error_with(&server, None).await;
    assert!(matches!(error.cause, Cause::NoTls), "{error}");
}
