//! What a server sends, cut anywhere: the frames must not depend on the cuts, and no update may do harm.
//!
//! `cargo +nightly fuzz run monitor`, from `crates/ovsdb-client`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ovsdb_client::codec::Scanner;
use ovsdb_client::{Map, Set, StrMap, Touched, Uuid, apply};

ovsdb_client::table! {
    pub struct Thing = "T" {
        pub name: Box<str>,
        pub number: Option<i64>,
        pub refs: Set<Uuid>,
        pub notes: StrMap,
        pub counts: Map<Box<str>, i64>,
    }
    indexes ThingsBy {
        name: Box<str> = |row| Some(row.name.clone()),
        refs: Uuid = |row| row.refs.to_vec(),
    }
}
ovsdb_client::database! {
    pub struct Things = "Things" { pub things: Thing }
}

/// Where messages end, or nothing if the bytes are no messages.
fn ends<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Option<Vec<usize>> {
    let mut scanner = Scanner::default();
    let mut ends = Vec::new();
    let mut offset = 0;
    for piece in pieces {
        let mut at = 0;
        while let Some(n) = scanner.scan(&piece[at..]).ok()? {
            at += n;
            ends.push(offset + at);
        }
        offset += piece.len();
    }
    Some(ends)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let whole = ends(std::iter::once(bytes));
    let pieces = ends(bytes.chunks(usize::from(cut).max(1)));
    assert_eq!(whole, pieces);

    let mut things = Things::default();
    let mut start = 0;
    for end in whole.unwrap_or_default() {
        let message = &bytes[start..end];
        start = end;
        let Ok(json) = std::str::from_utf8(message) else { continue };
        let mut next = things.clone();
        if apply(json, &mut next, &mut Touched::default()).is_ok() {
            // The indexes say exactly what the rows say.
            let names = next
                .things
                .iter()
                .map(|(uuid, row)| (row.name.clone(), uuid))
                .collect::<std::collections::BTreeSet<_>>();
            assert!(next.things.indexes().name.iter().map(|(name, uuid)| (name.clone(), uuid)).eq(names));
            things = next;
        }
    }
});
