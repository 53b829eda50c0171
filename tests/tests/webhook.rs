//! The webhook in process, on an embedded table.

use forebay_tests::table::Table;
use forebay_tests::webhook::{Request, Stand};

const COMMENT: &str = r#"{"action":"created","issue":{"number":5,"pull_request":{"url":"u"},"user":{"login":"dev1"}},"comment":{"id":8,"user":{"login":"dev1"},"body":"hi","created_at":"2026-11-29T11:00:00Z"},"repository":{"id":1,"full_name":"acme/app"}}"#;

#[tokio::test]
async fn a_comment_that_nobody_owns_is_accepted_and_parked() {
    let table = Table::start().await;
    let stand = Stand::start(&table).await;
    let answer = stand
        .post(&Request::new(
            "issue_comment",
            "6f1c2b9a-0000-4000-8000-000000000001",
            COMMENT,
        ))
        .await;
    assert_eq!(answer.status(), 202);
    let expected = r#"{"delivery":"6f1c2b9a-0000-4000-8000-000000000001","event":"issue_comment","outcome":"accepted","events":["comment"]}"#;
    assert_eq!(answer.body(), expected);
    assert_eq!(stand.inboxes.all(), []);
}
