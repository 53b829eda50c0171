//! Which crate may use which, what the top of the repository holds, and that every dependency has its reason.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use forebay_tests::template::WORKSPACE;
use serde_json::Value;

/// Every crate of ours: its folder, its manifest, and what it depends on by name.
struct Crates(BTreeMap<String, Crate>);

struct Crate {
    folder: String,
    manifest: String,
    uses: BTreeSet<String>,
}

fn crates() -> Crates {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--offline",
            "--no-deps",
            "--format-version",
            "1",
            "--manifest-path",
        ])
        .arg(format!("{WORKSPACE}/Cargo.toml"))
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let root = metadata["workspace_root"].as_str().unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter().map(|package| {
        let path = package["manifest_path"].as_str().unwrap();
        let folder = path
            .strip_prefix(root)
            .unwrap()
            .trim_matches('/')
            .trim_end_matches("/Cargo.toml");
        let uses = package["dependencies"].as_array().unwrap().iter();
        let uses = uses.map(|dependency| dependency["name"].as_str().unwrap().to_owned());
        let known = Crate {
            folder: folder.to_owned(),
            manifest: std::fs::read_to_string(path).unwrap(),
            uses: uses.collect(),
        };
        (package["name"].as_str().unwrap().to_owned(), known)
    });
    Crates(packages.collect())
}

#[test]
fn functions_use_adapters_adapters_use_the_core_and_the_core_uses_nothing_of_ours() {
    let Crates(crates) = crates();
    let ours: BTreeSet<&str> = crates.keys().map(String::as_str).collect();
    for (name, known) in &crates {
        let used: BTreeSet<&str> = known
            .uses
            .iter()
            .map(String::as_str)
            .filter(|used| ours.contains(used))
            .collect();
        assert!(!used.contains("forebay-tests"), "{name} depends on the tests");
        let may: &[&str] = match known.folder.split('/').next() {
            Some("shared") if name == "forebay-core" => &[],
            Some("shared") => &["forebay-core"],
            Some("functions") => &["forebay-core", "forebay-aws"],
            // The operator's command and the tests use everything.
            _ => continue,
        };
        assert!(used.iter().all(|used| may.contains(used)), "{name} uses {used:?}");
    }
    assert!(ours.is_superset(&BTreeSet::from([
        "forebay-core",
        "forebay-aws",
        "webhook",
        "forebay",
        "forebay-tests"
    ])));
}

#[test]
fn the_core_has_no_way_to_the_world() {
    let Crates(crates) = crates();
    let uses = &crates["forebay-core"].uses;
    for word in ["tokio", "aws", "lambda", "http", "rand", "getrandom", "tracing"] {
        assert!(uses.iter().all(|used| !used.starts_with(word)), "{word}: {uses:?}");
    }
}

#[test]
fn every_crate_obeys_the_workspaces_lints() {
    for (name, known) in &crates().0 {
        assert!(known.manifest.contains("[lints]\nworkspace = true"), "{name}");
    }
}

#[test]
fn every_dependency_says_why_it_is_there() {
    let manifest = std::fs::read_to_string(format!("{WORKSPACE}/Cargo.toml")).unwrap();
    let lines: Vec<&str> = manifest.lines().collect();
    let start = lines
        .iter()
        .position(|line| *line == "[workspace.dependencies]")
        .unwrap();
    let mut reason = false;
    for line in lines[start + 1..].iter().take_while(|line| !line.starts_with('[')) {
        let is_dependency = line.contains(" = ") && !line.starts_with('#') && !line.contains("path = ");
        assert!(reason || !is_dependency, "no comment above: {line}");
        reason = line.starts_with("# ");
    }
}

#[test]
fn the_top_level_holds_what_the_design_names_and_nothing_else() {
    let named = [
        "Cargo.toml",
        "Cargo.lock",
        "README.md",
        "LICENSE",
        "functions",
        "shared",
        "infra",
        "tests",
        "events",
    ];
    for entry in std::fs::read_dir(WORKSPACE).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // Tool settings are dotfiles; what is built is ignored by Git.
        let expected = named.contains(&name.as_str()) || name.starts_with('.') || name == "target";
        assert!(expected, "{name} has no place at the top level");
    }
}
