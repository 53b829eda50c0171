//! What the README says of calls, units and dollars.

use forebay_tests::counts::{Counted, recordings};

#[tokio::test]
async fn the_readme_shows_what_is_counted_and_no_bar_is_missed() {
    let counted = Counted::of(&recordings()).await;
    assert_eq!(counted.missed(), [""; 0], "\n{counted}");
    let readme = include_str!("../../README.md");
    for table in counted.to_string().split("\n\n") {
        let table = table.trim_end();
        assert!(
            readme.contains(table),
            "run `cargo run --bin counts` and put its table into README:\n{table}"
        );
    }
}
