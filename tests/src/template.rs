//! The stack's template as data: CloudFormation's short tags spelt out, its loops over agents unrolled.

use saphyr::{LoadableYamlNode as _, Scalar, Yaml};
use serde_json::{Map, Value, json};

/// Where the workspace is.
pub const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The stack's template.
#[derive(Clone, Debug)]
pub struct Template(Value);

impl Template {
    /// `infra/template.yaml`, with its loops unrolled for the agents that it names by default.
    ///
    /// # Panics
    /// Where it is not there, or not YAML.
    #[must_use]
    pub fn read() -> Self {
        let path = format!("{WORKSPACE}/infra/template.yaml");
        let text = std::fs::read_to_string(path).expect("the template is there");
        let documents = Yaml::load_from_str(&text).expect("the template is YAML");
        let raw = json_of(documents.first().expect("one document"));
        let agents = raw["Parameters"]["Agents"]["Default"].as_str().unwrap_or_default();
        let agents: Vec<Value> = agents.split(',').map(|name| json!(name)).collect();
        Self(unrolled(&raw, &agents))
    }

    /// The part at `pointer` (RFC 6901); null where there is none.
    #[must_use]
    pub fn at(&self, pointer: &str) -> &Value {
        self.0.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// Names and definitions of all resources of one type.
    #[must_use]
    pub fn resources(&self, kind: &str) -> Vec<(&str, &Value)> {
        let all = self.0["Resources"].as_object().into_iter().flatten();
        all.filter(|(_, resource)| resource["Type"] == kind)
            .map(|(name, resource)| (name.as_str(), resource))
            .collect()
    }

    /// Every resource, by name.
    #[must_use]
    pub fn all(&self) -> Vec<(&str, &Value)> {
        let all = self.0["Resources"].as_object().into_iter().flatten();
        all.map(|(name, resource)| (name.as_str(), resource)).collect()
    }

    /// Name and definition of every parameter.
    #[must_use]
    pub fn parameters(&self) -> Vec<(&str, &Value)> {
        let all = self.0["Parameters"].as_object().into_iter().flatten();
        all.map(|(name, parameter)| (name.as_str(), parameter)).collect()
    }
}

/// YAML as JSON. `!Ref x` is `{"Ref": x}`, and every other short tag the long form `Fn::…`.
fn json_of(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(value)) => json!(value),
        Yaml::Value(Scalar::Integer(value)) => json!(value),
        Yaml::Value(Scalar::FloatingPoint(value)) => json!(value.into_inner()),
        Yaml::Value(Scalar::String(value)) => json!(value),
        Yaml::Sequence(items) => items.iter().map(json_of).collect(),
        Yaml::Mapping(entries) => {
            let entries = entries.iter().map(|(key, value)| (text_of(key), json_of(value)));
            Value::Object(entries.collect())
        }
        Yaml::Tagged(tag, value) => {
            let name = match tag.suffix.as_str() {
                "Ref" | "Condition" => tag.suffix.clone(),
                function => format!("Fn::{function}"),
            };
            json!({name: json_of(value)})
        }
        Yaml::Representation(..) | Yaml::Alias(_) | Yaml::BadValue => Value::Null,
    }
}

fn text_of(key: &Yaml<'_>) -> String {
    match json_of(key) {
        Value::String(text) => text,
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    }
}

/// `value` with each `Fn::ForEach` replaced by what it makes, once for each member of its list.
fn unrolled(value: &Value, agents: &[Value]) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| unrolled(item, agents)).collect(),
        Value::Object(entries) => {
            let mut made = Map::new();
            for (key, entry) in entries {
                match (key.starts_with("Fn::ForEach::"), entry.as_array().map(Vec::as_slice)) {
                    (true, Some([Value::String(variable), list, body])) => {
                        let list = list.as_array().map_or(agents, Vec::as_slice);
                        for member in list.iter().filter_map(Value::as_str) {
                            let body = replaced(body, &format!("${{{variable}}}"), member);
                            made.extend(unrolled(&body, agents).as_object().cloned().unwrap_or_default());
                        }
                    }
                    _ => {
                        made.insert(key.clone(), unrolled(entry, agents));
                    }
                }
            }
            Value::Object(made)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn replaced(value: &Value, variable: &str, member: &str) -> Value {
    match value {
        Value::String(text) => json!(text.replace(variable, member)),
        Value::Array(items) => items.iter().map(|item| replaced(item, variable, member)).collect(),
        Value::Object(entries) => {
            let entries = entries
                .iter()
                .map(|(key, entry)| (key.replace(variable, member), replaced(entry, variable, member)));
            Value::Object(entries.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
