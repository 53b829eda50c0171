//! Deploying `infra/template.yaml` to the emulator, by the steps that a real deployment takes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use forebay_aws::config::visibility_seconds_min;
use serde_json::json;

use crate::bootstrap;
use crate::control::{Control, REGION, unescape, xml_text, xml_texts};
use crate::error::{Attempt as _, Error};
use crate::github;
use crate::secret::LOCAL_SECRET;
use crate::stack::{Function, INTAKE_PATH, Purpose, Stack, WEBHOOK_FUNCTION};
use crate::template;
use crate::wait;
use crate::workspace::Workspace;

/// How long a change set or a deployment may take. Two seconds are usual.
const DEPLOY: Duration = Duration::from_secs(60);
const STACK_NAME: &str = "forebay";
const CHANGE_SET: &str = "local";
const BUCKET: &str = "forebay-code";
/// Where the packaged template is put: the bucket, and a key in it.
const TEMPLATE: &str = "/forebay-code/template.yaml";
const FAILED_REMEDY: &str = "look into the emulator's log, and check the template with cfn-lint";

/// What differs from the template's defaults.
const PARAMETERS: &[(&str, &str)] = &[
    ("Agents", "builder,reviewer"),
    // The author of one of the recorded comments: an agent's own words wake nobody.
    ("IgnoredActors", "acme-builder[bot]"),
    // The owner of one of the recorded issues.
    ("Routes", "acme/app#41=reviewer"),
    ("QueueRoutes", "orders=builder"),
    // The emulator compares the limit as the text that a parameter is, and fails.
    ("QueueMaximumConcurrency", "0"),
    // Recorded inputs never become too old to be driven.
    ("RetentionDays", "3650"),
    ("DeletionProtection", "false"),
];

/// The queue whose messages the local stack takes, and its dead letters, as a user would have them.
pub(crate) const SOURCE_QUEUE: &str = "orders";
const SOURCE_DEAD_LETTERS: &str = "orders-dead";
/// Its visibility timeout, in seconds.
pub const SOURCE_VISIBILITY_SECONDS: i64 = visibility_seconds_min(0);
/// How often a message is received before it moves to the dead letters.
pub const SOURCE_RECEIVES_MAX: u32 = 3;
/// The account of the local stack.
const ACCOUNT: &str = "000000000000";

/// The processor of this machine in Lambda's words: the functions run here.
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "x86_64"
};

/// Where a stack is deployed, and what it finds there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    /// Address of every AWS service.
    pub(crate) endpoint: &'a str,
    /// Process id of the emulator.
    pub(crate) emulator: Option<u32>,
    /// Address of the fake GitHub; without one, nothing is asked of any.
    pub(crate) github: Option<&'a str>,
}

/// Deploys the template with these `binaries` for `purpose` and returns where everything is.
pub(crate) async fn deploy(
    workspace: &Workspace,
    control: &Control,
    surroundings: Surroundings<'_>,
    binaries: &BTreeMap<String, PathBuf>,
    purpose: Purpose,
) -> Result<Stack, Error> {
    let Surroundings {
        endpoint,
        emulator,
        github,
    } = surroundings;
    upload(control, binaries).await?;
    let template = read_template(workspace)?;
    let template = template::with_code(&template, &|binary| format!("s3://{BUCKET}/{binary}.zip"))?;
    // A request takes 51,200 bytes of a template, a bucket a million, as `sam deploy` does it too
    // (<https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html>).
    control.s3_put(TEMPLATE, template.as_bytes()).await?;
    let source_queue_url = make_source_queue(control).await?;
    create(control, &format!("{endpoint}{TEMPLATE}"), purpose, github).await?;
    let functions = functions(control).await?;
    let webhook_url = webhook_url(control, endpoint, &functions).await?;
    let stack = Stack {
        emulator,
        endpoint: endpoint.to_owned(),
        region: REGION.to_owned(),
        webhook_url,
        source_queue_url,
        github: github.map(str::to_owned),
        functions,
    };
    seed_secret(control, &stack).await?;
    Ok(stack)
}

/// The template's text.
pub(crate) fn read_template(workspace: &Workspace) -> Result<String, Error> {
    let path = workspace.template();
    std::fs::read_to_string(&path).attempting(
        || format!("read {}", path.display()),
        "run the command inside a checkout of Forebay",
    )
}

/// Packs each binary and puts it where the packaged template says.
async fn upload(control: &Control, binaries: &BTreeMap<String, PathBuf>) -> Result<(), Error> {
    control.s3_put(&format!("/{BUCKET}"), &[]).await?;
    for (name, path) in binaries {
        control
            .s3_put(&format!("/{BUCKET}/{name}.zip"), &bootstrap::pack(path)?)
            .await?;
    }
    Ok(())
}

/// ARN of a queue of the local stack.
pub(crate) fn queue_arn(name: &str) -> String {
    format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{name}")
}

/// Makes the queue whose messages the stack takes: it is the user's, and so no part of the template.
async fn make_source_queue(control: &Control) -> Result<String, Error> {
    control
        .sqs("CreateQueue", &json!({ "QueueName": SOURCE_DEAD_LETTERS }))
        .await?;
    let redrive = json!({
        "deadLetterTargetArn": queue_arn(SOURCE_DEAD_LETTERS),
        "maxReceiveCount": SOURCE_RECEIVES_MAX,
    });
    let attributes = json!({
        "VisibilityTimeout": SOURCE_VISIBILITY_SECONDS.to_string(),
        "RedrivePolicy": redrive.to_string(),
    });
    let queue = json!({ "QueueName": SOURCE_QUEUE, "Attributes": attributes });
    let answer = control.sqs("CreateQueue", &queue).await?;
    let url = answer["QueueUrl"].as_str().map(str::to_owned);
    url.ok_or_else(|| {
        Error::new(
            format!("make the queue {SOURCE_QUEUE}: no URL in the answer"),
            FAILED_REMEDY,
        )
    })
}

/// Makes the stack by a change set: transforms are only allowed there.
async fn create(control: &Control, template_url: &str, purpose: Purpose, github: Option<&str>) -> Result<(), Error> {
    let named = [("StackName", STACK_NAME), ("ChangeSetName", CHANGE_SET)];
    let mut request: Vec<(String, &str)> = named.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let mut set = |name: String, value| request.push((name, value));
    set("ChangeSetType".to_owned(), "CREATE");
    set("TemplateURL".to_owned(), template_url);
    set("Capabilities.member.1".to_owned(), "CAPABILITY_IAM");
    set("Capabilities.member.2".to_owned(), "CAPABILITY_AUTO_EXPAND");
    let source = queue_arn(SOURCE_QUEUE);
    let here = [
        ("Architecture", ARCHITECTURE),
        ("ApplicationLogLevel", purpose.log_level()),
        ("SourceQueueArn", source.as_str()),
    ];
    let asked = github.map(|base| ("GithubApiUrl", base));
    let asked_for = asked.iter().flat_map(|_| github::PARAMETERS);
    let of_all = PARAMETERS.iter().chain(&here).chain(&asked).chain(asked_for);
    let of_all = of_all.chain(purpose.parameters());
    // By name: what the purpose says comes last, and counts.
    let parameters: BTreeMap<&str, &str> = of_all.copied().collect();
    for (number, (name, value)) in (1..).zip(parameters) {
        set(format!("Parameters.member.{number}.ParameterKey"), name);
        set(format!("Parameters.member.{number}.ParameterValue"), value);
    }
    let request: Vec<(&str, &str)> = request.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    control.cloudformation("CreateChangeSet", &request).await?;
    settled(control, "DescribeChangeSet", &named, "Status").await?;
    control.cloudformation("ExecuteChangeSet", &named).await?;
    let outcome = settled(control, "DescribeStacks", &named[..1], "StackStatus").await;
    match outcome {
        Ok(()) => Ok(()),
        Err(error) => Err(first_failure(control).await?.unwrap_or(error)),
    }
}

/// Waits until the state in `element` of `action`'s answer is final, and takes any but `CREATE_COMPLETE` for a failure.
async fn settled(control: &Control, action: &str, parameters: &[(&str, &str)], element: &str) -> Result<(), Error> {
    let state = wait::until(DEPLOY, async || {
        let answer = control.cloudformation(action, parameters).await?;
        let state = xml_text(&answer, element).unwrap_or_default();
        let is_final = state.ends_with("_COMPLETE") || state.ends_with("FAILED");
        let reason = xml_text(&answer, "StatusReason").or(xml_text(&answer, "StackStatusReason"));
        Ok(is_final.then(|| (state.to_owned(), reason.map(unescape).unwrap_or_default())))
    });
    match state.await? {
        Some((state, _)) if state == "CREATE_COMPLETE" => Ok(()),
        Some((state, reason)) => Err(Error::new(
            format!("deploy infra/template.yaml: {state}: {reason}"),
            FAILED_REMEDY,
        )),
        None => Err(Error::new(
            format!(
                "deploy infra/template.yaml: {action} was not settled within {} s",
                DEPLOY.as_secs()
            ),
            FAILED_REMEDY,
        )),
    }
}

/// The resource that failed first, which says more than the stack's own state.
async fn first_failure(control: &Control) -> Result<Option<Error>, Error> {
    let answer = control
        .cloudformation("DescribeStackEvents", &[("StackName", STACK_NAME)])
        .await?;
    // The newest event comes first.
    let failed = xml_texts(&answer, "member")
        .filter(|event| xml_text(event, "ResourceStatus").is_some_and(|status| status.ends_with("FAILED")))
        .filter_map(|event| {
            Some((
                xml_text(event, "LogicalResourceId")?,
                xml_text(event, "ResourceStatusReason")?,
            ))
        })
        .last();
    Ok(failed.map(|(id, reason)| {
        Error::new(
            format!("deploy {id} of infra/template.yaml: {}", unescape(reason)),
            FAILED_REMEDY,
        )
    }))
}

/// The stack's functions with the environment that each really has.
async fn functions(control: &Control) -> Result<BTreeMap<String, Function>, Error> {
    let answer = control
        .cloudformation("DescribeStackResources", &[("StackName", STACK_NAME)])
        .await?;
    let mut functions = BTreeMap::new();
    for resource in xml_texts(&answer, "member") {
        let field = |name| xml_text(resource, name).map(unescape).unwrap_or_default();
        if field("ResourceType") == "AWS::Lambda::Function" {
            let name = field("PhysicalResourceId");
            let configuration = control
                .lambda(&format!("/2015-03-31/functions/{name}/configuration"))
                .await?;
            let variables = configuration["Environment"]["Variables"].as_object();
            let environment = variables
                .into_iter()
                .flatten()
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect();
            let log_group = configuration["LoggingConfig"]["LogGroup"].as_str();
            let log_group = log_group.map_or_else(|| format!("/aws/lambda/{name}"), str::to_owned);
            let function = Function {
                name,
                environment,
                log_group,
            };
            functions.insert(field("LogicalResourceId"), function);
        }
    }
    Ok(functions)
}

/// The webhook's address here. Its own, `https://<id>.lambda-url.<region>.on.aws/`, resolves only at AWS; the emulator
/// serves the same id under a path.
async fn webhook_url(
    control: &Control,
    endpoint: &str,
    functions: &BTreeMap<String, Function>,
) -> Result<String, Error> {
    let missing = || Error::new(format!("find the URL of {WEBHOOK_FUNCTION}"), FAILED_REMEDY);
    let webhook = functions.get(WEBHOOK_FUNCTION).ok_or_else(missing)?;
    let answer = control
        .lambda(&format!("/2021-10-31/functions/{}/url", webhook.name))
        .await?;
    let url = answer["FunctionUrl"].as_str().ok_or_else(missing)?;
    let id = url
        .strip_prefix("https://")
        .and_then(|host| host.split('.').next())
        .ok_or_else(missing)?;
    Ok(format!("{endpoint}/_aws/lambda-url/{id}{INTAKE_PATH}"))
}

/// Puts the local development secret where the webhook looks for its secret, and beside it what a fake GitHub is asked with.
async fn seed_secret(control: &Control, stack: &Stack) -> Result<(), Error> {
    let document = json!({ "github": { "webhook_secret": LOCAL_SECRET, "token": github::LOCAL_TOKEN } });
    let input = json!({
        "SecretId": stack.variable("SECRET_ID")?,
        "SecretString": document.to_string(),
        // The emulator takes any token; a fresh stack needs only this one version.
        "ClientRequestToken": "00000000-0000-4000-8000-000000000001",
    });
    control.secretsmanager("PutSecretValue", &input).await.map(drop)
}
