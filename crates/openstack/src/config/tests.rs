use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// Files that go with the test.
struct Files(PathBuf);

impl Files {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("openstack-config-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let place = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&place).unwrap();
        Self(place)
    }

    fn put(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let file = self.0.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        file
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn env(vars: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let vars: BTreeMap<_, _> = vars.iter().copied().collect();
    env::read(&|name| vars.get(name).map(|value| (*value).to_owned()))
}

const PASSWORD: [(&str, &str); 6] = [
    ("OS_AUTH_URL", "https://keystone:5000/v3/"),
    ("OS_USERNAME", "demo"),
    ("OS_PASSWORD", "hunter2-hunter2"),
    ("OS_USER_DOMAIN_NAME", "Default"),
    ("OS_PROJECT_NAME", "kluster"),
    ("OS_REGION_NAME", "lab"),
];

#[test]
fn the_variables_of_an_openrc_are_a_configuration() {
    let config = env(&PASSWORD).unwrap();
    assert_eq!(config.auth_url.as_str(), "https://keystone:5000/v3");
    assert_eq!(config.region.as_deref(), Some("lab"));
    let Auth::Password { user, password, project } = &config.auth else { panic!("{config:?}") };
    assert_eq!(*user, User::Name("demo".into(), Domain::Name("Default".into())));
    assert_eq!(password.expose(), "hunter2-hunter2");
    assert_eq!(
        *project,
        Project::Name("kluster".into(), Domain::Name("Default".into())),
        "the user's domain, as gophercloud has it"
    );
}

#[test]
fn each_missing_variable_is_named() {
    for (absent, named) in [
        ("OS_USERNAME", "environment: OS_USERNAME or OS_USER_ID is missing"),
        ("OS_PASSWORD", "environment: OS_PASSWORD is missing"),
        ("OS_USER_DOMAIN_NAME", "environment: OS_USER_DOMAIN_NAME or OS_USER_DOMAIN_ID is missing"),
        ("OS_PROJECT_NAME", "environment: OS_PROJECT_ID or OS_PROJECT_NAME is missing"),
    ] {
        let rest: Vec<_> = PASSWORD.into_iter().filter(|(name, _)| *name != absent).collect();
        assert_eq!(env(&rest).unwrap_err().to_string(), named);
    }
    assert_eq!(env(&[]).unwrap_err(), ConfigError::Nothing);
}

#[test]
fn an_application_credential_needs_no_project() {
    let config = env(&[
        ("OS_AUTH_URL", "http://keystone/identity"),
        ("OS_AUTH_TYPE", "v3applicationcredential"),
        ("OS_APPLICATION_CREDENTIAL_ID", "cafe"),
        ("OS_APPLICATION_CREDENTIAL_SECRET", "s3cr3t"),
    ])
    .unwrap();
    assert_eq!(config.auth_url.as_str(), "http://keystone/identity/v3");
    assert!(matches!(&config.auth, Auth::ApplicationCredential { credential: Credential::Id(id), .. } if id == "cafe"));
    let missing = env(&[("OS_AUTH_URL", "http://keystone"), ("OS_APPLICATION_CREDENTIAL_ID", "cafe")]).unwrap_err();
    assert_eq!(missing.to_string(), "environment: OS_APPLICATION_CREDENTIAL_SECRET is missing");
    let by_name = env(&[
        ("OS_AUTH_URL", "http://keystone"),
        ("OS_APPLICATION_CREDENTIAL_NAME", "ours"),
        ("OS_APPLICATION_CREDENTIAL_SECRET", "s3cr3t"),
    ]);
    assert_eq!(by_name.unwrap_err().to_string(), "environment: OS_USERNAME or OS_USER_ID is missing");
}

#[test]
fn what_cannot_be_used_is_refused_with_a_way_out() {
    for (name, value, said) in [
        (
            "OS_INSECURE",
            "true",
            "environment: OS_VERIFY turns the check of certificates off, which is refused; name the cloud's CA in OS_CACERT",
        ),
        ("OS_INTERFACE", "secret", "environment: OS_INTERFACE must be public, internal or admin"),
        (
            "OS_AUTH_TYPE",
            "v3oidc",
            "environment: OS_AUTH_TYPE is v3oidc; only password and v3applicationcredential are understood",
        ),
        ("OS_AUTH_URL", "keystone", "environment: OS_AUTH_URL is no URL: relative URL without a base"),
        (
            "OS_AUTH_URL",
            "ftp://keystone",
            "environment: OS_AUTH_URL must begin with https:// or http:// and name a host",
        ),
        (
            "OS_AUTH_URL",
            "https://demo:hunter2-hunter2@keystone",
            "environment: OS_AUTH_URL must not carry a user or a password; they have places of their own",
        ),
    ] {
        let mut vars: Vec<_> = PASSWORD.into_iter().filter(|(other, _)| *other != name).collect();
        vars.push((name, value));
        assert_eq!(env(&vars).unwrap_err().to_string(), said);
    }
}

const CLOUDS: &str = "
clouds:
  lab:
    profile: vendor
    auth_type: v3password
    auth:
      auth_url: https://keystone.lab:5000
      username: demo
      user_domain_id: default
      project_id: 4f3e
      tenant_id: old
    region_name: lab
    interface: internal
    cacert: /etc/ssl/lab.pem
    volume_api_version: 3
    networks: [{name: outside, routes_externally: true}]
  other:
    auth: {auth_url: 'https://keystone.other'}
";

#[test]
fn a_cloud_and_its_secrets_are_joined_from_two_files() {
    let files = Files::new();
    let clouds = files.put("clouds.yaml", CLOUDS);
    files.put("secure.yaml", "clouds:\n  lab:\n    auth:\n      password: 0123456\n      username: other\n");
    let config = Config::from_clouds(&clouds, "lab").unwrap();
    let Auth::Password { user, password, project } = &config.auth else { panic!("{config:?}") };
    assert_eq!(*user, User::Name("other".into(), Domain::Id("default".into())), "the secure file goes first");
    assert_eq!(password.expose(), "0123456", "a password of digits is no number");
    assert_eq!(*project, Project::Id("4f3e".into()));
    assert_eq!((config.interface, config.region.as_deref()), (Interface::Internal, Some("lab")));
    assert_eq!(config.ca, Some("/etc/ssl/lab.pem".into()));
}

#[test]
fn a_cloud_is_found_where_the_other_tools_find_it() {
    let files = Files::new();
    files.put("home/.config/openstack/clouds.yaml", CLOUDS);
    files.put("home/.config/openstack/secure.yaml", "clouds: {lab: {auth: {password: pw}}}");
    let home = files.0.join("home");
    assert!(env(&[("OS_CLOUD", "lab"), ("HOME", home.to_str().unwrap())]).is_ok());
    let nowhere = env(&[("OS_CLOUD", "lab"), ("HOME", "/nonexistent")]).unwrap_err().to_string();
    assert!(
        nowhere.starts_with("no clouds.yaml found; looked at ./clouds.yaml, ")
            && nowhere.contains("/nonexistent/.config/openstack/clouds.yaml"),
        "{nowhere}"
    );
    let secure = files.put("elsewhere.yaml", "clouds: {lab: {auth: {password: pw2}}}");
    let named = env(&[
        ("OS_CLOUD", "lab"),
        ("OS_CLIENT_CONFIG_FILE", home.join(".config/openstack/clouds.yaml").to_str().unwrap()),
        ("OS_CLIENT_SECURE_FILE", secure.to_str().unwrap()),
    ])
    .unwrap();
    assert!(matches!(named.auth, Auth::Password { password, .. } if password.expose() == "pw2"));
}

#[test]
fn what_a_clouds_file_lacks_is_named_as_it_is_spelled_there() {
    let files = Files::new();
    let clouds = files.put("clouds.yaml", CLOUDS);
    let name = clouds.display();
    let why = |cloud: &str| Config::from_clouds(&clouds, cloud).unwrap_err().to_string();
    assert_eq!(why("prod"), format!("{name} has no cloud prod; it has lab, other"));
    assert_eq!(why("other"), format!("{name}, cloud other: auth.username or auth.user_id is missing"));
    assert_eq!(
        why("lab"),
        format!("{name}, cloud lab: auth.password is missing (the profile vendor is not read: write out what it says)")
    );
    assert!(
        Config::from_clouds(&files.0.join("none.yaml"), "lab").unwrap_err().to_string().starts_with("cannot read ")
    );
}

#[test]
fn no_error_and_no_debug_shows_a_secret() {
    let files = Files::new();
    for text in [
        "clouds:\n  lab:\n    auth:\n      password: [hunter2]\n",
        "clouds:\n  lab:\n    auth:\n      password: \"hunter2\n",
        "clouds:\n  lab:\n    auth: hunter2\n",
        "hunter2",
        "clouds: {lab: {auth: {password: hunter2, auth_url: '::'}}}",
    ] {
        let error = Config::from_clouds(&files.put("clouds.yaml", text), "lab").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
    for text in [
        "[Global]\npassword=\"hunter2",
        "[Global]\npass word hunter2=x",
        "[Global]\npassword=hunter2\\x",
        "[Global]\npassword=hunter2",
    ] {
        let error = Config::from_cloud_conf(&files.put("cloud.conf", text)).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
    assert!(!format!("{:?}", env(&PASSWORD).unwrap()).contains("hunter2"));
    let bytes = files.put("clouds.yaml", b"clouds: \xff\xfe hunter2");
    assert!(!Config::from_clouds(&bytes, "lab").unwrap_err().to_string().contains("hunter2"));
}

#[test]
fn the_cloud_conf_of_a_cluster_is_a_configuration() {
    let files = Files::new();
    let file = files.put(
        "cloud.conf",
        r#"
; made by the installer
[global]
Auth-URL = "https://keystone:5000/v3" # the cloud's own
username=demo
password = "pa#ss;w\"or\\d " ; quoted
tenant-id=4f3e
domain-name = Default
region=lab
os-endpoint-type=internalURL
ca-file=/etc/ssl/lab.pem

[LoadBalancer]
password=not-this-one
use-octavia
[LoadBalancerClass "internal"]
region=elsewhere
"#,
    );
    let config = Config::from_cloud_conf(&file).unwrap();
    let Auth::Password { user, password, project } = &config.auth else { panic!("{config:?}") };
    assert_eq!(*user, User::Name("demo".into(), Domain::Name("Default".into())));
    assert_eq!(password.expose(), r#"pa#ss;w"or\d "#);
    assert_eq!(*project, Project::Id("4f3e".into()));
    assert_eq!((config.interface, config.region.as_deref()), (Interface::Internal, Some("lab")));
}

#[test]
fn a_cloud_conf_may_have_an_application_credential() {
    let files = Files::new();
    let with = |lines: &str| {
        let text =
            format!("[Global]\nauth-url=https://k/v3\nregion=lab\n{lines}application-credential-secret=s3cr3t\n");
        Config::from_cloud_conf(&files.put("cloud.conf", text)).map_err(|error| error.to_string())
    };
    let config = with("application-credential-id=cafe\n").unwrap();
    let Auth::ApplicationCredential { credential, secret } = &config.auth else { panic!("{config:?}") };
    assert_eq!((credential, secret.expose()), (&Credential::Id("cafe".into()), "s3cr3t"));
    let user = "application-credential-name=ours\nusername=demo\ndomain-name=Default\n";
    let config = with(user).unwrap();
    let Auth::ApplicationCredential { credential, .. } = &config.auth else { panic!("{config:?}") };
    let user = User::Name("demo".into(), Domain::Name("Default".into()));
    assert_eq!(*credential, Credential::Name("ours".into(), user));
    assert!(with("application-credential-name=ours\n").unwrap_err().contains("username"));
}

#[test]
fn a_cloud_conf_may_point_to_a_clouds_file() {
    let files = Files::new();
    let clouds = files.put("clouds.yaml", CLOUDS.replace("username: demo", "username: demo\n      password: pw"));
    let text = format!("[Global]\nuse-clouds = true\nclouds-file = {}\ncloud = lab\n", clouds.display());
    assert!(Config::from_cloud_conf(&files.put("cloud.conf", text)).is_ok());
    let lacking = Config::from_cloud_conf(&files.put("cloud.conf", "[Global]\nuse-clouds\n")).unwrap_err().to_string();
    assert!(lacking.ends_with("[Global]: clouds-file is missing (use-clouds is set)"), "{lacking}");
}

#[test]
fn what_a_cloud_conf_lacks_or_asks_in_vain_is_named_as_it_is_spelled_there() {
    let files = Files::new();
    let why = |text: &str| {
        let file = files.put("cloud.conf", text);
        Config::from_cloud_conf(&file).unwrap_err().to_string().replace(&file.display().to_string(), "F")
    };
    assert_eq!(why(""), "F, [Global]: auth-url is missing");
    assert_eq!(
        why("[Global]\nauth-url=https://k\nuser-id=u\npassword=p"),
        "F, [Global]: tenant-id or tenant-name is missing"
    );
    assert_eq!(
        why("[Global]\nauth-url=https://k\ntls-insecure=true"),
        "F, [Global]: tls-insecure turns the check of certificates off, which is refused; name the cloud's CA in ca-file"
    );
    assert_eq!(
        why("[Global]\ntrust-id=t"),
        "F, [Global]: trust-id is not understood; use an application credential instead"
    );
    assert_eq!(why("[Global\nx=y"), "F: line 1: a section without its `]`");
    assert_eq!(why("[Global]\n= y"), "F: line 2: not `name = value`");
}
