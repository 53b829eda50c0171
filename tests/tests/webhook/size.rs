//! Large bodies.

use base64::Engine as _;
use forebay_core::ports::Ledger as _;
use forebay_tests::table::Table;
use forebay_tests::webhook::{Request, Stand};
use serde_json::json;

use crate::payloads::{delivery, guid, key, push, rows};

/// So many letters that no compressor makes much smaller.
fn noise(letters: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut text = String::with_capacity(letters + 16);
    while text.len() < letters {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
    }
    text.truncate(letters);
    text
}

/// A push whose payload takes about so many bytes.
fn large_push(n: u64, bytes: usize) -> Request {
    let mut payload = push("a", "b");
    payload["commits"] = json!([{"message": noise(bytes)}]);
    delivery(n, "push", &payload)
}

#[tokio::test]
async fn a_body_larger_than_an_item_is_kept_whole() {
    // SIZE-02
    let table = Table::start().await;
    let stand = Stand::start(&table).await;
    let request = large_push(1, 600_000);
    assert_eq!(stand.post(&request).await.status(), 202);
    assert!(stand.ledger.body(&key(1)).await.unwrap() == Some(request.body.clone()));
    let kept = stand.ledger.delivery(&key(1)).await.unwrap().unwrap();
    assert_eq!(kept.delivery.size, request.body.len() as u64);
    assert_eq!(kept.delivery.digest, forebay_core::delivery::Digest::of(&request.body));
    assert!(rows(&table).await["body"] >= 1, "outside the row");
    // Again under another identity: the pieces are there.
    let pieces = rows(&table).await["body"];
    let again = Request {
        headers: large_push(2, 600_000).headers,
        ..request
    };
    assert_eq!(stand.post(&again).await.status(), 202);
    assert_eq!(rows(&table).await["body"], pieces);
}

#[tokio::test]
async fn four_megabytes_as_base64_are_kept_whole() {
    // SIZE-01: six megabytes of invocation hold about 4.4 of base64.
    let table = Table::start().await;
    let stand = Stand::start(&table).await;
    let request = large_push(1, 4_400_000);
    let mut json = request.to_json();
    json["body"] = base64::engine::general_purpose::STANDARD.encode(&request.body).into();
    json["isBase64Encoded"] = true.into();
    let answer = stand.webhook.answer(serde_json::from_value(json).unwrap()).await;
    assert_eq!(answer.status(), 202, "{}", answer.body());
    assert!(stand.ledger.body(&key(1)).await.unwrap() == Some(request.body));
}

#[tokio::test]
async fn six_megabytes_of_text_are_kept_whole_and_more_is_refused() {
    // SIZE-01: the platform's own limit is 6,291,456 bytes of invocation.
    let table = Table::start().await;
    let stand = Stand::start(&table).await;
    let request = large_push(1, 6_000_000);
    let answer = stand.post(&request).await;
    assert_eq!(answer.status(), 202, "{}", answer.body());
    assert!(stand.ledger.body(&key(1)).await.unwrap() == Some(request.body));
    let over = Request::new("push", &guid(2), vec![b' '; 6_291_457]);
    assert_eq!(stand.post(&over).await.status(), 413);
    assert_eq!(stand.ledger.delivery(&key(2)).await.unwrap(), None);
}
