//! Addresses as Kubernetes reads them. Up to 1.35 it takes new ones with leading zeros, and later keeps those that are
//! there; it reads the numbers as decimal. Rust refuses them.

use std::net::IpAddr;

use ipnet::IpNet;

pub(super) fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| without_leading_zeros(text).parse().ok())
}

pub(super) fn range(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| without_leading_zeros(text).parse().ok())
}

fn without_leading_zeros(text: &str) -> String {
    let numbers = text.split_inclusive(['.', ':', '/']);
    let short = numbers.map(|number| {
        let rest = number.trim_start_matches('0');
        let is_zero = rest.len() < number.len() && !rest.starts_with(|c: char| c.is_ascii_hexdigit());
        if is_zero { format!("0{rest}") } else { rest.to_owned() }
    });
    short.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_are_read_as_kubernetes_reads_them() {
        let ranges = [
            ("192.168.001.0/24", "192.168.1.0/24"),
            ("0192.168.1.0/024", "192.168.1.0/24"),
            ("10.0.0.00/08", "10.0.0.0/8"),
            ("0000.0.0.0/00", "0.0.0.0/0"),
            ("00fd0::00001/064", "fd0::1/64"),
            ("::ffff:010.0.0.1/128", "::ffff:10.0.0.1/128"),
        ];
        for (text, read) in ranges {
            assert_eq!(range(text), Some(read.parse().unwrap()), "{text}");
        }
        assert_eq!(address("010.001.0.41"), Some([10, 1, 0, 41].into()));
        assert_eq!(address("010.001.0.041").map(|a| a.to_string()), Some("10.1.0.41".into()));
    }

    #[test]
    fn what_kubernetes_cannot_read_is_not_guessed() {
        for text in ["", "everyone", "10.0.0.0", "10.0.0/8", "0x0a.0.0.0/8", "10.0.0.0/+8", "10.0.0.0/", "0256.0.0.0/8"]
        {
            assert_eq!(range(text), None, "{text}");
        }
        for text in ["", "blue", "10.0.0", "10..0.1", "10.0.0.0x1", "10.0.0.1/8"] {
            assert_eq!(address(text), None, "{text}");
        }
    }
}
