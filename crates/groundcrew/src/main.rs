//! The `groundcrew` binary.

fn main() {}
