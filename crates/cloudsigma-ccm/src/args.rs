//! What the controller can be told. Each flag has an environment twin; those of the original are understood too.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use groundcrew_api::names::class;
use groundcrew_core::runtime::{StartError, duration};
use groundcrew_core::service::ServiceArgs;
use reqwest::Url;

use crate::client::{self, Config, Credentials, Secret};
use crate::pool::Allowed;

/// How a node's server is let use an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// NICs in manual mode use any address that the account subscribes to; a move needs no call of the cloud
    Manual,
    /// Each address has a static NIC, which is attached to the node that holds it
    Attach,
}

/// Flags of `groundcrew cloudsigma-ccm`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "CloudSigma options")]
#[group(id = "cloudsigma-ccm")]
pub struct Args {
    /// The location whose API is used, such as zrh
    #[arg(
        long,
        alias = "cloudsigma-region",
        env = "CLOUDSIGMA_REGION",
        value_name = "REGION",
        required_unless_present = "api_url"
    )]
    pub region: Option<String>,

    /// The API's address, such as `https://zrh.cloudsigma.com/api/2.0/`, instead of the region's. With --user-email that
    /// of the direct host
    #[arg(long, env = "CLOUDSIGMA_API_URL", value_name = "URL")]
    pub api_url: Option<Url>,

    /// Act as this user, by impersonation. Needs --oauth-url, --client-id and a client secret
    #[arg(long, env = "CLOUDSIGMA_USER_EMAIL", value_name = "EMAIL")]
    pub user_email: Option<String>,

    /// Where the service provider's tokens come from. `CS_OAUTH_URL` is read too
    #[arg(long, env = "CLOUDSIGMA_OAUTH_URL", value_name = "URL")]
    pub oauth_url: Option<Url>,

    /// The service provider's client id
    #[arg(long, env = "CLOUDSIGMA_CLIENT_ID", value_name = "ID")]
    pub client_id: Option<String>,

    /// Its secret. Better in the variable or in a file: others on the machine see command lines
    #[arg(long, env = "CLOUDSIGMA_CLIENT_SECRET", hide_env_values = true, value_name = "SECRET")]
    pub client_secret: Option<Secret>,

    /// A file with the client secret
    #[arg(long, env = "CLOUDSIGMA_CLIENT_SECRET_FILE", value_name = "FILE", conflicts_with = "client_secret")]
    pub client_secret_file: Option<PathBuf>,

    /// Act as this user, with a password instead of impersonation
    #[arg(
        long,
        alias = "cloudsigma-username",
        env = "CLOUDSIGMA_USERNAME",
        value_name = "EMAIL",
        conflicts_with = "user_email"
    )]
    pub username: Option<String>,

    /// The user's password. Better in the variable or in a file
    #[arg(
        long,
        alias = "cloudsigma-password",
        env = "CLOUDSIGMA_PASSWORD",
        hide_env_values = true,
        value_name = "PASSWORD"
    )]
    pub password: Option<Secret>,

    /// A file with the password
    #[arg(long, env = "CLOUDSIGMA_PASSWORD_FILE", value_name = "FILE", conflicts_with = "password")]
    pub password_file: Option<PathBuf>,

    /// Understood and not needed: a password is used when one is given
    #[arg(long, env = "CLOUDSIGMA_ENABLE_LEGACY_CREDENTIALS", hide = true)]
    pub enable_legacy_credentials: bool,

    /// The cluster's name in the tags that people see; without it the cluster id
    #[arg(long, env = "CLOUDSIGMA_CLUSTER_NAME", value_name = "NAME")]
    pub cluster_name: Option<String>,

    /// Keep the Secret cloudsigma-csi/cloudsigma-token, from which the original's CSI driver reads its token
    #[arg(long, env = "CLOUDSIGMA_ENABLE_CSI_TOKEN")]
    pub enable_csi_token: bool,

    /// Serve no Services: only nodes are initialised and followed
    #[arg(long, env = "CLOUDSIGMA_DISABLE_LB_IP_POOL")]
    pub disable_lb_ip_pool: bool,

    /// Leave Services without a loadBalancerClass to another controller
    #[arg(long, env = "GROUNDCREW_LEAVE_CLASSLESS")]
    pub leave_classless: bool,

    /// How a node's server is let use an address
    #[arg(long, env = "GROUNDCREW_CLOUDSIGMA_MODE", value_enum, default_value = "manual")]
    pub mode: Mode,

    /// Switch the public NIC of a node to manual mode where it is not. The cloud then no longer reserves the node's own
    /// address: it must be configured in the node itself, or the node is lost at its next start
    #[arg(long, env = "GROUNDCREW_CLOUDSIGMA_SWITCH_NICS")]
    pub switch_nics: bool,

    /// Let nodes balance by themselves, in clusters without kube-proxy or Cilium
    #[arg(long, env = "GROUNDCREW_CLOUDSIGMA_NAT")]
    pub nat: bool,

    /// Addresses that may be given out: networks, addresses or tag:UUID, comma-separated. Without it all of the account
    #[arg(long, env = "GROUNDCREW_CLOUDSIGMA_ALLOW_IP", value_name = "ADDRESSES", value_delimiter = ',')]
    pub allow_ip: Vec<Allowed>,

    /// How often the account is read
    #[arg(long, env = "GROUNDCREW_CLOUDSIGMA_INTERVAL", value_name = "TIME", default_value = "1m", value_parser = interval)]
    pub discovery_interval: Duration,

    /// How long before its end a subscription is warned about
    #[arg(long, env = "GROUNDCREW_CLOUDSIGMA_EXPIRY_WARNING", value_name = "TIME", default_value = "168h", value_parser = duration)]
    pub expiry_warning: Duration,

    /// How long after it was taken an address is read once more, in case another cluster took it at the same moment. One
    /// whose mark took longer to write is given back. The same in all clusters of an account
    #[arg(long, env = "GROUNDCREW_CLOUDSIGMA_CLAIM_SETTLE", value_name = "TIME", default_value = "3s", value_parser = interval)]
    pub claim_settle: Duration,

    /// The namespace of the node agents' Leases; without it the one of this controller's own Lease
    #[arg(long, env = "GROUNDCREW_AGENT_NAMESPACE", value_name = "NAMESPACE")]
    pub agent_namespace: Option<String>,

    /// How long an agent must have been silent before its addresses move; never shorter than its Lease says
    #[arg(long, env = "GROUNDCREW_TAKEOVER_DELAY", value_name = "TIME", default_value = "8s", value_parser = duration)]
    pub takeover_delay: Duration,

    /// Take over after 3 s. The agents must have been started with the same flag
    #[arg(long, env = "GROUNDCREW_FAST_FAILOVER", conflicts_with = "takeover_delay")]
    pub fast_failover: bool,

    /// Cut the power of a silent node's server before its addresses move. For who wants it dead rather than doubtful: what
    /// runs on it is lost
    #[arg(long, env = "GROUNDCREW_FENCE_STOP")]
    pub fence_stop: bool,

    /// How long an address stays where it was put before it moves without need
    #[arg(long, env = "GROUNDCREW_MINIMUM_HOLD", value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub minimum_hold: Duration,

    /// How long a node may take to confirm an address before its user is told
    #[arg(long, env = "GROUNDCREW_CONFIRM_PATIENCE", value_name = "TIME", default_value = "15s", value_parser = duration)]
    pub confirm_patience: Duration,

    /// Ask this URL whether an address is reached from outside: {address} and {port} are filled in. 200 is yes, any other
    /// answer no, and no answer says nothing
    #[arg(long, env = "GROUNDCREW_PROBE_URL", value_name = "URL")]
    pub probe_url: Option<String>,

    /// How long a node has had an address before that is asked: a fresh one is not routed at once
    #[arg(long, env = "GROUNDCREW_PROBE_GRACE", value_name = "TIME", default_value = "1m", value_parser = duration)]
    pub probe_grace: Duration,

    /// How often it is asked
    #[arg(long, env = "GROUNDCREW_PROBE_INTERVAL", value_name = "TIME", default_value = "30s", value_parser = interval)]
    pub probe_interval: Duration,

    /// Place addresses on nodes with the label node.kubernetes.io/exclude-from-external-load-balancers too
    #[arg(long, env = "GROUNDCREW_IGNORE_EXCLUDE_LABEL")]
    pub ignore_exclude_label: bool,

    /// How many nodes may be deleted within ten minutes because their servers are gone; beyond it none is
    #[arg(long, env = "GROUNDCREW_NODE_DELETE_LIMIT", value_name = "COUNT", default_value = "3")]
    pub node_delete_limit: usize,

    /// The loadBalancerClass that is served
    #[arg(long, env = "GROUNDCREW_CLASS", value_name = "CLASS", default_value = class::CLOUDSIGMA)]
    pub class: String,

    #[command(flatten)]
    pub service: ServiceArgs,

    /// For one attempt of a request. There is no flag for it
    #[arg(skip = TIMEOUT)]
    pub timeout: Duration,

    /// How long a node that has no interface for an address gets nothing new. There is no flag for it
    #[arg(skip = RECOVERY)]
    pub recovery: Duration,
}

/// A listing of a large account takes seconds.
const TIMEOUT: Duration = Duration::from_secs(10);
const RECOVERY: Duration = Duration::from_mins(1);
const RETRY_FOR: Duration = Duration::from_secs(20);

impl Args {
    /// The client's configuration, with secrets from wherever they are.
    pub async fn config(&self) -> Result<Config, StartError> {
        let credentials = self.credentials(|name| std::env::var(name).ok())?;
        let direct = matches!(credentials, Credentials::Impersonation { .. });
        let api = match (&self.api_url, &self.region) {
            (Some(url), _) => based(url)?,
            (None, Some(region)) => client::endpoint(region, direct).await?,
            (None, None) => return Err("give --region or --api-url".into()),
        };
        Ok(Config { api, credentials, timeout: self.timeout, retry_for: RETRY_FOR })
    }

    fn credentials(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Credentials, StartError> {
        if let Some(user) = &self.username {
            let password = secret(self.password.as_ref(), self.password_file.as_deref())?;
            let password = password.ok_or("--username needs CLOUDSIGMA_PASSWORD or --password-file")?;
            return Ok(Credentials::Password { user: user.clone(), password });
        }
        let user_email = self.user_email.clone().ok_or("say as whom: --user-email for impersonation, or --username")?;
        let oauth = match (&self.oauth_url, variable("CS_OAUTH_URL")) {
            (Some(url), _) => url.clone(),
            (None, Some(text)) => text.parse().map_err(|error| format!("CS_OAUTH_URL: {error}"))?,
            (None, None) => return Err("--user-email needs --oauth-url".into()),
        };
        let client_id = self.client_id.clone().ok_or("--user-email needs --client-id")?;
        let client_secret = secret(self.client_secret.as_ref(), self.client_secret_file.as_deref())?;
        let client_secret =
            client_secret.ok_or("--user-email needs CLOUDSIGMA_CLIENT_SECRET or --client-secret-file")?;
        Ok(Credentials::Impersonation { oauth, client_id, client_secret, user_email })
    }

    pub(crate) fn delay(&self) -> Duration {
        if self.fast_failover { Duration::from_secs(3) } else { self.takeover_delay }
    }
}

/// A loop that never pauses is an attack on the cloud.
fn interval(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time < Duration::from_millis(100) { Err("at least 100ms".into()) } else { Ok(time) }
}

fn secret(given: Option<&Secret>, file: Option<&Path>) -> Result<Option<Secret>, StartError> {
    match (given, file) {
        (Some(secret), _) => Ok(Some(secret.clone())),
        (None, Some(file)) => {
            let secret = Secret::from_file(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            Ok(Some(secret))
        }
        (None, None) => Ok(None),
    }
}

/// Joined with a path, a base that does not end in a slash would lose its last part.
fn based(url: &Url) -> Result<Url, StartError> {
    Ok(Url::parse(&format!("{}/", url.as_str().trim_end_matches('/')))?)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    fn parse(flags: &[&str]) -> Args {
        Program::try_parse_from([&["test"], flags].concat()).unwrap().args
    }

    #[test]
    fn every_flag_has_an_environment_twin() {
        let command = Program::command();
        let flags = command.get_arguments().filter(|flag| !["help"].contains(&flag.get_id().as_str()));
        let bare: Vec<_> =
            flags.filter(|flag| flag.get_env().is_none()).map(|flag| flag.get_id().to_string()).collect();
        assert_eq!(bare, [""; 0]);
    }

    #[test]
    fn the_flags_of_the_original_are_understood() {
        let args = parse(&["--user-email", "a@b", "--region", "zrh", "--client-id", "c", "--client-secret", "s"]);
        let credentials = args.credentials(|name| (name == "CS_OAUTH_URL").then(|| "https://auth.example".into()));
        assert!(matches!(credentials.unwrap(), Credentials::Impersonation { .. }));
        let args = parse(&["--cloudsigma-region", "zrh", "--cloudsigma-username", "a@b", "--cloudsigma-password", "p"]);
        assert!(matches!(args.credentials(|_| None).unwrap(), Credentials::Password { .. }));
        assert!(parse(&["--region", "zrh", "--disable-lb-ip-pool"]).disable_lb_ip_pool);
    }

    #[test]
    fn so_are_its_variables() {
        let command = Program::command();
        let read: Vec<_> = command.get_arguments().filter_map(|flag| flag.get_env()?.to_str()).collect();
        for name in [
            "REGION",
            "OAUTH_URL",
            "CLIENT_ID",
            "CLIENT_SECRET",
            "USER_EMAIL",
            "ENABLE_LEGACY_CREDENTIALS",
            "USERNAME",
            "PASSWORD",
            "ENABLE_CSI_TOKEN",
            "DISABLE_LB_IP_POOL",
        ] {
            assert!(read.contains(&&*format!("CLOUDSIGMA_{name}")), "{name}");
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let args = parse(&["--region", "zrh"]);
        assert!(args.credentials(|_| None).unwrap_err().to_string().contains("--user-email"));
        let args = parse(&["--region", "zrh", "--username", "a@b"]);
        assert!(args.credentials(|_| None).unwrap_err().to_string().contains("--password-file"));
        assert!(Program::try_parse_from(["test"]).unwrap_err().to_string().contains("--region"));
    }

    #[test]
    fn secrets_are_read_from_files_without_the_newline_at_their_end() {
        let file = std::env::temp_dir().join(format!("groundcrew-secret-{}", std::process::id()));
        std::fs::write(&file, "correct-horse\n").unwrap();
        let path = file.to_str().unwrap();
        let basic = parse(&["--region", "zrh", "--username", "a@b", "--password-file", path]).credentials(|_| None);
        let flags =
            ["--region", "zrh", "--user-email", "a@b", "--oauth-url", "https://auth.example", "--client-id", "c"];
        let stand_in = parse(&[&flags[..], &["--client-secret-file", path]].concat()).credentials(|_| None);
        std::fs::remove_file(&file).unwrap();
        let secrets = [basic.unwrap(), stand_in.unwrap()].map(|credentials| match credentials {
            Credentials::Password { password, .. } => password,
            Credentials::Impersonation { client_secret, .. } => client_secret,
        });
        assert_eq!(secrets.each_ref().map(Secret::expose), ["correct-horse"; 2]);
        let missing = parse(&["--region", "zrh", "--username", "a@b", "--password-file", path]).credentials(|_| None);
        assert!(missing.unwrap_err().to_string().contains(path), "it is named");
    }

    #[test]
    fn an_interval_is_not_nothing() {
        for flag in ["--discovery-interval", "--probe-interval"] {
            assert!(Program::try_parse_from(["test", "--region", "zrh", flag, "0s"]).is_err(), "{flag}");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let args = parse(&["--region", "zrh", "--username", "a@b", "--password", "correct-horse"]);
        assert!(!format!("{args:?}").contains("correct-horse"));
    }
}
