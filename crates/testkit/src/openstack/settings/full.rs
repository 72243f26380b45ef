//! What is beside Keystone and Neutron.

use anyhow::Result;

use super::Site;
use crate::openstack::{Service, database};

/// The one host that has servers.
pub(in crate::openstack) const COMPUTE_HOST: &str = "lab-compute";
/// The databases that servers are in.
pub(in crate::openstack) const CELL: &str = "cell1";
/// One that Nova never reaches.
pub(in crate::openstack) const LOST_CELL: &str = "lost";

impl Site<'_> {
    pub(super) fn placement(&self) -> Result<()> {
        let database = database::url(self.dir, "placement");
        let auth = self.auth();
        let text = format!("[api]\nauth_strategy = keystone\n[placement_database]\nconnection = {database}\n{auth}");
        self.write("placement.conf", &text)
    }

    pub(super) fn glance(&self) -> Result<()> {
        self.copy("glance/glance-api-paste.ini", "glance-api-paste.ini")?;
        self.make_dirs(&["glance/images", "glance/staging", "glance/tasks"])?;
        let text = format!(
            "[DEFAULT]
enabled_backends = files:file
transport_url = fake://
[database]
connection = {database}
[glance_store]
default_backend = files
[files]
filesystem_store_datadir = {dir}/glance/images
[os_glance_staging_store]
filesystem_store_datadir = {dir}/glance/staging
[os_glance_tasks_store]
filesystem_store_datadir = {dir}/glance/tasks
[paste_deploy]
flavor = keystone
config_file = {dir}/glance-api-paste.ini
{auth}",
            dir = self.dir.display(),
            database = database::url(self.dir, "glance"),
            auth = self.auth(),
        );
        self.write("glance-api.conf", &text)
    }

    pub(super) fn nova(&self) -> Result<()> {
        self.copy("nova/api-paste.ini", "nova-paste.ini")?;
        self.make_dirs(&["nova/lock"])?;
        let text = format!(
            "[DEFAULT]
transport_url = {bus}
my_ip = 127.0.0.1
host = {COMPUTE_HOST}
state_path = {dir}/nova
compute_driver = fake.FakeDriverWithoutFakeNodes
vif_plugging_timeout = 0
vif_plugging_is_fatal = false
[api]
auth_strategy = keystone
[wsgi]
api_paste_config = {dir}/nova-paste.ini
[oslo_concurrency]
lock_path = {dir}/nova/lock
[glance]
api_servers = http://{glance}
[scheduler]
workers = 1
[conductor]
workers = 1
[vnc]
enabled = false
[quota]
instances = -1
cores = -1
ram = -1
server_groups = -1
server_group_members = -1
[service_user]
send_service_user_token = true
{login}
[neutron]
{login}
[placement]
{login}
[cinder]
{login}
{auth}",
            dir = self.dir.display(),
            bus = self.bus,
            glance = self.addresses[&Service::Image],
            login = self.login(),
            auth = self.auth(),
        );
        // Nova's compute refuses to work where it sees a database.
        self.write("nova-compute.conf", &text)?;
        // A database that does not answer is a cell that is down; to try it again and again only takes time.
        let databases = format!(
            "[api_database]\nconnection = {}\n[database]\nconnection = {}\nmax_retries = 0\n",
            database::url(self.dir, "nova_api"),
            database::url(self.dir, "nova"),
        );
        self.write("nova.conf", &format!("{text}{databases}"))
    }

    pub(super) fn cinder(&self) -> Result<()> {
        self.copy("cinder/api-paste.ini", "cinder-paste.ini")?;
        self.copy("cinder/resource_filters.json", "resource_filters.json")?;
        self.make_dirs(&["cinder/lock"])?;
        let text = format!(
            "[DEFAULT]
transport_url = {bus}
my_ip = 127.0.0.1
host = lab-storage
auth_strategy = keystone
api_paste_config = {dir}/cinder-paste.ini
resource_query_filters_file = {dir}/resource_filters.json
state_path = {dir}/cinder
enabled_backends = lab
default_volume_type = lab
quota_volumes = -1
quota_snapshots = -1
quota_gigabytes = -1
[lab]
volume_driver = cinder.tests.fake_driver.FakeLoggingVolumeDriver
[database]
connection = {database}
[oslo_concurrency]
lock_path = {dir}/cinder/lock
[coordination]
backend_url = file://{dir}/cinder
{auth}",
            dir = self.dir.display(),
            bus = self.bus,
            database = database::url(self.dir, "cinder"),
            auth = self.auth(),
        );
        self.write("cinder.conf", &text)
    }

    pub(super) fn octavia(&self) -> Result<()> {
        self.make_dirs(&["octavia"])?;
        let text = format!(
            "[DEFAULT]
transport_url = {bus}
[api_settings]
auth_strategy = keystone
api_base_uri = http://{octavia}
enabled_provider_drivers = octavia:'drivers that do nothing',noop_driver:'stays in PENDING_CREATE'
default_provider_driver = octavia
[database]
connection = {database}
[oslo_messaging]
topic = octavia
[controller_worker]
amphora_driver = amphora_noop_driver
compute_driver = compute_noop_driver
network_driver = network_noop_driver
volume_driver = volume_noop_driver
image_driver = image_noop_driver
client_ca = {dir}/octavia/ca.pem
loadbalancer_topology = SINGLE
workers = 1
[certificates]
cert_generator = local_cert_generator
ca_certificate = {dir}/octavia/ca.pem
ca_private_key = {dir}/octavia/ca.key
ca_private_key_passphrase = {passphrase}
[driver_agent]
status_socket_path = {dir}/octavia/status.sock
stats_socket_path = {dir}/octavia/stats.sock
get_socket_path = {dir}/octavia/get.sock
[task_flow]
engine = serial
[quotas]
default_load_balancer_quota = -1
[service_auth]
{login}
{auth}",
            dir = self.dir.display(),
            bus = self.bus,
            octavia = self.addresses[&Service::LoadBalancer],
            database = database::url(self.dir, "octavia"),
            passphrase = crate::openstack::PASSWORD,
            login = self.login(),
            auth = self.auth(),
        );
        self.write("octavia.conf", &text)
    }
}
