//! Values as OVSDB writes them: atoms, sets and maps.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeTuple, Serializer};
use uuid::Uuid;

use crate::column::StrMap;

/// One scalar.
#[derive(Debug, Clone, PartialEq)]
pub enum Atom {
    /// A string.
    String(String),
    /// A 64-bit integer.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// A boolean.
    Boolean(bool),
    /// The UUID of a row.
    Uuid(Uuid),
    /// A row that the same transaction inserts under this name.
    NamedUuid(String),
}

/// What a column holds.
#[derive(Debug, Clone)]
pub enum Value {
    /// Exactly one atom.
    Atom(Atom),
    /// Any number of atoms, an optional column being a set of at most one.
    Set(Vec<Atom>),
    /// Pairs with distinct keys.
    Map(Vec<(Atom, Atom)>),
    /// Pairs of strings as a row of a replica has them, to be written. What is read is a [`Value::Map`].
    StrMap(StrMap),
}

impl Value {
    /// A set of whatever turns into atoms.
    pub fn set<A: Into<Atom>>(atoms: impl IntoIterator<Item = A>) -> Self {
        Self::Set(atoms.into_iter().map(Into::into).collect())
    }

    /// A map of whatever turns into atoms.
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Map(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Atom(one), Self::Atom(other)) => one == other,
            (Self::Set(one), Self::Set(other)) => one == other,
            (Self::Map(one), Self::Map(other)) => one == other,
            (Self::StrMap(one), Self::StrMap(other)) => one == other,
            (Self::Map(pairs), Self::StrMap(map)) | (Self::StrMap(map), Self::Map(pairs)) => {
                let is = |atom: &Atom, text: &str| matches!(atom, Atom::String(own) if own == text);
                pairs.len() == map.len()
                    && pairs.iter().zip(map.iter()).all(|((k, v), (key, value))| is(k, key) && is(v, value))
            }
            _ => false,
        }
    }
}

impl Atom {
    /// A reference to a row that the same transaction inserts with [`Insert::named`](crate::ops::Insert::named).
    pub fn named_uuid(name: impl Into<String>) -> Self {
        Self::NamedUuid(name.into())
    }
}

macro_rules! atom_from {
    ($($from:ty => $variant:ident),*) => {$(
        impl From<$from> for Atom {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        }
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::Atom(value.into())
            }
        }
    )*};
}
atom_from!(String => String, &str => String, &String => String, Box<str> => String, Cow<'_, str> => String,
    i64 => Integer, i32 => Integer, u32 => Integer, u16 => Integer, f64 => Real, bool => Boolean, Uuid => Uuid);

impl From<std::sync::Arc<str>> for Atom {
    fn from(text: std::sync::Arc<str>) -> Self {
        Self::String(text.as_ref().into())
    }
}

impl From<Atom> for Value {
    fn from(atom: Atom) -> Self {
        Self::Atom(atom)
    }
}

impl<A: Into<Atom>> From<Option<A>> for Value {
    fn from(atom: Option<A>) -> Self {
        Self::set(atom)
    }
}

impl<A: Into<Atom>> From<Vec<A>> for Value {
    fn from(atoms: Vec<A>) -> Self {
        Self::set(atoms)
    }
}

impl<A: Into<Atom>> From<BTreeSet<A>> for Value {
    fn from(atoms: BTreeSet<A>) -> Self {
        Self::set(atoms)
    }
}

impl<K: Into<Atom>, V: Into<Atom>> From<BTreeMap<K, V>> for Value {
    fn from(pairs: BTreeMap<K, V>) -> Self {
        Self::map(pairs)
    }
}

impl Serialize for Atom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::String(text) => serializer.serialize_str(text),
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Real(number) => serializer.serialize_f64(*number),
            Self::Boolean(flag) => serializer.serialize_bool(*flag),
            Self::Uuid(uuid) => tagged("uuid", &uuid.hyphenated(), serializer),
            Self::NamedUuid(name) => tagged("named-uuid", name, serializer),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Atom(atom) => atom.serialize(serializer),
            Self::Set(atoms) => tagged("set", atoms, serializer),
            Self::Map(pairs) => tagged("map", pairs, serializer),
            Self::StrMap(map) => tagged("map", &Pairs(map), serializer),
        }
    }
}

struct Pairs<'a>(&'a StrMap);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter())
    }
}

fn tagged<S: Serializer>(tag: &str, content: &impl Serialize, serializer: S) -> Result<S::Ok, S::Error> {
    let mut tuple = serializer.serialize_tuple(2)?;
    tuple.serialize_element(tag)?;
    tuple.serialize_element(content)?;
    tuple.end()
}

impl<'de> Deserialize<'de> for Atom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Atom(atom) => Ok(atom),
            _ => Err(de::Error::custom("expected one atom, found a set or a map")),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyValue;

        impl<'de> Visitor<'de> for AnyValue {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an OVSDB value")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
                Ok(text.into())
            }
            fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Value, E> {
                Ok(flag.into())
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Value, E> {
                Ok(number.into())
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Value, E> {
                i64::try_from(number).map(Into::into).map_err(E::custom)
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Value, E> {
                Ok(number.into())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
                let tag: Cow<'de, str> = element(&mut seq)?;
                match tag.as_ref() {
                    "uuid" => Ok(element::<Uuid, A>(&mut seq)?.into()),
                    "named-uuid" => Ok(Atom::NamedUuid(element(&mut seq)?).into()),
                    "set" => Ok(Value::Set(element(&mut seq)?)),
                    "map" => Ok(Value::Map(element(&mut seq)?)),
                    other => Err(de::Error::unknown_variant(other, &["uuid", "named-uuid", "set", "map"])),
                }
            }
        }

        deserializer.deserialize_any(AnyValue)
    }
}

fn element<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(seq: &mut A) -> Result<T, A::Error> {
    seq.next_element()?.ok_or_else(|| de::Error::custom("a tagged value has two elements"))
}

/// As `ovsdb-client` prints them: `{a=1, b=2}`, `[x, y]`, `"text"`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Atom(atom) => write!(f, "{atom}"),
            Self::Set(atoms) => {
                f.write_str("[")?;
                for (n, atom) in atoms.iter().enumerate() {
                    write!(f, "{}{atom}", if n == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Map(pairs) => {
                f.write_str("{")?;
                for (n, (key, value)) in pairs.iter().enumerate() {
                    write!(f, "{}{key}={value}", if n == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
            Self::StrMap(map) => write!(f, "{}", Self::map(map.iter())),
        }
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String(text) => write!(f, "{text:?}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Real(number) => write!(f, "{number}"),
            Self::Boolean(flag) => write!(f, "{flag}"),
            Self::Uuid(uuid) => write!(f, "{uuid}"),
            Self::NamedUuid(name) => write!(f, "@{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_look_as_rfc_7047_writes_them_and_come_back() {
        let uuid = Uuid::from_u128(7);
        let text = uuid.to_string();
        for (value, wire) in [
            (Value::from("x"), json!("x")),
            (Value::from(-5), json!(-5)),
            (Value::from(true), json!(true)),
            (Value::from(1.5), json!(1.5)),
            (Value::from(uuid), json!(["uuid", text])),
            (Value::from(Atom::named_uuid("row1")), json!(["named-uuid", "row1"])),
            (Value::set(Vec::<i64>::new()), json!(["set", []])),
            (Value::set([uuid]), json!(["set", [["uuid", text]]])),
            (Value::map([("k", 1)]), json!(["map", [["k", 1]]])),
        ] {
            assert_eq!(serde_json::to_value(&value).unwrap(), wire);
            assert_eq!(serde_json::from_value::<Value>(wire).unwrap(), value);
        }
    }

    #[test]
    fn strings_of_a_row_are_written_and_compared_as_any_map() {
        let pairs = [("a", "1"), ("b", "\"2\"")];
        let (map, row) = (Value::map(pairs), Value::from(&pairs.into_iter().collect::<StrMap>()));
        assert!(matches!(row, Value::StrMap(_)));
        assert_eq!(serde_json::to_value(&row).unwrap(), serde_json::to_value(&map).unwrap());
        assert_eq!(row.to_string(), map.to_string());
        assert_eq!(row, map);
        assert_eq!(map, row);
        for other in [Value::map([("a", "1")]), Value::map([("a", "1"), ("b", "3")]), Value::map([("a", 1), ("b", 2)])]
        {
            assert!(row != other);
        }
    }

    #[test]
    fn a_broken_tag_is_an_error() {
        for wire in [json!([]), json!(["uuid"]), json!(["uuid", "x"]), json!(["bag", []]), json!({}), json!(null)] {
            assert!(serde_json::from_value::<Value>(wire).is_err());
        }
    }
}
