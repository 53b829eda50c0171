//! What a name or an address looks like, where nothing else reads it before it is used.

use http::Uri;

/// What `DynamoDB` takes for a table's name:
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html>
const TABLE_LENGTH_MIN: usize = 3;
const TABLE_LENGTH_MAX: usize = 255;
/// Digits of an account's id.
const ACCOUNT_LENGTH: usize = 12;
/// Longest host, as the template's parameter `GithubHost` and the names of the DNS have it.
const HOST_LENGTH_MAX: usize = 253;
/// Longest namespace, as the template's parameter `MetricsNamespace` and `CloudWatch` have it.
const NAMESPACE_LENGTH_MAX: usize = 255;

/// Whether `text` is a table's name, or a table's ARN, which the API takes for it.
pub(super) fn is_table(text: &str) -> bool {
    is_table_name(text) || table_of_arn(text).is_some_and(is_table_name)
}

fn is_table_name(text: &str) -> bool {
    (TABLE_LENGTH_MIN..=TABLE_LENGTH_MAX).contains(&text.len()) && text.bytes().all(|byte| is_plain(byte, b"_.-"))
}

/// The name in `arn:PARTITION:dynamodb:REGION:ACCOUNT:table/NAME`.
fn table_of_arn(text: &str) -> Option<&str> {
    let mut parts = text.splitn(6, ':');
    let mut part = || parts.next();
    let (scheme, partition, service) = (part()?, part()?, part()?);
    let (region, account, table) = (part()?, part()?, part()?);
    let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| is_plain(byte, b"-"));
    let is_account = account.len() == ACCOUNT_LENGTH && account.bytes().all(|byte| byte.is_ascii_digit());
    let is_ours = scheme == "arn" && service == "dynamodb" && is_word(partition) && is_word(region) && is_account;
    table.strip_prefix("table/").filter(|_| is_ours)
}

/// Whether `text` is a queue's URL: what is sent to a queue goes where it leads.
pub(super) fn is_queue_url(text: &str) -> bool {
    let uri: Result<Uri, _> = text.parse();
    uri.is_ok_and(|uri| {
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        is_web && uri.host().is_some_and(|host| !host.is_empty())
    })
}

/// Whether `text` is a host in lower case, without scheme, port or path: the pattern of the template's `GithubHost`.
pub(super) fn is_host(text: &str) -> bool {
    let is_letter_or_digit = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [text.as_bytes().first(), text.as_bytes().last()];
    text.len() <= HOST_LENGTH_MAX
        && ends.iter().all(|end| end.is_some_and(is_letter_or_digit))
        && text
            .bytes()
            .all(|byte| is_letter_or_digit(&byte) || b".-".contains(&byte))
}

/// Whether `text` is a namespace of metrics: the pattern of the template's `MetricsNamespace`.
pub(super) fn is_namespace(text: &str) -> bool {
    text.len() <= NAMESPACE_LENGTH_MAX
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| is_plain(byte, b"_./#-"))
}

/// Whether `byte` is a letter or a digit of ASCII, or one of `others`.
fn is_plain(byte: u8, others: &[u8]) -> bool {
    byte.is_ascii_alphanumeric() || others.contains(&byte)
}
