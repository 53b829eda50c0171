//! The stack's template with packaged code: what `sam package` would do, for one field.

use crate::error::Error;

/// Where the code of one binary is: an `s3://` address.
pub(crate) type CodeLocation<'a> = &'a dyn Fn(&str) -> String;

const REMEDY: &str = "give every function `Metadata: BuildProperties: { Binary: … }` and one line `CodeUri: …`";

/// The binaries that the functions of `template` run, in order.
pub(crate) fn binaries(template: &str) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for resource in blocks(template) {
        if resource.lines().any(|line| code_uri(line).is_some()) {
            names.push(binary(resource)?.to_owned());
        }
    }
    if names.is_empty() {
        return Err(Error::new("find a function in infra/template.yaml", REMEDY));
    }
    Ok(names)
}

/// `template` with each `CodeUri` replaced by the location of that function's binary. Everything else stays as it is, to the
/// byte: what runs here is the template that a real account gets.
pub(crate) fn with_code(template: &str, location: CodeLocation<'_>) -> Result<String, Error> {
    let mut packaged = String::with_capacity(template.len());
    for resource in blocks(template) {
        for line in resource.split_inclusive('\n') {
            match code_uri(line) {
                None => packaged.push_str(line),
                Some(indent) => {
                    packaged.push_str(indent);
                    packaged.push_str("CodeUri: ");
                    packaged.push_str(&location(binary(resource)?));
                    packaged.push('\n');
                }
            }
        }
    }
    Ok(packaged)
}

/// The pieces of `template` that each begin with a key indented by two blanks, as resources do.
fn blocks(template: &str) -> impl Iterator<Item = &str> {
    let mut rest = template;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let begins = |at: usize| {
            let mut key = rest[at + 1..].chars();
            key.next() == Some(' ') && key.next() == Some(' ') && key.next().is_some_and(char::is_alphabetic)
        };
        let end = rest.match_indices('\n').map(|(at, _)| at).find(|&at| begins(at));
        let (block, after) = rest.split_at(end.map_or(rest.len(), |at| at + 1));
        rest = after;
        Some(block)
    })
}

/// The indentation of a `CodeUri` line; `None` for any other line.
fn code_uri(line: &str) -> Option<&str> {
    let key = line.trim_start();
    key.starts_with("CodeUri:").then(|| &line[..line.len() - key.len()])
}

/// The binary that the function `resource` names in its build properties.
fn binary(resource: &str) -> Result<&str, Error> {
    let name = resource.split_once("Binary:").map(|(_, after)| after.trim_start());
    let name = name.and_then(|text| {
        text.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'))
            .next()
    });
    name.filter(|name| !name.is_empty()).ok_or_else(|| {
        let id = resource.trim_start().split(':').next().unwrap_or_default();
        Error::new(format!("find the binary of {id} in infra/template.yaml"), REMEDY)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "\
Resources:
  # about the webhook
  Webhook:
    Metadata:
      BuildProperties: { Binary: webhook }
    Properties:
      CodeUri: .. # the workspace
      Handler: bootstrap
  Table:
    Type: T
  Reaper:
    Properties:
      CodeUri: ..
    Metadata:
      BuildProperties:
        Binary: reaper
";

    #[test]
    fn each_function_gets_its_own_code_and_nothing_else_changes() {
        assert_eq!(binaries(TWO).expect("both are named"), ["webhook", "reaper"]);
        let packaged = with_code(TWO, &|binary| format!("s3://code/{binary}.zip")).expect("both are named");
        let expected = TWO
            .replace("CodeUri: .. # the workspace", "CodeUri: s3://code/webhook.zip")
            .replace("CodeUri: ..\n", "CodeUri: s3://code/reaper.zip\n");
        assert_eq!(packaged, expected);
    }

    #[test]
    fn a_function_without_a_binary_is_refused_by_name() {
        let error = binaries("Resources:\n  Lost:\n    Properties:\n      CodeUri: ..\n").expect_err("no binary");
        assert_eq!(error.to_string(), "find the binary of Lost in infra/template.yaml");
    }

    #[test]
    fn the_real_template_names_a_binary_for_every_function() {
        let template = include_str!("../../template.yaml");
        let names = binaries(template).expect("the template is ours");
        assert!(names.contains(&"webhook".to_owned()), "{names:?}");
    }
}
