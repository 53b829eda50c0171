//! Calling a function: one signed request, to the local stack and to an account alike.

use std::time::SystemTime;

use aws_config::SdkConfig;
use aws_sdk_dynamodb::config::{Credentials, ProvideCredentials as _};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;

use crate::connect::Callable;
use crate::error::{Attempt as _, Error};
use crate::http::{Http, Reply, Request};

const SERVICE: &str = "lambda";
/// What an event without content is.
const NO_EVENT: &[u8] = b"{}";

/// Calls a function with an empty event, and gives the answer as it came: a function that failed is an answer of status 200 too.
pub(crate) async fn invoke(callable: &Callable, now: SystemTime) -> Result<Reply, Error> {
    let Callable { function, sdk } = callable;
    let attempted = || format!("call the function {function}");
    let region = sdk.region().map(ToString::to_string).ok_or_else(|| {
        Error::new(
            format!("{}: no region is configured", attempted()),
            "set AWS_REGION, or a region in the AWS profile",
        )
    })?;
    let credentials = credentials(sdk).await?;
    let url = format!("{}/2015-03-31/functions/{function}/invocations", endpoint(sdk, &region));
    let signed = signed(&url, credentials, &region, now).attempting(attempted, "report this as a bug")?;
    let headers: Vec<(&str, &str)> = signed
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let request = Request {
        method: "POST",
        url: &url,
        headers: &headers,
        body: NO_EVENT,
    };
    Http::new().call_function(request).await
}

async fn credentials(sdk: &SdkConfig) -> Result<Credentials, Error> {
    let remedy = "log in as for the AWS CLI, or set the AWS variables";
    let attempted = || "find AWS credentials".to_owned();
    let provider = sdk.credentials_provider();
    let provider = provider.ok_or_else(|| Error::new(attempted(), remedy))?;
    provider.provide_credentials().await.attempting(attempted, remedy)
}

/// Where the service is: where everything is said to be, else where AWS has it.
fn endpoint(sdk: &SdkConfig, region: &str) -> String {
    match sdk.endpoint_url() {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => {
            // China is a partition of its own, with a domain of its own.
            let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
            format!("https://{SERVICE}.{region}.amazonaws.com{suffix}")
        }
    }
}

/// The headers that sign a call of `url`.
fn signed(
    url: &str,
    credentials: Credentials,
    region: &str,
    now: SystemTime,
) -> Result<Vec<(String, String)>, Box<dyn std::error::Error + Send + Sync>> {
    let identity = credentials.into();
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(SERVICE)
        .time(now)
        .settings(SigningSettings::default())
        .build()?
        .into();
    let request = SignableRequest::new("POST", url, std::iter::empty(), SignableBody::Bytes(NO_EVENT))?;
    let (instructions, _signature) = sign(request, &parameters)?.into_parts();
    let headers = instructions.headers();
    Ok(headers
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_config::Region;

    use super::*;

    #[test]
    fn a_call_is_signed_for_its_service_region_and_day_and_a_session_is_named() {
        let credentials = Credentials::new("AKIDEXAMPLE", "hidden", Some("session".to_owned()), None, "test");
        let url = "https://lambda.eu-west-1.amazonaws.com/2015-03-31/functions/f/invocations";
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160);
        let headers = signed(url, credentials, "eu-west-1", now).unwrap();
        let header = |wanted: &str| {
            headers
                .iter()
                .find(|(name, _)| *name == wanted)
                .map(|(_, value)| value.as_str())
        };
        let authorization = header("authorization").unwrap();
        let begins = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/eu-west-1/lambda/aws4_request, ";
        assert!(authorization.starts_with(begins), "{authorization}");
        assert_eq!(header("x-amz-date"), Some("20150830T123600Z"));
        assert_eq!(header("x-amz-security-token"), Some("session"));
        assert!(headers.iter().all(|(_, value)| !value.contains("hidden")));
    }

    #[test]
    fn the_service_is_where_everything_is_or_where_aws_has_it() {
        let given = SdkConfig::builder().endpoint_url("http://127.0.0.1:4566/").build();
        assert_eq!(endpoint(&given, "us-east-1"), "http://127.0.0.1:4566");
        let usual = SdkConfig::builder().region(Region::new("eu-west-1")).build();
        assert_eq!(endpoint(&usual, "eu-west-1"), "https://lambda.eu-west-1.amazonaws.com");
        assert_eq!(
            endpoint(&usual, "cn-north-1"),
            "https://lambda.cn-north-1.amazonaws.com.cn"
        );
    }
}
