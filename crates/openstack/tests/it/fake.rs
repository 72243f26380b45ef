//! The cloud in this process, as the client sees it.

use std::ops::Deref;

use groundcrew_testkit::openstack::fake::Fake;
pub(crate) use groundcrew_testkit::openstack::fake::{PASSWORD, Reply, Seen, catalog};
use openstack_client::{Auth, Client, Config, Credential, Domain, Project, Secret, User};
use tokio::net::TcpListener;

#[derive(Clone)]
pub(crate) struct Cloud(Fake);

impl Deref for Cloud {
    type Target = Fake;

    fn deref(&self) -> &Fake {
        &self.0
    }
}

impl Cloud {
    pub(crate) async fn start(handler: impl FnMut(&Seen) -> Reply + Send + 'static) -> Self {
        Self(Fake::start(handler).await.unwrap())
    }

    pub(crate) async fn bind(
        scheme: &str,
        handler: impl FnMut(&Seen) -> Reply + Send + 'static,
    ) -> (Self, TcpListener) {
        let (fake, listener) = Fake::bind(scheme, handler).await.unwrap();
        (Self(fake), listener)
    }

    /// As a user with the right password.
    pub(crate) fn config(&self) -> Config {
        let domain = || Domain::Id("default".into());
        let auth = Auth::Password {
            user: User::Name("demo".into(), domain()),
            password: Secret::new(PASSWORD),
            project: Project::Name("kluster".into(), domain()),
        };
        self.config_as(auth)
    }

    pub(crate) fn config_as(&self, auth: Auth) -> Config {
        Config::new(&self.url(), auth).unwrap()
    }

    pub(crate) fn credential(secret: &str) -> Auth {
        Auth::ApplicationCredential { credential: Credential::Id("cafe".into()), secret: Secret::new(secret) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.config()).unwrap()
    }
}
