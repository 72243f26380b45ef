use std::fmt;
use std::str::FromStr;

const PLACEHOLDER: &str = "{namespace}";

/// A name with a place for the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(String);

impl Template {
    /// The name for this namespace.
    #[must_use]
    pub fn of(&self, namespace: &str) -> String {
        self.0.replace(PLACEHOLDER, namespace)
    }
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.replace(PLACEHOLDER, "").contains(['{', '}']) {
            return Err(format!("the only placeholder is {PLACEHOLDER}"));
        }
        if text.is_empty() {
            return Err("a name cannot be empty".into());
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_one_placeholder_only() {
        assert_eq!("vpc-{namespace}".parse::<Template>().unwrap().of("shop"), "vpc-shop");
        assert_eq!("lr0".parse::<Template>().unwrap().of("shop"), "lr0");
        assert!("{ns}".parse::<Template>().is_err());
        assert!("".parse::<Template>().is_err());
    }
}
