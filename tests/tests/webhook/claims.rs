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

/// The tests in a source file, which is at `path` from the root: all of it, or its module of tests, if it has one.
fn tests_in<'a>(path: &Path, text: &'a str) -> &'a str {
    let is_named_so = path.to_str().is_some_and(|path| path.ends_with("tests.rs"));
    // The first folder is one of the workspace's, and only its name is `tests`.
    let lies_in_tests = path
        .parent()
        .is_some_and(|folder| folder.iter().skip(1).any(|name| name == "tests"));
    if is_named_so || lies_in_tests {
        return text;
    }
    text.find("#[cfg(test)]\nmod tests").map_or("", |start| &text[start..])
}

/// All our tests, as one text.
fn tests() -> String {
    fn add(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                add(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(tests_in(&path, &std::fs::read_to_string(entry.path()).unwrap()));
            }
        }
    }
    let mut text = String::new();
    for folder in ["shared", "functions", "infra", "tests"] {
        add(Path::new(folder), &mut text);
    }
    text
}

fn check_all_named(ids: &[String]) {
    let tests = tests();
    let missing: Vec<_> = ids.iter().filter(|id| !tests.contains(id.as_str())).collect();
    assert!(missing.is_empty(), "no test names these: {missing:?}");
}

#[test]
fn only_tests_name_a_case() {
    let text = "/// CASE-01\nfn code() {}\n\n#[cfg(test)]\nmod tests {\n    // CASE-02\n}\n";
    let module = &text[text.find("#[cfg").unwrap()..];
    for (path, counted) in [
        ("tests/tests/github.rs", text),
        ("tests/tests/webhook/claims.rs", text),
        ("functions/webhook/tests/misconfigured.rs", text),
        ("shared/aws/src/config/tests.rs", text),
        ("shared/core/src/source/github/feed_tests.rs", text),
        ("tests/src/model.rs", module),
        ("shared/aws/src/config.rs", module),
    ] {
        assert_eq!(tests_in(Path::new(path), text), counted, "{path}");
    }
    let code = "/// CASE-01\n#[cfg(test)]\nconst LIMIT: usize = 1;\n";
    assert_eq!(tests_in(Path::new("tests/src/model.rs"), code), "");
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
