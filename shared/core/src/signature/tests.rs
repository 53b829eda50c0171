//! Recorded signatures, and everything that must not pass for one.

use std::path::{Path, PathBuf};
use std::{fs, iter};

use serde_json::{Value, json};

use super::*;
use crate::testing::repository;

const A: &str = "hook-secret-A";
/// HMAC-SHA256 of `{}` under [`A`].
const A_SIGNED: &str = "sha256=3a6344e8ab25db650c22221bf5e0b637083cc12138e101e9cb13138814f4b01c";
/// The same under `hook-secret-B`.
const B_SIGNED: &str = "sha256=d865828e0844945daa93ed805e0394824d52bf21628ddd5bb9b11915fabc3fa3";
/// The same under a secret that nobody has.
const C_SIGNED: &str = "sha256=f97ea3dac13876c7079e7f2dd5c0bec15d680d5912e6c777ab68a21eeddd9ee1";
/// The same under the empty key.
const EMPTY_SIGNED: &str = "sha256=22f8eea909400af98adf3681a9f31923ef6b7fcba4abb553d92823a3e9d5c25e";
const BODY: &[u8] = b"{}";

fn verifies(secret: &str, signature: &str, body: &[u8]) -> bool {
    Secrets::single(secret).verify(&[signature], body).is_some()
}

fn document(webhook_secret: &Value) -> String {
    json!({"github": {"webhook_secret": webhook_secret, "token": "t"}, "other": 1}).to_string()
}

fn parse(webhook_secret: &Value) -> Secrets {
    Secrets::parse(&document(webhook_secret), "").unwrap()
}

fn key_for<'a>(secrets: &'a Secrets, signature: &str, repository: Option<&Repository>) -> Option<&'a str> {
    let verified = secrets.verify(&[signature], BODY)?;
    let key_id = verified.key_for(repository)?.to_owned();
    secrets.0.iter().map(Secret::key_id).find(|known| *known == key_id)
}

#[test]
fn the_documented_vector_verifies_and_its_exact_bytes_come_back() {
    // S3-01. The example of GitHub's page on validating deliveries.
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let secrets = Secrets::single("It's a Secret to Everybody");
    let verified = secrets.verify(&[signature], b"Hello, World!").unwrap();
    assert_eq!(verified.bytes(), b"Hello, World!");
    assert_eq!(verified.key_for(None), Some("1"));
    assert!(secrets.verify(&[signature], b"Hello, World?").is_none());
    assert!(!verifies("it's a secret to everybody", signature, b"Hello, World!"));
}

#[test]
fn other_implementations_vectors_verify() {
    let beside = |folder: &Path| Some(folder.join("shared/data/signature-vectors/vectors.json")).filter(|p| p.exists());
    let found: Option<PathBuf> = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find_map(beside);
    let Some(path) = found else {
        return skip();
    };
    let vectors: Vec<Value> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    for vector in &vectors {
        let text = |field: &str| vector[field].as_str().unwrap();
        let (secret, body, signature) = (text("secret"), text("body_utf8"), text("x_hub_signature_256"));
        assert!(verifies(secret, signature, body.as_bytes()), "{}", text("source"));
        assert!(!verifies(secret, signature, format!("{body} ").as_bytes()));
    }
}

fn skip() {
    eprintln!("skipped: the recorded signature vectors are not there");
}

#[test]
fn the_exact_bytes_are_signed_whatever_they_are() {
    #[track_caller]
    fn check(case: &str, digits: &str, body: &[u8]) {
        let signature = format!("sha256={digits}");
        let secrets = Secrets::single(A);
        let verified = secrets.verify(&[&signature], body).map(|verified| verified.bytes());
        assert_eq!(verified, Some(body), "{case}");
    }
    check(
        "SIG-01: decoded bytes",
        "5a141d3c2520a03159f408872fe006eb5820338bf144c633c750caf2f5ec175b",
        br#"{"action":"created","comment":{"id":7,"body":"ship it"}}"#,
    );
    check(
        "SIG-02: text that only looks like base64",
        "8f7519386222647f71cf7f982865ad01fe1401b7c5a750e9b020b08853729717",
        b"eyJ6ZW4iOiJ4In0=",
    );
    check(
        "SIG-04: emoji",
        "13fc888a64efd139437b1a8d19a16a6696a1525c58da42a3bcab5c69e3a38f51",
        "{\"action\":\"edited\",\"issue\":{\"title\":\"Plaça – naïve 🚀🤨\"}}".as_bytes(),
    );
    check(
        "SIG-05: spacing, escapes, line ends",
        "2499f00a51e71b8578f800837656e5154b9d4f0903b24c16af169e3c4cee349e",
        b"{ \"b\" : 1,\r\n  \"a\":\"\\u00e9\\/x\", \"a2\": 1.0 }\n",
    );
    check(
        "SIG-20: not UTF-8",
        "6e2661dac23b865d4f9cedaf4f32533be63db54d0d592e295e3037535b2ef1ec",
        &[b'{', 0xFF, b'}'],
    );
}

#[test]
fn a_blank_secret_verifies_nothing() {
    // SIG-07, S2-02, invariant 7: although the signature under the empty key is right.
    for blank in ["", "   ", "\n", "\t \r\n", "\u{a0}"] {
        let all = [
            Secrets::single(blank),
            parse(&json!(blank)),
            parse(&json!([blank])),
            parse(&json!([{"secret": blank}])),
        ];
        for secrets in all {
            assert!(secrets.is_empty(), "{blank:?}");
            assert!(secrets.verify(&[EMPTY_SIGNED], BODY).is_none());
            assert!(secrets.signer().is_none());
        }
    }
}

#[test]
fn a_missing_secret_is_an_empty_list_and_not_an_error() {
    for document in [
        "{}",
        r#"{"github": null}"#,
        r#"{"github": {}}"#,
        r#"{"github": {"webhook_secret": null}}"#,
        r#"{"github": {"webhook_secret": []}}"#,
        r#"{"github": {"token": "t"}}"#,
    ] {
        assert_eq!(Secrets::parse(document, ""), Ok(Secrets::default()), "{document}");
    }
    assert!(Secrets::default().verify(&[EMPTY_SIGNED], BODY).is_none());
}

#[test]
fn no_value_of_the_secret_switches_verification_off() {
    // SIG-08
    let zeros = format!("sha256={}", "0".repeat(64));
    for magic in ["***", "disabled", "changeme", "INSECURE_NO_AUTH", "null", "false", "*"] {
        assert!(!verifies(magic, &zeros, BODY), "{magic}");
        assert!(!verifies(magic, A_SIGNED, BODY), "{magic}");
    }
}

#[test]
fn a_secret_is_used_as_its_utf8_bytes_without_unescaping() {
    // SIG-10
    let secret = "p$%\"\\'é{}=+/ z";
    let signature = "sha256=51d7009a1be9e514a0030ff64df871eba5ef64e5b721257950c9743e3e83cb3c";
    assert!(verifies(secret, signature, BODY));
    assert!(parse(&json!(secret)).verify(&[signature], BODY).is_some());
    let padded = Secrets::single(" hook-secret-A\n");
    assert!(padded.verify(&[A_SIGNED], BODY).is_none(), "nothing is trimmed either");
}

#[test]
fn what_is_not_64_digits_after_sha256_is_no_signature() {
    // SIG-11, SIG-13, S2-02
    let digits = A_SIGNED.strip_prefix(SCHEME).unwrap();
    let malformed = [
        String::new(),
        "sha256".to_owned(),
        "sha256=".to_owned(),
        "sha256=abc".to_owned(),
        digits.to_owned(),
        format!("sha256={}", "a".repeat(63)),
        format!("sha256={}", "a".repeat(65)),
        format!("sha256={}", "a".repeat(4_096)),
        format!("{A_SIGNED}0"),
        format!("{A_SIGNED} "),
        format!(" {A_SIGNED}"),
        format!("sha256= {digits}"),
        format!("sha256={}g", "a".repeat(63)),
        format!("sha256={}é", "a".repeat(62)),
        format!("SHA256={digits}"),
        format!("bogus={}", "0".repeat(64)),
        "md5=50fecc546a2261b79172dafb27e4e90d".to_owned(),
        format!("sha1={digits}"),
        format!("sha512={digits}{digits}"),
        // The older header's value in this header's place.
        "sha1=2ce49d6797d3641783baed2de644f056dfe7cf72".to_owned(),
    ];
    for signature in malformed {
        assert!(!verifies(A, &signature, BODY), "{signature}");
    }
    assert!(verifies(A, A_SIGNED, BODY));
}

#[test]
fn hex_digits_count_in_either_case() {
    // SIG-14: 32 bytes are compared, not 64 characters.
    let upper = A_SIGNED.replacen("sha256=", "", 1).to_uppercase();
    assert!(verifies(A, &format!("sha256={upper}"), BODY));
}

#[test]
fn a_missing_or_an_ambiguous_signature_is_refused() {
    // HTTP-03, S2-02
    let secrets = Secrets::single(A);
    let zeros = format!("sha256={}", "0".repeat(64));
    assert!(secrets.verify(&[], BODY).is_none());
    assert!(secrets.verify(&[&zeros, A_SIGNED], BODY).is_none());
    assert!(secrets.verify(&[A_SIGNED, &zeros], BODY).is_none());
    assert!(secrets.verify(&[A_SIGNED, A_SIGNED], BODY).is_none());
    for joined in [format!("{zeros},{A_SIGNED}"), format!("{A_SIGNED}, {A_SIGNED}")] {
        assert!(secrets.verify(&[&joined], BODY).is_none(), "{joined}");
    }
}

#[test]
fn every_secret_of_a_rotation_verifies_and_no_other() {
    // SIG-19: the blank entry between them is no key.
    let secrets = parse(&json!(["hook-secret-B", "", A]));
    assert_eq!(key_for(&secrets, B_SIGNED, None), Some("1"));
    assert_eq!(key_for(&secrets, A_SIGNED, None), Some("3"));
    assert_eq!(key_for(&secrets, C_SIGNED, None), None);
    assert_eq!(key_for(&secrets, EMPTY_SIGNED, None), None);
    assert_eq!(secrets.signer().map(Secret::key_id), Some("1"));
}

#[test]
fn two_versions_of_a_document_are_both_accepted_and_told_apart_by_key_id() {
    let current = Secrets::parse(&document(&json!(["hook-secret-B", A])), "").unwrap();
    let previous = Secrets::parse(&document(&json!([A, "older"])), "previous-").unwrap();
    let both = current.and(previous);
    let ids: Vec<_> = both.0.iter().map(Secret::key_id).collect();
    assert_eq!(
        ids,
        ["1", "2", "previous-2"],
        "a secret that stayed keeps its current id"
    );
    assert_eq!(key_for(&both, A_SIGNED, None), Some("2"));
}

#[test]
fn a_secret_speaks_only_for_the_repositories_that_it_is_limited_to() {
    // S2-19
    let secrets = parse(&json!([
        {"secret": A, "id": "team-a", "repositories": ["acme/app", "Acme/Web-*"]},
        {"secret": "hook-secret-B", "repositories": []},
    ]));
    let with_a = |name: &str| key_for(&secrets, A_SIGNED, Some(&repository(name)));
    assert_eq!(with_a("acme/app"), Some("team-a"));
    assert_eq!(with_a("ACME/App"), Some("team-a"));
    assert_eq!(with_a("acme/web-1"), Some("team-a"));
    for other in ["acme/app2", "acme/ap", "evil/acme/app", "acme/web", "evil/app"] {
        let Some(other) = Repository::new(other) else {
            continue;
        };
        assert_eq!(key_for(&secrets, A_SIGNED, Some(&other)), None, "{other}");
    }
    assert_eq!(key_for(&secrets, B_SIGNED, Some(&repository("any/thing"))), Some("2"));
    // A delivery without a repository, such as an organisation's ping, means no event and reaches nobody.
    assert_eq!(key_for(&secrets, A_SIGNED, None), Some("team-a"));
}

#[test]
fn one_material_under_two_limits_may_speak_for_both() {
    let both = parse(&json!([
        {"secret": A, "id": "a", "repositories": ["acme/app"]},
        {"secret": A, "id": "b", "repositories": ["acme/web"]},
    ]));
    assert_eq!(key_for(&both, A_SIGNED, Some(&repository("acme/app"))), Some("a"));
    assert_eq!(key_for(&both, A_SIGNED, Some(&repository("acme/web"))), Some("b"));
}

#[test]
fn an_older_version_of_the_document_cannot_lift_a_limit_that_the_current_one_sets() {
    let current = parse(&json!([{"secret": A, "id": "a", "repositories": ["acme/*"]}]));
    let both = current.and(parse(&json!(A)));
    assert_eq!(key_for(&both, A_SIGNED, Some(&repository("acme/app"))), Some("a"));
    assert_eq!(key_for(&both, A_SIGNED, Some(&repository("evil/app"))), None);
}

#[test]
fn a_misspelt_limit_is_refused_and_not_read_as_no_limit() {
    for entry in [
        json!({"secret": A, "repos": ["acme/app"]}),
        json!({"secret": A, "repository": "acme/app"}),
        json!({"secret": A, "Repositories": ["acme/app"]}),
        json!({"secret": A, "repositories": "acme/app"}),
    ] {
        let read = Secrets::parse(&document(&json!([entry])), "");
        assert_eq!(read, Err(SecretsError::NotADocument), "{entry}");
    }
    let nothing = parse(&json!([{"secret": A, "repositories": [""]}]));
    assert_eq!(key_for(&nothing, A_SIGNED, Some(&repository("acme/app"))), None);
}

#[test]
fn a_document_of_another_form_is_refused_without_showing_it() {
    // S2-20, invariant 8
    for document in [
        "",
        A,
        "\"hook-secret-A\"",
        "null",
        r#"{"github": "hook-secret-A"}"#,
        r#"{"github": {"webhook_secret": 5}}"#,
        r#"{"github": {"webhook_secret": {"secret": "hook-secret-A"}}}"#,
        r#"{"github": {"webhook_secret": ["hook-secret-A", 5]}}"#,
        r#"{"github": {"webhook_secret": [{"id": "hook-secret-A"}]}}"#,
        r#"{"github": {"webhook_secret": "hook-secret-A"}"#,
    ] {
        let error = Secrets::parse(document, "").unwrap_err();
        assert_eq!(error, SecretsError::NotADocument, "{document}");
        assert!(!format!("{error} {error:?}").contains(A), "{document}");
    }
}

#[test]
fn the_number_of_secrets_is_bounded() {
    // Invariant 9
    let many = |count: usize, name: &str| -> Vec<String> { (0..count).map(|n| format!("{name}{n}")).collect() };
    let full = parse(&json!(many(SECRETS_MAX, "s")));
    assert_eq!(full.0.len(), SECRETS_MAX);
    let over = Secrets::parse(&document(&json!(many(SECRETS_MAX + 1, "s"))), "");
    assert_eq!(over, Err(SecretsError::TooMany));
    assert_eq!(full.and(parse(&json!(many(2, "t")))).0.len(), SECRETS_MAX);
}

#[test]
fn a_key_id_is_short_and_never_splits_a_character() {
    let id = "é".repeat(100);
    let secrets = parse(&json!([{"secret": A, "id": id}]));
    let key_id = secrets.signer().unwrap().key_id();
    assert!(key_id.len() <= KEY_ID_BYTES_MAX && id.starts_with(key_id) && !key_id.is_empty());
}

#[test]
fn nothing_that_is_printed_shows_material_signature_or_payload() {
    // S2-19, S2-20, invariant 8
    let secrets = parse(&json!([{"secret": A, "id": "team-a"}]));
    let body = b"payload-text";
    let signature = secrets.signer().unwrap().sign(body);
    let verified = secrets.verify(&[&signature], body).unwrap();
    let printed = format!("{secrets:?} {:?} {verified:?}", secrets.signer());
    let bytes = format!("{body:?}");
    let mac = signature.strip_prefix(SCHEME).unwrap();
    for hidden in [
        A,
        mac,
        "payload-text",
        bytes.trim_matches(['[', ']']),
        &format!("{:?}", A.as_bytes()),
    ] {
        assert!(!printed.contains(hidden), "{printed}");
    }
    assert!(printed.contains("team-a"), "{printed}");
}

#[test]
fn what_is_printed_says_which_secret_and_how_many_bytes() {
    let secrets = parse(&json!([{"secret": A, "id": "team-a"}]));
    assert!(!secrets.is_empty());
    let secret = secrets.signer().unwrap();
    assert_eq!(format!("{secret:?}"), "Secret(team-a, …)");
    let verified = secrets.verify(&[A_SIGNED], BODY).unwrap();
    assert_eq!(format!("{verified:?}"), "VerifiedBody(2 bytes, [Secret(team-a, …)])");
}

#[test]
fn what_a_secret_signs_it_verifies() {
    for secret in [A, "x", &"k".repeat(200)] {
        let secrets = Secrets::single(secret);
        for body in [&b""[..], BODY, &[0xFF; 1_000]] {
            let signature = secrets.signer().unwrap().sign(body);
            assert!(secrets.verify(&[&signature], body).is_some());
        }
    }
}

#[test]
fn one_wrong_bit_anywhere_is_a_wrong_signature() {
    let mac = Secrets::single(A).signer().unwrap().mac(BODY);
    for bit in 0..256 {
        let mut wrong = mac;
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(
            !verifies(A, &format!("sha256={}", hex::encode(wrong)), BODY),
            "bit {bit}"
        );
    }
}

#[test]
fn a_pattern_fits_runs_of_characters_at_its_stars_and_nothing_else() {
    #[track_caller]
    fn check(pattern: &str, name: &str, fits: bool) {
        assert_eq!(Pattern::new(pattern).matches(name), fits, "{pattern:?} {name:?}");
    }
    check("acme/app", "Acme/App", true);
    check("acme/app", "acme/app2", false);
    check("acme/app", "xacme/app", false);
    check("acme/*", "acme/", true);
    check("acme/*", "acme-evil/app", false);
    check("*", "", true);
    check("*", "anything", true);
    check("**", "anything", true);
    check("", "", true);
    check("", "a", false);
    check("a*a", "a", false);
    check("a*a", "aa", true);
    check("ab*ba", "aba", false);
    check("a*b*c", "abcbc", true);
    check("a*b*c", "acb", false);
    check("*b*", "abc", true);
    check("*bc*cd", "abcd", false);
    check("*[bot]", "deploy[bot]", true);
    check("*[bot]", "deploy[bot]x", false);
    check("a.c", "abc", false);
    check("a?c", "abc", false);
    check("É*", "éa", true);
}

#[test]
fn a_pattern_of_many_stars_takes_no_exponential_time() {
    // Invariant 9
    let pattern: String = iter::repeat_n("a*", 200).chain(["b"]).collect();
    assert!(!Pattern::new(&pattern).matches(&"a".repeat(20_000)));
}
