//! The guide for providers.

use std::fs;

use crate::repository;

#[test]
fn the_code_of_the_guide_is_that_of_the_example() {
    let guide = fs::read_to_string(repository("docs/write-a-provider.md")).unwrap();
    let example = fs::read_to_string(repository("examples/provider-hello/src/main.rs")).unwrap();
    let blocks: Vec<_> = guide.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() > 3, "{} blocks", blocks.len());
    for block in blocks {
        assert!(example.contains(block), "this is not in examples/provider-hello/src/main.rs:\n{block}");
    }
}
