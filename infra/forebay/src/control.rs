//! The AWS services that a deployment and its check need, spoken over plain HTTP.
//!
//! The emulator checks no signatures: it reads from the credential's scope which service is meant. So a few small
//! requests do here what would otherwise take five more SDK crates and their minutes of compilation. This module is
//! for the local stack alone; a real account is deployed to with the SAM CLI.

use serde_json::{Value, json};

use crate::error::{Attempt as _, Error};
use crate::http::{Http, Reply, Request};

/// Region of the local stack. Any would do.
pub(crate) const REGION: &str = "us-east-1";
/// Access key and secret key of the local stack: the emulator takes any, and a real account takes these never.
pub(crate) const DUMMY_KEY: &str = "forebay-local";

/// Longest piece of an error answer that is shown.
const SHOWN_CHARS_MAX: usize = 600;

/// The control plane of the AWS at `endpoint`.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    http: Http,
    endpoint: String,
}

impl Control {
    /// The control plane behind `endpoint`, such as `http://127.0.0.1:4566`.
    pub(crate) fn new(http: Http, endpoint: &str) -> Self {
        Self {
            http,
            endpoint: endpoint.to_owned(),
        }
    }

    /// Calls a `CloudFormation` action and returns its answer, an XML document.
    pub(crate) async fn cloudformation(&self, action: &str, parameters: &[(&str, &str)]) -> Result<String, Error> {
        let body = form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", action)
            .append_pair("Version", "2010-05-15")
            .extend_pairs(parameters)
            .finish();
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let reply = self
            .call("cloudformation", "POST", "/", &headers, body.as_bytes())
            .await?;
        Ok(checked(action, reply)?.text())
    }

    /// Calls a Secrets Manager action.
    pub(crate) async fn secretsmanager(&self, action: &str, input: &Value) -> Result<Value, Error> {
        let target = format!("secretsmanager.{action}");
        let headers = [
            ("content-type", "application/x-amz-json-1.1"),
            ("x-amz-target", target.as_str()),
        ];
        let body = input.to_string();
        let reply = self
            .call("secretsmanager", "POST", "/", &headers, body.as_bytes())
            .await?;
        parsed(action, checked(action, reply)?)
    }

    /// Calls an SQS action.
    pub(crate) async fn sqs(&self, action: &str, input: &Value) -> Result<Value, Error> {
        let target = format!("AmazonSQS.{action}");
        let headers = [
            ("content-type", "application/x-amz-json-1.0"),
            ("x-amz-target", target.as_str()),
        ];
        let body = input.to_string();
        let reply = self.call("sqs", "POST", "/", &headers, body.as_bytes()).await?;
        parsed(action, checked(action, reply)?)
    }

    /// Reads the log lines in a log group, oldest first, at most so many as the service gives at once.
    pub(crate) async fn log_lines(&self, group: &str) -> Result<Vec<String>, Error> {
        const ACTION: &str = "FilterLogEvents";
        let headers = [
            ("content-type", "application/x-amz-json-1.1"),
            ("x-amz-target", "Logs_20140328.FilterLogEvents"),
        ];
        let body = json!({ "logGroupName": group }).to_string();
        let reply = self.call("logs", "POST", "/", &headers, body.as_bytes()).await?;
        let answer = parsed(ACTION, checked(ACTION, reply)?)?;
        let events = answer["events"].as_array().map(Vec::as_slice).unwrap_or_default();
        let lines = events.iter().filter_map(|event| event["message"].as_str());
        Ok(lines.map(str::to_owned).collect())
    }

    /// Reads a Lambda resource, such as `/2015-03-31/functions/NAME/configuration`.
    pub(crate) async fn lambda(&self, path: &str) -> Result<Value, Error> {
        let reply = self.call("lambda", "GET", path, &[], &[]).await?;
        parsed(path, checked(path, reply)?)
    }

    /// Invokes the function called `name` with `event`, waits for its end, and gives the answer as it came: a function that
    /// failed is an answer of status 200 too.
    pub(crate) async fn invoke(&self, name: &str, event: &Value) -> Result<Reply, Error> {
        let url = format!("{}/2015-03-31/functions/{name}/invocations", self.endpoint);
        let (authorization, body) = (authorization("lambda"), event.to_string());
        let request = Request {
            method: "POST",
            url: &url,
            headers: &[("authorization", &authorization)],
            body: body.as_bytes(),
        };
        self.http.call_function(request).await
    }

    /// Makes an S3 bucket, or writes an object where `path` names one.
    pub(crate) async fn s3_put(&self, path: &str, body: &[u8]) -> Result<(), Error> {
        let reply = self.call("s3", "PUT", path, &[], body).await?;
        checked(path, reply).map(drop)
    }

    /// Sends one request with the credential scope of `service`.
    async fn call(
        &self,
        service: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Reply, Error> {
        let authorization = authorization(service);
        let url = format!("{}{path}", self.endpoint);
        let headers: Vec<_> = headers
            .iter()
            .copied()
            .chain([("authorization", authorization.as_str())])
            .collect();
        self.http
            .exchange(Request {
                method,
                url: &url,
                headers: &headers,
                body,
            })
            .await
    }
}

/// What names `service` to the emulator.
fn authorization(service: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential={DUMMY_KEY}/20260101/{REGION}/{service}/aws4_request, \
         SignedHeaders=host, Signature=none"
    )
}

/// `reply` where it is a success.
fn checked(action: &str, reply: Reply) -> Result<Reply, Error> {
    if reply.is_success() {
        return Ok(reply);
    }
    let text = reply.text();
    let message = xml_text(&text, "Message").map_or_else(|| text.clone(), unescape);
    let shown: String = message.chars().take(SHOWN_CHARS_MAX).collect();
    Err(Error::new(
        format!("call {action} of the emulator: it answered {}: {shown}", reply.status),
        "look into the emulator's log",
    ))
}

/// `reply` as JSON.
fn parsed(action: &str, reply: Reply) -> Result<Value, Error> {
    serde_json::from_slice(&reply.body).attempting(
        || format!("read the emulator's answer to {action}"),
        "look into the emulator's log",
    )
}

/// The text of the first element called `tag`. The answers of CloudFormation that are read here are flat and carry no
/// attributes, so that a parser would be more code than all of their reading.
pub(crate) fn xml_text<'a>(xml: &'a str, tag: &str) -> Option<&'a str> {
    xml_texts(xml, tag).next()
}

/// The texts of all elements called `tag`, in the document's order.
pub(crate) fn xml_texts<'a>(xml: &'a str, tag: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        let (_, from) = rest.split_once(&open)?;
        let (text, after) = from.split_once(&close)?;
        rest = after;
        Some(text)
    })
}

/// `text` with XML's five entities replaced.
pub(crate) fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#x27;", "'")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_is_waited_for_as_long_as_any_function_of_the_template_may_take() {
        let template = include_str!("../../template.yaml");
        let limits = template
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Timeout: "));
        let limits = limits.map(|limit| limit.split(' ').next().unwrap_or_default().parse().unwrap());
        let longest = Duration::from_secs(limits.max().unwrap());
        // It takes the connection and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let control = Control::new(Http::new(), &format!("http://{}", silent.local_addr().unwrap()));
        let began = Instant::now();
        control.invoke("slow", &json!({})).await.unwrap_err();
        assert!(
            began.elapsed() > longest,
            "{:?} is too short for {longest:?}",
            began.elapsed()
        );
    }

    #[test]
    fn elements_are_found_by_name_in_order() {
        let xml = "<R><m><Key>a</Key><V>1</V></m><m><Key>b &amp; c</Key></m></R>";
        assert_eq!(xml_texts(xml, "Key").map(unescape).collect::<Vec<_>>(), ["a", "b & c"]);
        assert_eq!(xml_text(xml, "V"), Some("1"));
        assert_eq!(xml_text(xml, "Absent"), None);
    }
}
