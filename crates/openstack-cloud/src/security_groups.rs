//! Neutron's security groups.

use groundcrew_core::leader::Term;
use groundcrew_core::provider::{
    Direction, Family, Listing, NewRule, ProviderError, Remote, Rule, SecurityGroup, SecurityGroups,
};
use ipnet::IpNet;
use openstack_client::network;

use crate::OpenStack;
use crate::error::told;
use crate::listing::translate;

impl SecurityGroups for OpenStack {
    async fn security_groups_named(&self, name: &str) -> Result<Listing<SecurityGroup>, ProviderError> {
        let session = self.client.session().await.map_err(told)?;
        let mut groups = self.client.network().security_groups(&[("name", name)]).await.map_err(told)?;
        // A Neutron may ignore a filter. It also shows groups that others share with us, and all of them to an administrator: by a
        // name alone, none of those is meant.
        groups.items.retain(|group| group.name == name && group.project_id == session.project_id());
        Ok(translate("security groups", groups, |group| Ok(from_neutron(group))))
    }

    async fn security_group(&self, id: &str) -> Result<SecurityGroup, ProviderError> {
        self.client.network().security_group(id).await.map(from_neutron).map_err(told)
    }

    async fn add_rule(&self, group: &str, rule: &NewRule, term: &Term) -> Result<Option<String>, ProviderError> {
        let rule = to_neutron(group, rule);
        let made = self.write(term, self.client.network().create_rule(&rule)).await?;
        Ok(made.map(|rule| rule.id))
    }

    async fn delete_rule(&self, id: &str, term: &Term) -> Result<(), ProviderError> {
        self.write(term, self.client.network().delete_rule(id)).await
    }
}

fn from_neutron(group: network::SecurityGroup) -> SecurityGroup {
    SecurityGroup { id: group.id, name: group.name, rules: group.rules.into_iter().map(rule).collect() }
}

fn rule(rule: network::Rule) -> Rule {
    let ports = match (rule.port_range_min, rule.port_range_max) {
        (None, None) => None,
        (first, last) => Some((first.unwrap_or(-1), last.unwrap_or(-1))),
    };
    Rule {
        direction: match rule.direction {
            network::Direction::Ingress => Direction::Ingress,
            network::Direction::Egress => Direction::Egress,
        },
        family: match rule.ethertype {
            network::Ethertype::IPv4 => Family::V4,
            network::Ethertype::IPv6 => Family::V6,
        },
        protocol: rule.protocol.map(|name| name.to_ascii_lowercase()).filter(|name| name != "any"),
        ports,
        remote: remote(rule.remote_group_id.or(rule.remote_address_group_id), rule.remote_ip_prefix),
        id: rule.id,
        description: rule.description,
    }
}

fn remote(group: Option<String>, prefix: Option<String>) -> Remote {
    match (group, prefix) {
        (Some(group), _) => Remote::Others(group),
        (None, None) => Remote::Anyone,
        (None, Some(prefix)) => {
            prefix.parse().map_or(Remote::Others(prefix), |range: IpNet| Remote::Range(range.trunc()))
        }
    }
}

fn to_neutron(group: &str, rule: &NewRule) -> network::NewRule {
    network::NewRule {
        security_group_id: group.to_owned(),
        direction: match rule.direction {
            Direction::Ingress => network::Direction::Ingress,
            Direction::Egress => network::Direction::Egress,
        },
        ethertype: match rule.range {
            IpNet::V4(_) => network::Ethertype::IPv4,
            IpNet::V6(_) => network::Ethertype::IPv6,
        },
        protocol: rule.protocol.clone(),
        port_range_min: rule.ports.map(|(first, _)| first),
        port_range_max: rule.ports.map(|(_, last)| last),
        remote_ip_prefix: Some(rule.range.to_string()),
        description: rule.description.clone(),
    }
}
