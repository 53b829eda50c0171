//! The cache of secrets, over documents that a test sets.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex as StdMutex, PoisonError};

use super::*;

/// A store in a test's hands: what it holds, and how often it was read.
#[derive(Clone, Default)]
struct Given(Arc<(StdMutex<Option<Document>>, AtomicUsize)>);

impl Given {
    fn holding(secret: &str) -> Self {
        let given = Self::default();
        given.set(Some(document(secret)));
        given
    }

    /// `None` makes every read fail.
    fn set(&self, document: Option<Document>) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = document;
    }

    fn reads(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

impl Documents for Given {
    async fn read(&self) -> Result<Document, ReadError> {
        self.0.1.fetch_add(1, Ordering::SeqCst);
        let document = self.0.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        document.ok_or_else(|| ReadError::File {
            path: "given".into(),
            source: std::io::ErrorKind::TimedOut.into(),
        })
    }
}

fn document(secret: &str) -> Document {
    Document {
        current: serde_json::json!({"github": {"webhook_secret": secret}}).to_string(),
        previous: None,
    }
}

fn cache(given: &Given) -> SecretCache<Given> {
    SecretCache::new(given.clone(), Duration::from_secs(300))
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_323_045 + seconds).unwrap()
}

/// Whether `secrets` verify what `secret` signs.
fn verify(secrets: &Secrets, secret: &str) -> bool {
    let signers = Secrets::parse(&document(secret).current, "").unwrap();
    let signature = signers.signer().unwrap().sign(b"{}");
    secrets.verify(&[&signature], b"{}").is_some()
}

#[tokio::test]
async fn a_secret_is_read_once_for_as_long_as_it_is_kept() {
    let given = Given::holding("secret-A");
    let cache = cache(&given);
    for second in [0, 1, 299] {
        assert!(verify(&cache.current(at(second)).await.unwrap(), "secret-A"));
    }
    assert_eq!(given.reads(), 1);
    cache.current(at(300)).await.unwrap();
    assert_eq!(given.reads(), 2);
}

#[tokio::test]
async fn a_rotated_secret_is_known_after_one_refresh_that_forgers_cannot_multiply() {
    // LAMB-03
    let given = Given::holding("secret-A");
    let cache = cache(&given);
    cache.current(at(0)).await.unwrap();
    given.set(Some(document("secret-B")));
    assert!(cache.refreshed(at(9)).await.is_none(), "the last read was just now");
    let refreshed = cache.refreshed(at(10)).await.unwrap();
    assert!(verify(&refreshed, "secret-B") && !verify(&refreshed, "secret-A"));
    for second in 10..20 {
        for _ in 0..100 {
            assert!(cache.refreshed(at(second)).await.is_none());
        }
    }
    assert_eq!(given.reads(), 2);
    assert!(verify(&cache.current(at(11)).await.unwrap(), "secret-B"));
}

#[tokio::test]
async fn a_rotated_secret_is_known_without_any_mismatch_when_its_time_is_over() {
    // LAMB-03
    let given = Given::holding("secret-A");
    let cache = cache(&given);
    cache.current(at(0)).await.unwrap();
    given.set(Some(document("secret-B")));
    assert!(verify(&cache.current(at(299)).await.unwrap(), "secret-A"));
    assert!(verify(&cache.current(at(300)).await.unwrap(), "secret-B"));
}

#[tokio::test]
async fn both_versions_are_valid_during_a_rotation() {
    let given = Given::default();
    given.set(Some(Document {
        previous: Some(document("secret-A").current),
        ..document("secret-B")
    }));
    let secrets = cache(&given).current(at(0)).await.unwrap();
    assert!(verify(&secrets, "secret-A") && verify(&secrets, "secret-B") && !verify(&secrets, "secret-C"));
}

#[tokio::test]
async fn a_failed_read_is_not_kept() {
    // LAMB-04: the first delivery is refused, the second accepted, in one environment and at one time.
    let given = Given::default();
    let cache = cache(&given);
    assert!(cache.current(at(0)).await.is_err());
    given.set(Some(document("secret-A")));
    assert!(verify(&cache.current(at(0)).await.unwrap(), "secret-A"));
}

#[tokio::test]
async fn secrets_stay_in_use_while_the_store_gives_no_answer_and_not_for_ever() {
    let given = Given::holding("secret-A");
    let cache = cache(&given);
    cache.current(at(0)).await.unwrap();
    given.set(None);
    assert!(verify(&cache.current(at(300)).await.unwrap(), "secret-A"));
    assert_eq!(given.reads(), 2);
    cache.current(at(309)).await.unwrap();
    assert_eq!(given.reads(), 2, "a store in trouble is not asked by every delivery");
    cache.current(at(310)).await.unwrap();
    assert_eq!(given.reads(), 3);
    assert!(cache.current(at(3_599)).await.is_ok());
    assert!(cache.current(at(3_610)).await.is_err(), "an hour is the end of it");
    assert!(cache.refreshed(at(3_700)).await.is_none());
}

#[tokio::test]
async fn a_document_without_a_secret_verifies_nothing_and_is_asked_for_again_soon() {
    // S3-02: a secret that is added later takes effect without a restart.
    for empty in ["{}", "{\"github\":{}}", "{\"github\":{\"webhook_secret\":\"  \"}}"] {
        let given = Given::default();
        given.set(Some(Document {
            current: empty.to_owned(),
            previous: None,
        }));
        let cache = cache(&given);
        assert!(cache.current(at(0)).await.unwrap().is_empty(), "{empty}");
        given.set(Some(document("secret-A")));
        assert!(cache.current(at(9)).await.unwrap().is_empty());
        assert_eq!(given.reads(), 1);
        assert!(verify(&cache.current(at(10)).await.unwrap(), "secret-A"));
    }
}

#[tokio::test]
async fn a_malformed_document_is_an_error_that_shows_nothing_of_it() {
    // Invariant 8
    for text in [
        "secret-text",
        "{\"github\": {\"webhook_secret\": [7, \"secret-text\"]}}",
        "[\"secret-text\"]",
    ] {
        let given = Given::default();
        given.set(Some(Document {
            current: text.to_owned(),
            previous: None,
        }));
        let error = cache(&given).current(at(0)).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("secret-text"), "{shown}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_the_previous_version_is_no_reason_to_refuse_the_current() {
    let given = Given::default();
    given.set(Some(Document {
        previous: Some("nonsense".to_owned()),
        ..document("secret-B")
    }));
    assert!(verify(&cache(&given).current(at(0)).await.unwrap(), "secret-B"));
}

/// A file of its own for one test, gone with it.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> Self {
        let file = Self(std::env::temp_dir().join(format!("forebay-{}-{name}.json", std::process::id())));
        file.write("{}", 0o600);
        file
    }

    fn write(&self, text: &str, mode: u32) {
        std::fs::write(&self.0, text).unwrap();
        std::fs::set_permissions(&self.0, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[tokio::test]
async fn a_file_that_others_can_read_is_refused_until_they_cannot() {
    // S3-02
    let file = TestFile::new("exposed");
    let cache = SecretCache::new(Store::File(file.0.clone()), Duration::from_secs(300));
    for mode in [0o644, 0o640, 0o604, 0o660, 0o601] {
        file.write(&document("secret-A").current, mode);
        let error = cache.current(at(0)).await.unwrap_err();
        assert!(matches!(error, ReadError::Exposed { .. }), "{mode:o}: {error}");
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
    for mode in [0o600, 0o400] {
        file.write(&document("secret-A").current, 0o600);
        std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(verify(&cache.current(at(0)).await.unwrap(), "secret-A"));
    }
}

#[tokio::test]
async fn a_secret_that_is_added_to_the_file_later_takes_effect() {
    // S3-02
    let file = TestFile::new("later");
    let cache = SecretCache::new(Store::File(file.0.clone()), Duration::from_secs(300));
    assert!(cache.current(at(0)).await.unwrap().is_empty());
    file.write(&document("secret-A").current, 0o600);
    assert!(verify(&cache.current(at(10)).await.unwrap(), "secret-A"));
    std::fs::remove_file(&file.0).unwrap();
    assert!(
        verify(&cache.current(at(400)).await.unwrap(), "secret-A"),
        "a file that is gone is a store without answer"
    );
}

#[tokio::test]
async fn a_file_that_is_not_there_is_an_error_that_names_it() {
    let cache = SecretCache::new(Store::File("/nowhere/providers.json".into()), Duration::from_secs(300));
    let error = cache.current(at(0)).await.unwrap_err();
    assert_eq!(error.to_string(), "read secrets from /nowhere/providers.json");
}

#[tokio::test]
async fn what_github_is_asked_with_is_kept_by_the_same_rules() {
    let given = Given::default();
    given.set(Some(Document {
        current: "{}".to_owned(),
        previous: Some(r#"{"github": {"token": "ghp_old"}}"#.to_owned()),
    }));
    let cache = AccessCache::new(given.clone(), Duration::from_secs(300));
    let nobodys = cache.current(at(0)).await.unwrap();
    assert_eq!(*nobodys, GithubAccess::Anonymous, "the version before does not count");
    given.set(Some(Document {
        current: r#"{"github": {"token": "ghp_new"}}"#.to_owned(),
        previous: None,
    }));
    let added = cache.current(at(10)).await.unwrap();
    assert_eq!(
        *added,
        GithubAccess::parse(r#"{"github": {"token": "ghp_new"}}"#).unwrap()
    );
    given.set(None);
    assert_eq!(cache.current(at(310)).await.unwrap(), added);
    assert!(cache.refreshed(at(320)).await.is_none());
    given.set(Some(Document {
        current: r#"{"github": {"token": "material material"}}"#.to_owned(),
        previous: None,
    }));
    let error = cache.current(at(4_000)).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("material"), "{error:?}");
}
