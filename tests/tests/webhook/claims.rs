//! Every case of the collection and every behaviour of the source systems is named by a test. The collection is not part of this
//! repository.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::corpora::beside;

/// The behaviours of the source systems, by number.
fn behaviours() -> Vec<String> {
    let first = (1..=14).map(|n| format!("S1-{n:02}"));
    let second = (1..=20).map(|n| format!("S2-{n:02}"));
    let third = (1..=27).map(|n| format!("S3-{n:02}"));
    first.chain(second).chain(third).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// All our sources, as one text.
fn sources() -> String {
    fn add(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut text = String::new();
    for folder in ["shared", "functions", "infra", "tests"] {
        add(&root().join(folder), &mut text);
    }
    text
}

fn check_all_named(ids: &[String]) {
    let sources = sources();
    let missing: Vec<_> = ids.iter().filter(|id| !sources.contains(id.as_str())).collect();
    assert!(missing.is_empty(), "no test names these: {missing:?}");
}

#[test]
fn every_behaviour_of_the_source_systems_is_named_by_a_test() {
    check_all_named(&behaviours());
}

#[test]
fn every_case_of_the_collection_is_named_by_a_test() {
    let Some(file): Option<PathBuf> = beside("cases/cases.json") else {
        println!("skipped: no file shared/cases/cases.json beside the repository");
        return;
    };
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let ids = cases.iter().map(|case| case["id"].as_str().unwrap().to_owned());
    let ids: Vec<String> = ids.collect();
    assert!(ids.len() > 150, "{}", ids.len());
    check_all_named(&ids);
}
