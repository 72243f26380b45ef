//! The configuration files of the services.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};

use super::cloud::{ADMIN, REGION};
use super::{PASSWORD, database};

/// The route limit that clouds in the field have.
pub(super) const MAX_ROUTES: u32 = 31;

/// Writes `keystone.conf`.
pub(super) fn keystone(dir: &Path) -> Result<()> {
    let text = format!(
        "[database]
connection = {database}
[token]
provider = fernet
[fernet_tokens]
key_repository = {keys}
[identity]
password_hash_rounds = 4
",
        database = database::url(dir, "keystone"),
        keys = dir.join("fernet").display(),
    );
    write(dir, "keystone.conf", &text)
}

/// Writes a `neutron.conf` that is enough to make its tables.
pub(super) fn neutron_database(dir: &Path) -> Result<()> {
    let database = database::url(dir, "neutron");
    write(dir, "neutron.conf", &format!("[DEFAULT]\ncore_plugin = ml2\n[database]\nconnection = {database}\n"))
}

/// Writes `neutron.conf` for OVN databases at these addresses.
pub(super) fn neutron(
    dir: &Path,
    environment: &Path,
    keystone: SocketAddr,
    (northbound, southbound): (&str, &str),
) -> Result<()> {
    fs::copy(environment.join("etc/neutron/api-paste.ini"), dir.join("neutron-paste.ini"))
        .context("copy Neutron's api-paste.ini")?;
    // The chassis has no heart: without its own say on when an agent is down, no port could be bound to it.
    let text = format!(
        "[DEFAULT]
core_plugin = ml2
service_plugins = ovn-router
auth_strategy = keystone
transport_url = fake://
api_paste_config = {dir}/neutron-paste.ini
state_path = {dir}/neutron
agent_down_time = 2000000
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
[oslo_concurrency]
lock_path = {dir}/neutron/lock
[database]
connection = {database}
[ml2]
type_drivers = geneve,flat
tenant_network_types = geneve
mechanism_drivers = ovn
extension_drivers = port_security
[ml2_type_geneve]
vni_ranges = 1:65536
max_header_size = 38
[ovn]
ovn_nb_connection = {northbound}
ovn_sb_connection = {southbound}
ovn_metadata_enabled = false
[quotas]
quota_router_route = {MAX_ROUTES}
quota_port = -1
quota_router = -1
quota_network = -1
quota_subnet = -1
quota_security_group = -1
quota_security_group_rule = -1
{auth}",
        dir = dir.display(),
        database = database::url(dir, "neutron"),
        auth = auth(keystone),
    );
    write(dir, "neutron.conf", &text)
}

/// How a service asks Keystone about the tokens that it gets.
fn auth(keystone: SocketAddr) -> String {
    format!(
        "[keystone_authtoken]
www_authenticate_uri = http://{keystone}
auth_url = http://{keystone}/v3
auth_type = password
username = {ADMIN}
password = {PASSWORD}
project_name = {ADMIN}
user_domain_id = default
project_domain_id = default
region_name = {REGION}
interface = public
"
    )
}

fn write(dir: &Path, name: &str, text: &str) -> Result<()> {
    let path = dir.join(name);
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}
