//! Rust types that hold a column, read straight from the bytes of a message.

mod block_set;
mod map;
mod set;
mod str_map;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};
use uuid::Uuid;

pub use block_set::BlockSet;
pub use map::Map;
pub use set::Set;
pub use str_map::StrMap;

use crate::schema::{AtomKind, ColumnType};

/// A type that a row's field can have.
///
/// Implemented for [`Scalar`]s, `Option` of one, [`Set`], [`BlockSet`], [`Map`] and [`StrMap`].
pub trait Column: Default + Clone + Send + Sync + 'static {
    /// Reads the column's whole value.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;

    /// Reads a change and applies it: the new value for scalars, a difference for sets and maps.
    fn change<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        *self = Self::read(deserializer)?;
        Ok(())
    }

    /// Whether a column of this type fits. A set and an optional are not the same: only sets are sent as differences.
    fn fits(column: &ColumnType) -> bool;
}

/// A type that one atom turns into.
pub trait Scalar: Default + Clone + Ord + Send + Sync + 'static {
    /// The atom's type in the schema.
    const KIND: AtomKind;

    /// `None` for an atom of another type.
    fn from_wire(atom: WireAtom<'_>) -> Option<Self>;
}

/// An atom as it stands in a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WireAtom<'a> {
    /// A string.
    Text(&'a str),
    /// A number without a fraction.
    Integer(i64),
    /// Any other number.
    Real(f64),
    /// A boolean.
    Boolean(bool),
    /// A row's UUID.
    Uuid(Uuid),
}

/// A floating-point column. Ordered, so that it can be a set's element.
#[derive(Debug, Clone, Copy, Default)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Real {}
impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Real {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

macro_rules! scalar {
    ($($type:ty, $kind:ident, $($atom:pat => $value:expr),+;)*) => {$(
        impl Scalar for $type {
            const KIND: AtomKind = AtomKind::$kind;
            fn from_wire(atom: WireAtom<'_>) -> Option<Self> {
                match atom {
                    $($atom => Some($value),)+
                    _ => None,
                }
            }
        }
    )*};
}
scalar! {
    String, String, WireAtom::Text(text) => text.into();
    Box<str>, String, WireAtom::Text(text) => text.into();
    Arc<str>, String, WireAtom::Text(text) => text.into();
    i64, Integer, WireAtom::Integer(number) => number;
    bool, Boolean, WireAtom::Boolean(flag) => flag;
    Uuid, Uuid, WireAtom::Uuid(uuid) => uuid;
    // The server writes 2.0 as 2.
    Real, Real, WireAtom::Real(number) => Self(number), WireAtom::Integer(number) => Self(whole(number));
}

#[allow(clippy::cast_precision_loss, reason = "a real that was written without a fraction")]
fn whole(number: i64) -> f64 {
    number as f64
}

impl<S: Scalar> Column for S {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneAtom::<S>(PhantomData))
    }
    fn fits(column: &ColumnType) -> bool {
        column.key == S::KIND && column.value.is_none() && column.min == 1 && column.max == 1
    }
}

impl<S: Scalar> Column for Option<S> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut atoms = read_atoms(deserializer)?;
        let atom = atoms.pop();
        if atoms.is_empty() { Ok(atom) } else { Err(de::Error::custom("an optional column with several values")) }
    }
    fn fits(column: &ColumnType) -> bool {
        column.key == S::KIND && column.value.is_none() && column.min == 0 && column.max == 1
    }
}

/// Reads a set in either of its notations: `["set", [...]]`, or the bare atom where there is exactly one.
fn read_atoms<'de, S: Scalar, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<S>, D::Error> {
    deserializer.deserialize_any(Atoms(PhantomData))
}

fn scalar<S: Scalar, E: de::Error>(atom: WireAtom<'_>) -> Result<S, E> {
    S::from_wire(atom).ok_or_else(|| mismatch::<S, E>(format_args!("{atom:?}")))
}

fn mismatch<S: Scalar, E: de::Error>(found: impl fmt::Display) -> E {
    E::custom(format_args!("expected {:?}, found {found}", S::KIND))
}

/// The methods by which serde reports a scalar, each ending in `$wrap`.
macro_rules! visit_scalars {
    ($wrap:expr) => {
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            scalar(WireAtom::Text(text)).map($wrap)
        }
        fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Self::Value, E> {
            scalar(WireAtom::Boolean(flag)).map($wrap)
        }
        fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
            scalar(WireAtom::Integer(number)).map($wrap)
        }
        fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
            self.visit_i64(i64::try_from(number).map_err(E::custom)?)
        }
        fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
            scalar(WireAtom::Real(number)).map($wrap)
        }
    };
}

/// Visits exactly one atom.
struct OneAtom<S>(PhantomData<S>);

impl<'de, S: Scalar> Visitor<'de> for OneAtom<S> {
    type Value = S;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one atom of type {:?}", S::KIND)
    }
    visit_scalars!(|atom| atom);

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<S, A::Error> {
        match seq.next_element()? {
            Some(Tag::Uuid) => rest_of_uuid(&mut seq),
            tag => Err(mismatch::<S, _>(format_args!("{tag:?}"))),
        }
    }
}

impl<'de, S: Scalar> DeserializeSeed<'de> for OneAtom<S> {
    type Value = S;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Visits a set.
struct Atoms<S>(PhantomData<S>);

impl<'de, S: Scalar> Visitor<'de> for Atoms<S> {
    type Value = Vec<S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a set of {:?}", S::KIND)
    }
    visit_scalars!(|atom| vec![atom]);

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<S>, A::Error> {
        match seq.next_element()? {
            Some(Tag::Uuid) => Ok(vec![rest_of_uuid(&mut seq)?]),
            Some(Tag::Set) => {
                seq.next_element_seed(Elements(PhantomData))?.ok_or_else(|| mismatch::<S, _>("half a set"))
            }
            tag => Err(mismatch::<S, _>(format_args!("{tag:?}"))),
        }
    }
}

/// The inner list of a set.
struct Elements<S>(PhantomData<S>);

impl<'de, S: Scalar> Visitor<'de> for Elements<S> {
    type Value = Vec<S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the elements of a set")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<S>, A::Error> {
        let mut atoms = Vec::new();
        while let Some(atom) = seq.next_element_seed(OneAtom(PhantomData))? {
            atoms.push(atom);
        }
        Ok(atoms)
    }
}

impl<'de, S: Scalar> DeserializeSeed<'de> for Elements<S> {
    type Value = Vec<S>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<S>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

fn rest_of_uuid<'de, S: Scalar, A: SeqAccess<'de>>(seq: &mut A) -> Result<S, A::Error> {
    let uuid = seq.next_element()?.ok_or_else(|| mismatch::<S, A::Error>("half a uuid"))?;
    scalar(WireAtom::Uuid(uuid))
}

/// The first element of a tagged value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Tag {
    Uuid,
    Set,
    Map,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read<C: Column>(wire: &serde_json::Value) -> Result<C, String> {
        C::read(wire).map_err(|error| error.to_string())
    }

    #[test]
    fn scalars_and_optionals_read_both_notations_of_a_set() {
        let uuid = Uuid::from_u128(9);
        assert_eq!(read::<String>(&json!("x")), Ok("x".into()));
        assert_eq!(read::<i64>(&json!(-3)), Ok(-3));
        assert_eq!(read::<Real>(&json!(2)), Ok(Real(2.0)));
        assert_eq!(read::<bool>(&json!(true)), Ok(true));
        assert_eq!(read::<Uuid>(&json!(["uuid", uuid.to_string()])), Ok(uuid));
        assert_eq!(read::<Option<i64>>(&json!(["set", []])), Ok(None));
        assert_eq!(read::<Option<i64>>(&json!(4)), Ok(Some(4)));
        assert_eq!(read::<Option<Uuid>>(&json!(["set", [["uuid", uuid.to_string()]]])), Ok(Some(uuid)));
    }

    #[test]
    fn a_value_of_another_type_is_an_error_that_says_so() {
        assert_eq!(read::<i64>(&json!("x")), Err("expected Integer, found Text(\"x\")".into()));
        assert!(read::<String>(&json!(["set", ["a"]])).is_err());
        assert!(read::<Option<i64>>(&json!(["set", [1, 2]])).is_err());
        assert!(read::<Uuid>(&json!(["uuid", "not one"])).is_err());
    }
}
