//! Who may ask.

use std::time::Duration;

use anyhow::{Context, bail};
use groundcrew_core::provider::{ErrorKind, Instances};
use groundcrew_openstack_cloud::OpenStack;
use groundcrew_testkit::eventually;
use groundcrew_testkit::openstack::{Method, Service};
use openstack_client::{Auth, Credential, Kind, Secret};
use serde_json::json;

use crate::member::{Member, client};

/// Long enough to be used once on a busy machine.
const LIFE: Duration = Duration::from_secs(45);

#[tokio::test]
async fn an_application_credential_that_expires_is_refused_from_then_on_and_nothing_looks_gone() {
    let member = Member::new("expires").await;
    let server = member.boot("n1").await;
    let user = member.client.session().await.unwrap();
    let path = format!("v3/users/{}/application_credentials", user.user_id());
    let made = eventually("an application credential is made", Duration::from_secs(30), async || {
        let expires = jiff::Timestamp::now() + LIFE;
        let asked = json!({"application_credential": {"name": "cluster", "expires_at": format!("{expires:.6}")}});
        member.project.ask(Service::Identity, Method::POST, &path, Some(&asked)).await?.ok()
    });
    let made = made.await.unwrap();
    let text = |key: &str| made["application_credential"][key].as_str().unwrap().to_owned();
    let auth =
        Auth::ApplicationCredential { credential: Credential::Id(text("id")), secret: Secret::new(text("secret")) };
    let by_credential = client(member.cloud, auth.clone());
    assert_eq!(by_credential.compute().server(&server).await.unwrap().name, "n1");

    let refused = eventually("the credential has expired", LIFE * 2, async || {
        let error = client(member.cloud, auth.clone()).session().await.err().context("it is valid")?;
        if error.kind() == Kind::Unauthorized { Ok(error) } else { bail!("{error}") }
    });
    let refused = refused.await.unwrap();
    assert!(refused.message().contains("refuses application credential"), "{refused}");
    // One that had a token before: that is worth no more than the credential.
    let provider = OpenStack::new(by_credential, Duration::from_secs(30));
    let error = provider.instances().await.unwrap_err();
    assert_eq!((error.kind(), error.response().reason), (ErrorKind::Denied, "CredentialsRefused"), "{error}");
    assert_eq!(provider.instance(&server).await.unwrap_err().kind(), ErrorKind::Denied);
}
