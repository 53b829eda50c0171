//! Environment files: the lines `NAME=value` that `forebay env` prints, or one JSON object.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Attempt as _, Error};

const REMEDY: &str = "give a file as `cargo forebay env` prints it, or a JSON object of texts";

/// Variables by name.
pub(crate) type Variables = BTreeMap<String, String>;

/// Reads the variables in the file at `path`.
pub(crate) fn read(path: &Path) -> Result<Variables, Error> {
    let reading = || format!("read {}", path.display());
    let text = std::fs::read_to_string(path).attempting(reading, REMEDY)?;
    parse(&text).map_err(|problem| Error::new(format!("{}: {problem}", reading()), REMEDY))
}

/// `value` as one word of an environment file: without quotes, what follows a `#` would be a comment.
pub(crate) fn quoted(value: &str) -> String {
    let quote = if value.contains('\'') { '"' } else { '\'' };
    format!("{quote}{value}{quote}")
}

/// The variables that `text` sets, or what is wrong with it. Values may be secrets and are not repeated.
fn parse(text: &str) -> Result<Variables, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| format!("not a JSON object of texts: {error}"));
    }
    let lines = (1..).zip(text.lines().map(str::trim));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| assignment(line).ok_or_else(|| format!("line {number} is not of the form NAME=value")))
        .collect()
}

/// The name and the value in `line`.
fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    plain.then(|| (name.to_owned(), unquoted(value.trim()).to_owned()))
}

/// `value` without the quotes around it.
fn unquoted(value: &str) -> &str {
    let within = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    within('\'').or_else(|| within('"')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables<const N: usize>(pairs: [(&str, &str); N]) -> Variables {
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn lines_are_read_as_they_are_printed() {
        let values = ["", "acme/app#41=reviewer", "it's", "a b"];
        for value in values {
            let line = format!("NAME={}", quoted(value));
            assert_eq!(parse(&line), Ok(variables([("NAME", value)])), "{line}");
        }
    }

    #[test]
    fn comments_and_blank_lines_say_nothing_and_quotes_are_optional() {
        let text = "# a comment\n\nexport A=1\nB = two words \nC=a=b\n";
        let expected = variables([("A", "1"), ("B", "two words"), ("C", "a=b")]);
        assert_eq!(parse(text), Ok(expected));
    }

    #[test]
    fn a_json_object_of_texts_is_an_environment_too() {
        assert_eq!(parse(" {\"A\": \"1\"}"), Ok(variables([("A", "1")])));
        assert!(parse("{\"A\": 1}").is_err());
    }

    #[test]
    fn a_line_that_sets_nothing_is_named_by_its_number() {
        let expected = Err("line 2 is not of the form NAME=value".to_owned());
        assert_eq!(parse("A=1\nsecret text\n"), expected);
        assert!(parse("A-B=1").is_err());
    }
}
