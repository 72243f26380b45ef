//! Keystone and Neutron.

use anyhow::Result;

use super::Site;
use crate::openstack::database;

/// The route limit that clouds in the field have.
const MAX_ROUTES: u32 = 31;

impl Site<'_> {
    pub(super) fn keystone(&self) -> Result<()> {
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
            database = database::url(self.dir, "keystone"),
            keys = self.dir.join("fernet").display(),
        );
        self.write("keystone.conf", &text)
    }

    pub(super) fn neutron(&self) -> Result<()> {
        self.copy("neutron/api-paste.ini", "neutron-paste.ini")?;
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
            dir = self.dir.display(),
            northbound = self.northbound,
            southbound = self.southbound,
            database = database::url(self.dir, "neutron"),
            auth = self.auth(),
        );
        self.write("neutron.conf", &text)
    }
}
