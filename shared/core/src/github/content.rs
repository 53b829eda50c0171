//! From the bytes that arrived to JSON text: content types, forms, and escapes that name no character.

use std::borrow::Cow;
use std::str;

use crate::delivery::Malformed;

/// How a body carries its JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    Json,
    Form,
}

/// The JSON text that `body` carries.
pub(super) fn json<'a>(content_type: Option<&str>, body: &'a [u8]) -> Result<Cow<'a, str>, Malformed> {
    let Some(carrier) = carrier(content_type) else {
        return Err(Malformed::ContentType);
    };
    let Ok(text) = str::from_utf8(body) else {
        return Err(Malformed::NotUtf8);
    };
    match carrier {
        Carrier::Json => Ok(Cow::Borrowed(text)),
        Carrier::Form => form_urlencoded::parse(text.as_bytes())
            .find_map(|(name, value)| (name == "payload").then_some(value))
            .ok_or(Malformed::NoPayload),
    }
}

fn carrier(content_type: Option<&str>) -> Option<Carrier> {
    let full = content_type.unwrap_or_default();
    let media = full
        .split_once(';')
        .map_or(full, |(media, _)| media)
        .trim()
        .to_ascii_lowercase();
    match media.as_str() {
        "" | "application/json" => Some(Carrier::Json),
        "application/x-www-form-urlencoded" => Some(Carrier::Form),
        other => other.ends_with("+json").then_some(Carrier::Json),
    }
}

/// `json` with U+FFFD in place of every escaped half of a UTF-16 pair that lacks its other half. `None` where there is
/// none. No character can be made of a lone half, so a strict reader refuses the whole body for it.
pub(super) fn repair(json: &str) -> Option<String> {
    let mut repaired = String::new();
    let mut rest = json;
    let mut broken = false;
    while let Some((before, escape)) = rest.split_once('\\') {
        let (written, tail, is_broken) = one_escape(escape);
        repaired.push_str(before);
        repaired.push('\\');
        repaired.push_str(written);
        broken |= is_broken;
        rest = tail;
    }
    repaired.push_str(rest);
    broken.then_some(repaired)
}

/// The escape at the start of `text`, after its backslash: how it is to be written, what follows it, and whether it was
/// half a pair.
fn one_escape(text: &str) -> (&str, &str, bool) {
    let Some(unit) = code_unit(text) else {
        // An escaped backslash is one escape: the `u` after it is text.
        let (escape, tail) = split(text, text.chars().next().map_or(0, char::len_utf8));
        return (escape, tail, false);
    };
    let (escape, tail) = split(text, UNIT_LEN);
    match unit {
        0xD800..=0xDBFF => {
            let low = tail.strip_prefix('\\').and_then(code_unit);
            if matches!(low, Some(0xDC00..=0xDFFF)) {
                let (pair, tail) = split(text, PAIR_LEN);
                (pair, tail, false)
            } else {
                ("ufffd", tail, true)
            }
        }
        0xDC00..=0xDFFF => ("ufffd", tail, true),
        _ => (escape, tail, false),
    }
}

/// `u` and four hex digits.
const UNIT_LEN: usize = 5;
/// Two of them and the backslash between.
const PAIR_LEN: usize = 2 * UNIT_LEN + 1;

/// The UTF-16 unit that `text` begins with, spelt `uXXXX`.
fn code_unit(text: &str) -> Option<u16> {
    let digits = text.get(..UNIT_LEN)?.strip_prefix('u')?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
}

fn split(text: &str, at: usize) -> (&str, &str) {
    text.split_at_checked(at).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Option<&str> = Some("application/x-www-form-urlencoded; charset=utf-8");

    #[test]
    fn json_is_taken_as_it_is_and_a_form_is_decoded_once() {
        assert_eq!(json(None, b"{}").unwrap(), "{}");
        for accepted in [
            "",
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/vnd.x+json",
        ] {
            assert_eq!(json(Some(accepted), b"{}").unwrap(), "{}", "{accepted}");
        }
        let body = b"payload=%7B%22ref%22%3A%22refs%2Fheads%2Ffix-50%2525%22%7D";
        assert_eq!(
            json(FORM, body).unwrap(),
            r#"{"ref":"refs/heads/fix-50%25"}"#,
            "FORM-02"
        );
        let body =
            b"payload=%7B%22action%22%3A%22created%22%2C%22comment%22%3A%7B%22body%22%3A%22a%2Bb+100%25%22%7D%7D";
        let expected = r#"{"action":"created","comment":{"body":"a+b 100%"}}"#;
        assert_eq!(json(FORM, body).unwrap(), expected, "FORM-01");
    }

    #[test]
    fn what_carries_no_json_text_is_refused_by_name() {
        assert_eq!(json(FORM, b"foo=bar"), Err(Malformed::NoPayload), "FORM-04");
        assert_eq!(json(FORM, b""), Err(Malformed::NoPayload));
        assert_eq!(json(FORM, b"payload=\xff"), Err(Malformed::NotUtf8));
        assert_eq!(json(None, b"{\"a\":\"\xff\"}"), Err(Malformed::NotUtf8));
        assert_eq!(json(Some("text/plain"), b"{}"), Err(Malformed::ContentType));
        assert_eq!(json(Some("multipart/form-data"), b"{}"), Err(Malformed::ContentType));
    }

    #[test]
    fn only_lone_halves_are_replaced() {
        let check = |from: &str, to: Option<&str>| assert_eq!(repair(from).as_deref(), to, "PAY-22: {from}");
        check(r#""cut \ud83d""#, Some(r#""cut \ufffd""#));
        check(
            r#""\uDE00 \ud83dx\uD83D\uD83D\uDE00""#,
            Some(r#""\ufffd \ufffdx\ufffd\uD83D\uDE00""#),
        );
        check(r#""\ud83d\n""#, Some(r#""\ufffd\n""#));
        check(r#""\ud83d\ude00 \u00e9""#, None);
        check(r#""C:\\ud83d""#, None);
        check(r#""\\\ud83d""#, Some(r#""\\\ufffd""#));
        check(r#""\ud83"#, None);
        check(r#""\u+d83 \ué\"#, None);
        check("é\\", None);
    }
}
