//! The bugs of `cargo run --bin mutations` still fit the source. Whether they are caught takes builds, and is not asked here.

use std::collections::BTreeSet;
use std::path::Path;

use forebay_tests::mutations::LIST;

fn root() -> &'static Path {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("the tests are a member of the workspace")
}

#[test]
fn every_mutation_still_applies_to_the_source_and_changes_it() {
    for mutation in LIST {
        let mutated = mutation.mutated(root()).unwrap_or_else(|stale| panic!("{stale}"));
        let source = std::fs::read_to_string(root().join(mutation.file)).unwrap();
        assert_ne!(mutated, source, "{}", mutation.name);
    }
}

#[test]
fn no_two_mutations_have_one_name() {
    let names: BTreeSet<_> = LIST.iter().map(|mutation| mutation.name).collect();
    assert_eq!(names.len(), LIST.len());
}
