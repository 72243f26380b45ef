//! The `OS_*` variables.

use std::path::PathBuf;

use super::clouds;
use super::given::{Given, Place};
use super::{Config, ConfigError};
use crate::secret::Secret;

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

pub(super) fn read(var: Lookup<'_>) -> Result<Config, ConfigError> {
    if let Some(cloud) = var("OS_CLOUD") {
        let file = clouds_file(var)?;
        let secure = secure_file(var, &file);
        return clouds::read(&file, secure.as_deref(), &cloud);
    }
    let given = Given {
        auth_type: var("OS_AUTH_TYPE"),
        auth_url: var("OS_AUTH_URL"),
        username: var("OS_USERNAME"),
        user_id: var("OS_USER_ID"),
        password: var("OS_PASSWORD").map(Secret::new),
        user_domain_name: var("OS_USER_DOMAIN_NAME"),
        user_domain_id: var("OS_USER_DOMAIN_ID"),
        project_name: var("OS_PROJECT_NAME").or_else(|| var("OS_TENANT_NAME")),
        project_id: var("OS_PROJECT_ID").or_else(|| var("OS_TENANT_ID")),
        project_domain_name: var("OS_PROJECT_DOMAIN_NAME"),
        project_domain_id: var("OS_PROJECT_DOMAIN_ID"),
        domain_name: var("OS_DEFAULT_DOMAIN").or_else(|| var("OS_DEFAULT_DOMAIN_NAME")),
        domain_id: var("OS_DEFAULT_DOMAIN_ID"),
        application_credential_id: var("OS_APPLICATION_CREDENTIAL_ID"),
        application_credential_name: var("OS_APPLICATION_CREDENTIAL_NAME"),
        application_credential_secret: var("OS_APPLICATION_CREDENTIAL_SECRET").map(Secret::new),
        region_name: var("OS_REGION_NAME"),
        interface: var("OS_INTERFACE").or_else(|| var("OS_ENDPOINT_TYPE")),
        cacert: var("OS_CACERT"),
        verify: var("OS_VERIFY"),
        insecure: var("OS_INSECURE"),
        ..Given::default()
    };
    if given.auth_url.is_none() {
        return Err(ConfigError::Nothing);
    }
    Config::from_given(&Place::Environment, given)
}

/// The working directory, the user's and the system's, as the Python tools look.
fn directories(var: Lookup<'_>) -> Vec<PathBuf> {
    let user = var("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| Some(PathBuf::from(var("HOME")?).join(".config")));
    let mut directories = vec![PathBuf::from(".")];
    directories.extend(user.map(|config| config.join("openstack")));
    directories.push("/etc/openstack".into());
    directories
}

fn clouds_file(var: Lookup<'_>) -> Result<PathBuf, ConfigError> {
    if let Some(file) = var("OS_CLIENT_CONFIG_FILE") {
        return Ok(file.into());
    }
    let places: Vec<_> = directories(var)
        .into_iter()
        .flat_map(|directory| ["clouds.yaml", "clouds.yml"].map(|name| directory.join(name)))
        .collect();
    places.iter().find(|file| file.exists()).cloned().ok_or_else(|| ConfigError::NoFile {
        looked: places.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", "),
    })
}

fn secure_file(var: Lookup<'_>, clouds: &std::path::Path) -> Option<PathBuf> {
    if let Some(file) = var("OS_CLIENT_SECURE_FILE") {
        return Some(file.into());
    }
    let beside = clouds.parent().map(PathBuf::from);
    beside
        .into_iter()
        .chain(directories(var))
        .flat_map(|directory| ["secure.yaml", "secure.yml"].map(|name| directory.join(name)))
        .find(|file| file.exists())
}
