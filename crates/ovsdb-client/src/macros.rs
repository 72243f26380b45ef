//! The two macros that declare what to replicate.

/// Declares a row type for one table.
///
/// Each field is the column of its name. A column marked `= optional` may be missing from the server's schema; it then has
/// its default value. Fields have types that implement [`Column`](crate::column::Column). Indexes follow the
/// columns, each with a function from the row to its keys (an `Option`, a `Vec`, any iterable).
///
/// After `where` stands what a row must be like to be replicated at all, so that a few rows of a large table cost no
/// more than those: `where r#type == "router"`, or `where external_ids["owner"] == "me"` for a pair of a map. It
/// names a column that every server has. A row that comes to fit appears, and one that fits no more is gone. A server
/// that knows nothing but the plain `monitor` of RFC 7047 sends every row.
///
/// ```
/// use std::sync::Arc;
/// use ovsdb_client::{Set, StrMap, Uuid};
///
/// ovsdb_client::table! {
///     /// Virtual addresses and their backends.
///     pub struct LoadBalancer = "Load_Balancer" {
///         pub name: Arc<str>,
///         pub vips: StrMap,
///         pub protocol: Option<Box<str>>,
///         pub health_check: Set<Uuid>,
///         pub external_ids: StrMap,
///         pub ip_port_mappings: StrMap = optional,
///     }
///     indexes LoadBalancersBy {
///         name: Arc<str> = |row| Some(row.name.clone()),
///         owner: Arc<str> = |row| row.external_ids.get("owner").map(Arc::from),
///     }
/// }
/// ```
#[macro_export]
macro_rules! table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $row:ident = $table:literal $(where $only:ident $([$pair:literal])? == $value:literal)? {
            $( $(#[$field_meta:meta])* $field_vis:vis $field:ident : $type:ty $(= $presence:ident)? ),* $(,)?
        }
        $(
            $(#[$index_meta:meta])*
            indexes $indexes:ident { $( $(#[$key_meta:meta])* $index:ident : $key:ty = |$arg:ident| $keys:expr ),* $(,)? }
        )?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq)]
        $vis struct $row { $( $(#[$field_meta])* $field_vis $field: $type ),* }

        const _: () = {
            use $crate::__private::{Column, ColumnSeed, ColumnSpec, IgnoredAny, Key, MapAccess};

            impl $row {
                fn columns<'de, A: MapAccess<'de>, const CHANGE: bool>(&mut self, mut columns: A) -> ::core::result::Result<(), A::Error> {
                    while let Some(Key(column)) = columns.next_key()? {
                        $( if *column == *$crate::table!(@name $field) {
                            columns.next_value_seed(ColumnSeed::<$type, CHANGE>(&mut self.$field))?;
                            continue;
                        } )*
                        columns.next_value::<IgnoredAny>()?;
                    }
                    Ok(())
                }
            }

            impl $crate::Row for $row {
                const TABLE: &'static str = $table;
                const COLUMNS: &'static [ColumnSpec] = &[ $( ColumnSpec {
                    name: $crate::table!(@name $field),
                    optional: $crate::table!(@optional $($presence)?),
                    fits: <$type as Column>::fits,
                    rust_type: stringify!($type),
                } ),* ];
                type Indexes = $crate::table!(@indexes $($indexes)?);

                $( fn condition() -> Option<$crate::Condition> {
                    Some($crate::table!(@condition $only $([$pair])? == $value))
                } )?
                fn read<'de, A: MapAccess<'de>>(&mut self, columns: A) -> ::core::result::Result<(), A::Error> {
                    self.columns::<A, false>(columns)
                }
                fn change<'de, A: MapAccess<'de>>(&mut self, columns: A) -> ::core::result::Result<(), A::Error> {
                    self.columns::<A, true>(columns)
                }
            }
        };

        $(
            $(#[$index_meta])*
            #[doc = concat!("The indexes of [`", stringify!($row), "`].")]
            #[derive(Debug, Clone, Default)]
            $vis struct $indexes {
                $( $(#[$key_meta])* #[doc = concat!("By `", stringify!($index), "`.")] $vis $index: $crate::Index<$key> ),*
            }

            impl $crate::RowIndexes<$row> for $indexes {
                fn update(&mut self, uuid: $crate::Uuid, before: Option<&$row>, after: Option<&$row>) {
                    $( {
                        let keys = |$arg: &$row| $keys;
                        self.$index.update(uuid, before.into_iter().flat_map(keys), after.into_iter().flat_map(keys));
                    } )*
                }
            }
        )?
    };
    // Columns are lower case with underscores in every schema, and so are fields; `r#type` is the column `type`.
    (@name $field:ident) => {
        const { $crate::__private::column_name(stringify!($field)) }
    };
    (@condition $column:ident == $value:literal) => {
        $crate::Condition::eq($crate::table!(@name $column), $value)
    };
    (@condition $column:ident [$key:literal] == $value:literal) => {
        $crate::Condition::includes($crate::table!(@name $column), $crate::Value::map([($key, $value)]))
    };
    (@optional) => { false };
    (@optional optional) => { true };
    (@indexes) => { $crate::__private::NoIndexes };
    (@indexes $indexes:ident) => { $indexes };
}

/// Declares the tables of one database that are replicated together.
///
/// A table marked `= optional` may be missing from the server's schema; it is then empty.
///
/// ```
/// # ovsdb_client::table! { pub struct LoadBalancer = "Load_Balancer" { pub name: String } }
/// # ovsdb_client::table! { pub struct Template = "Chassis_Template_Var" { pub chassis: String } }
/// ovsdb_client::database! {
///     /// What we read of the northbound database.
///     pub struct Northbound = "OVN_Northbound" {
///         pub load_balancers: LoadBalancer,
///         pub templates: Template = optional,
///     }
/// }
/// ```
#[macro_export]
macro_rules! database {
    (
        $(#[$meta:meta])*
        $vis:vis struct $database:ident = $name:literal {
            $( $(#[$field_meta:meta])* $field_vis:vis $field:ident : $row:ty $(= $presence:ident)? ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default)]
        $vis struct $database { $( $(#[$field_meta])* $field_vis $field: $crate::Table<$row> ),* }

        const _: () = {
            use $crate::__private::{IgnoredAny, MapAccess};
            use $crate::schema::{check, Schema, SchemaError, TableSpec, Wanted};

            impl $crate::Database for $database {
                fn name(&self) -> &str {
                    $name
                }
                fn empty(&self, schema: &Schema) -> ::core::result::Result<(Self, Wanted), SchemaError> {
                    let wanted = check(schema, &[ $( TableSpec {
                        name: <$row as $crate::Row>::TABLE,
                        optional: $crate::table!(@optional $($presence)?),
                        columns: <$row as $crate::Row>::COLUMNS,
                    } ),* ])?;
                    Ok((Self::default(), wanted))
                }
                fn condition(&self, table: &str) -> Option<$crate::Condition> {
                    $( if table == <$row as $crate::Row>::TABLE {
                        return <$row as $crate::Row>::condition();
                    } )*
                    None
                }
                fn apply<'de, A: MapAccess<'de>>(
                    &mut self,
                    table: &str,
                    updates: &mut A,
                    touched: &mut $crate::Touched,
                ) -> ::core::result::Result<(), A::Error> {
                    $( if table == <$row as $crate::Row>::TABLE {
                        return self.$field.apply(updates, touched);
                    } )*
                    updates.next_value::<IgnoredAny>().map(|_| ())
                }
            }
        };
    };
}
