//! What is taken for an identity, and what is not.

use super::*;

#[test]
fn a_guid_has_hex_digits_and_dashes_only_and_is_kept_in_lower_case() {
    // S3-03, HTTP-09
    let guid = |text: &str| Guid::parse(text).map(|guid| guid.as_str().to_owned());
    let plain = "6f1c2b9a-0000-4000-8000-000000000031";
    assert_eq!(guid(plain).as_deref(), Some(plain));
    assert_eq!(guid(&plain.to_uppercase()).as_deref(), Some(plain));
    assert_eq!(guid(&"a".repeat(64)).map(|guid| guid.len()), Some(64));
    let (too_long, far_too_long) = ("a".repeat(65), "a".repeat(3_000));
    let malformed = [
        "",
        " ",
        "../../etc/x",
        "a/b",
        "a\\b",
        "a.b",
        "a%2f",
        "a#b",
        "a_b",
        "undefined",
        "id\nwith\nline",
        "a\0",
        " a",
        "a ",
        "é",
        "ａ",
        "🚀",
        &too_long,
        &far_too_long,
    ];
    for text in malformed {
        assert_eq!(guid(text), None, "{text:?}");
    }
}

#[test]
fn a_hook_id_is_a_number_or_a_dash_where_the_header_is_absent() {
    let hook = |header| HookId::parse(header).map(|hook| hook.as_str().to_owned());
    assert_eq!(hook(None).as_deref(), Some("-"));
    assert_eq!(hook(Some("-")).as_deref(), Some("-"));
    assert_eq!(
        hook(Some("18446744073709551615")).as_deref(),
        Some("18446744073709551615")
    );
    for text in [
        "",
        " ",
        "--",
        "-1",
        "+1",
        "1.0",
        "0x1",
        "1 ",
        "1/2",
        "١",
        "１",
        "184467440737095516150",
    ] {
        assert_eq!(hook(Some(text)), None, "{text:?}");
    }
}

#[test]
fn an_event_name_is_lower_case_words() {
    // S3-03
    let longest = "a".repeat(64);
    for text in [
        "push",
        "pull_request_review_comment",
        "projects_v2_item",
        longest.as_str(),
    ] {
        assert_eq!(EventName::parse(text).unwrap().as_str(), text);
    }
    let too_long = "a".repeat(65);
    let malformed = [
        "",
        " ",
        "Push",
        "pull-request",
        "../push",
        "push/",
        "push\n",
        "push ",
        "pùsh",
        "a.b",
        "a#b",
        &too_long,
    ];
    for text in malformed {
        assert_eq!(EventName::parse(text), None, "{text:?}");
    }
}

#[test]
fn a_delivery_key_survives_its_text_and_no_other_text_is_one() {
    for text in ["42/6f1c2b9a-0000-4000-8000-000000000031", "-/0"] {
        assert_eq!(DeliveryKey::parse(text).unwrap().to_string(), text);
    }
    for text in ["", "/", "42", "42/", "/a", "42/a/b", "x/a", "42//a", "42 /a", "42/g"] {
        assert_eq!(DeliveryKey::parse(text), None, "{text:?}");
    }
}

#[test]
fn two_hooks_copies_of_one_happening_are_two_deliveries() {
    let key = |text| DeliveryKey::parse(text).unwrap();
    assert_ne!(key("42/a"), key("43/a"));
    assert_eq!(key("42/a"), key("42/A"));
}

#[test]
fn a_digest_survives_its_text_and_its_bytes() {
    // S2-03
    let digest = Digest::of(b"abc");
    let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(digest.to_string(), text);
    assert_eq!(Digest::from_hex(text), Some(digest));
    assert_eq!(Digest::from_bytes(digest.as_bytes()), Some(digest));
    let (short, long) = (text.trim_start_matches('b'), format!("{text}0"));
    for malformed in ["", short, &long, &text.replace('b', "g"), &text.replacen("ba", "é", 1)] {
        assert_eq!(Digest::from_hex(malformed), None, "{malformed}");
    }
    assert_eq!(Digest::from_bytes(&[0; 31]), None);
}

#[test]
fn every_word_of_a_row_reads_back_as_what_it_was() {
    for ignored in Ignored::ALL {
        assert_eq!(Ignored::from_word(ignored.as_str()), Some(*ignored));
    }
    for malformed in Malformed::ALL {
        assert_eq!(Malformed::from_word(&malformed.to_string()), Some(*malformed));
    }
    assert_eq!(Ignored::from_word("Ping"), None);
}
