//! The template, held to the code: names, defaults, ranges, the table, the queues, and what the roles may do.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::collections::{BTreeMap, BTreeSet};

use forebay_aws::config::{
    Config, INBOX_PREFIX, LEASED_SECONDS_MAX, POLLER_SECONDS_MAX, POLLER_VARIABLES, PollerConfig, REAPER_SECONDS_MAX,
    REAPER_VARIABLES, ReaperConfig, SQS_SECONDS_MAX, SQS_VARIABLES, SqsConfig, VARIABLES, visibility_seconds_min,
};
use forebay_aws::dynamodb::{DUE_INDEX, RECENT_INDEX, WAITING_INDEX};
use forebay_core::ledger::Limits;
use forebay_core::reap::ReapLimits;
use forebay_core::route::{DISPATCHER, NOTICE};
use forebay_core::shed::{LATENCY_BOUNDS_MS, ShedderConfig};
use forebay_core::source::github::RecoveryConfig;
use forebay_tests::table::{TABLE, Table};
use forebay_tests::template::{Template, WORKSPACE};
use jiff::SignedDuration;
use serde_json::{Value, json};

const FUNCTION: &str = "AWS::Serverless::Function";
const QUEUE: &str = "AWS::SQS::Queue";
const WEBHOOK: &str = "WebhookFunction";
const REAPER: &str = "ReaperFunction";
const SQS: &str = "SqsFunction";
const POLLER: &str = "PollerFunction";

/// Variables of a function, as the template sets them.
fn variables(function: &Value) -> BTreeMap<String, Value> {
    let variables = function["Properties"]["Environment"]["Variables"].as_object();
    variables.cloned().unwrap_or_default().into_iter().collect()
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The environment of a function, with `changed` in place of the parameters' defaults.
fn environment(template: &Template, function: &str, changed: &[(&str, &Value)]) -> BTreeMap<String, String> {
    let function = template.at(&format!("/Resources/{function}"));
    let value = |name: &str, value: &Value| {
        let parameter = value["Ref"].as_str().unwrap_or_default();
        let default = template.at(&format!("/Parameters/{parameter}/Default"));
        let changed = changed.iter().find(|(name, _)| *name == parameter);
        match (changed, default) {
            (Some((_, value)), _) => text_of(value),
            // A resource: a queue gives its URL for itself, anything else its name. Which does not matter here.
            (None, Value::Null) if name.starts_with(INBOX_PREFIX) => "https://sqs/resource".to_owned(),
            (None, Value::Null) => "resource".to_owned(),
            (None, default) => text_of(default),
        }
    };
    let variables = variables(function);
    variables
        .iter()
        .map(|(name, set)| (name.clone(), value(name, set)))
        .collect()
}

#[test]
fn the_function_gets_every_variable_that_the_code_reads_and_no_other() {
    // S2-06 of names: one definition, compared.
    let template = Template::read();
    let functions = [
        (WEBHOOK, VARIABLES),
        (REAPER, REAPER_VARIABLES),
        (SQS, SQS_VARIABLES),
        (POLLER, POLLER_VARIABLES),
    ];
    for (name, read) in functions {
        let given = variables(template.at(&format!("/Resources/{name}")));
        let (inboxes, others): (Vec<_>, Vec<_>) = given.keys().partition(|name| name.starts_with(INBOX_PREFIX));
        let expected: BTreeSet<&str> = read.iter().copied().collect();
        let others: BTreeSet<&str> = others.into_iter().map(String::as_str).collect();
        assert_eq!(others, expected, "{name}");
        let inboxes: BTreeSet<&str> = inboxes
            .into_iter()
            .filter_map(|name| name.strip_prefix(INBOX_PREFIX))
            .collect();
        assert_eq!(
            inboxes,
            BTreeSet::from(["builder", "reviewer", DISPATCHER, NOTICE]),
            "{name}"
        );
    }
    assert_eq!(template.resources(FUNCTION).len(), functions.len());
}

#[test]
fn each_parameter_says_what_it_is_and_is_bounded() {
    let template = Template::read();
    for (name, parameter) in template.parameters() {
        let described = parameter["Description"].as_str().is_some_and(|text| text.len() > 20);
        assert!(described, "{name} needs a Description");
        assert!(!parameter["Default"].is_null(), "{name} needs a Default");
        let bounded = ["AllowedPattern", "AllowedValues"]
            .iter()
            .any(|kind| !parameter[*kind].is_null())
            || (parameter["MinValue"].is_number() && parameter["MaxValue"].is_number());
        assert!(bounded, "{name} needs a pattern, values or a range");
        if !parameter["AllowedPattern"].is_null() {
            assert!(
                !parameter["ConstraintDescription"].is_null(),
                "{name}: say its pattern in words"
            );
        }
    }
}

#[test]
fn the_defaults_of_template_and_code_are_the_same() {
    let template = Template::read();
    let with_defaults = environment(&template, WEBHOOK, &[]);
    // Only what has no default.
    let needed = |name: &str| name.starts_with(INBOX_PREFIX) || ["TABLE_NAME", "SECRET_ID"].contains(&name);
    let mut bare = with_defaults.clone();
    bare.retain(|name, _| needed(name));
    let config = Config::read(with_defaults).unwrap();
    assert_eq!(
        (config.limits, config.shedder),
        (Limits::default(), ShedderConfig::default())
    );
    assert_eq!(format!("{config:?}"), format!("{:?}", Config::read(bare).unwrap()));
    let with_defaults = environment(&template, REAPER, &[]);
    let mut bare = with_defaults.clone();
    bare.retain(|name, _| needed(name));
    let config = ReaperConfig::read(with_defaults).unwrap();
    assert_eq!((config.limits, config.reap), (Limits::default(), ReapLimits::default()));
    assert_eq!(
        format!("{config:?}"),
        format!("{:?}", ReaperConfig::read(bare).unwrap())
    );
    let with_defaults = environment(&template, SQS, &[]);
    let mut bare = with_defaults.clone();
    bare.retain(|name, _| needed(name));
    let config = SqsConfig::read(with_defaults).unwrap();
    assert_eq!(config.limits, Limits::default());
    assert_eq!(format!("{config:?}"), format!("{:?}", SqsConfig::read(bare).unwrap()));
    let mut with_defaults = environment(&template, POLLER, &[]);
    // The function's own URL, which only a stack has.
    with_defaults.remove("RECOVER_ADDRESS");
    let mut bare = with_defaults.clone();
    bare.retain(|name, _| needed(name));
    let config = PollerConfig::read(with_defaults).unwrap();
    assert_eq!(
        (config.limits, config.recovery.clone()),
        (Limits::default(), RecoveryConfig::default())
    );
    assert!(config.feeds.is_empty() && config.logs.is_empty());
    assert_eq!(
        format!("{config:?}"),
        format!("{:?}", PollerConfig::read(bare).unwrap())
    );
}

#[test]
fn every_value_that_a_parameter_allows_is_one_that_the_code_takes() {
    check_every_border(WEBHOOK, 16, |environment| Config::read(environment).map(drop));
    check_every_border(REAPER, 17, |environment| ReaperConfig::read(environment).map(drop));
    check_every_border(SQS, 14, |environment| SqsConfig::read(environment).map(drop));
    check_every_border(POLLER, 24, |environment| PollerConfig::read(environment).map(drop));
}

#[test]
fn the_code_takes_the_texts_that_the_patterns_of_host_and_namespace_take() {
    let template = Template::read();
    let longest = "n".repeat(253);
    for (name, pattern, good, bad) in [
        (
            "GithubHost",
            "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$",
            ["g", "0.ghe-1.example", longest.as_str()],
            ["-ghe", "ghe.", "https://ghe"],
        ),
        (
            "MetricsNamespace",
            "^[A-Za-z][A-Za-z0-9_./#-]{0,254}$",
            ["F", "acme/Forebay_2.x#a-b", longest.as_str()],
            ["2F", "F orebay", "F:x"],
        ),
    ] {
        // Whoever widens one of them widens the other.
        assert_eq!(template.at(&format!("/Parameters/{name}/AllowedPattern")), pattern);
        let read = |text: &str| Config::read(environment(&template, WEBHOOK, &[(name, &text.into())]));
        for text in good {
            assert!(read(text).is_ok(), "{name}={text}");
        }
        for text in bad {
            assert!(read(text).is_err(), "{name}={text}");
        }
    }
}

#[test]
fn every_listed_threshold_of_the_shedder_is_one_that_the_code_takes() {
    let template = Template::read();
    for name in ["ShedWindowSeconds", "ShedLatencyMsMax"] {
        let values = template.at(&format!("/Parameters/{name}/AllowedValues"));
        for value in values.as_array().unwrap() {
            let read = Config::read(environment(&template, WEBHOOK, &[(name, value)]));
            assert!(read.is_ok(), "{name}={value}: {read:?}");
        }
    }
    let bounds = template.at("/Parameters/ShedLatencyMsMax/AllowedValues");
    let known = |value: &Value| {
        LATENCY_BOUNDS_MS
            .iter()
            .any(|bound| value.as_u64() == Some(u64::from(*bound)))
    };
    assert!(bounds.as_array().unwrap().iter().all(known));
    // A probe's right outlasts the call under it, whatever is chosen.
    let shortest = template.at("/Parameters/ShedProbeSeconds/MinValue").as_i64().unwrap();
    assert!(shortest > forebay_core::drive::SEND_TIME_MAX.as_secs());
}

/// Reads the environment of `function` with every pair of borders of the parameters that it uses: so many have a range.
fn check_every_border(
    function: &str,
    count: usize,
    read: impl Fn(BTreeMap<String, String>) -> Result<(), forebay_aws::config::Problems>,
) {
    let template = Template::read();
    let used: BTreeSet<String> = variables(template.at(&format!("/Resources/{function}")))
        .values()
        .filter_map(|value| Some(value["Ref"].as_str()?.to_owned()))
        .collect();
    let ranges: Vec<_> = template
        .parameters()
        .into_iter()
        .filter(|(name, parameter)| used.contains(*name) && parameter["MinValue"].is_number())
        .map(|(name, parameter)| (name, [&parameter["MinValue"], &parameter["MaxValue"]]))
        .collect();
    assert_eq!(ranges.len(), count, "{ranges:?}");
    // Parameters limit one another: every pair of borders, with all others at their defaults.
    for (one, borders) in &ranges {
        for (other, other_borders) in &ranges {
            for border in borders {
                for other_border in other_borders {
                    let read = read(environment(
                        &template,
                        function,
                        &[(one, border), (other, other_border)],
                    ));
                    assert!(read.is_ok(), "{one}={border} {other}={other_border}: {read:?}");
                }
            }
        }
    }
}

#[test]
fn a_lease_outlives_the_work_under_it_whatever_the_parameters_are() {
    // DESIGN §4: lease ≥ function timeout + skew. The reaper ends each drive as early as the webhook would.
    let template = Template::read();
    let border = |pointer: &str| template.at(pointer).as_i64().unwrap();
    let shortest = border("/Parameters/LeaseSeconds/MinValue");
    let widest = border("/Parameters/SkewSeconds/MaxValue");
    assert!(shortest > LEASED_SECONDS_MAX + widest);
    let timeout = |name: &str| border(&format!("/Resources/{name}/Properties/Timeout"));
    assert_eq!(timeout(WEBHOOK), LEASED_SECONDS_MAX);
    assert_eq!(reaper::DRIVE_TIME_MAX.as_secs(), LEASED_SECONDS_MAX.unsigned_abs());
    assert_eq!(sqs::ROUND_TIME_MAX.as_secs(), LEASED_SECONDS_MAX.unsigned_abs());
    assert_eq!(timeout(SQS), SQS_SECONDS_MAX);
    // No run of the reaper meets the next one: the shortest schedule is a minute.
    assert_eq!(timeout(REAPER), REAPER_SECONDS_MAX);
    assert!(timeout(REAPER) < 60);
    assert!(border("/Parameters/RetrySecondsMin/MaxValue") <= border("/Parameters/RetrySecondsMax/MinValue"));
}

#[test]
fn a_source_is_held_for_as_long_as_a_poller_may_run_whatever_the_parameters_are() {
    let template = Template::read();
    let timeout = template.at("/Resources/PollerFunction/Properties/Timeout");
    assert_eq!(timeout.as_i64(), Some(POLLER_SECONDS_MAX));
    // No run of the poller meets the next one: the shortest schedule is a minute.
    const { assert!(POLLER_SECONDS_MAX < 60) };
    for border in ["MinValue", "MaxValue"] {
        let skew = template.at(&format!("/Parameters/SkewSeconds/{border}"));
        let config = PollerConfig::read(environment(&template, POLLER, &[("SkewSeconds", skew)])).unwrap();
        let longest = SignedDuration::from_secs(POLLER_SECONDS_MAX) + config.limits.skew;
        assert!(config.schedule.lease >= longest, "{:?}", config.schedule);
        assert!(config.schedule.interval_min() > longest || config.limits.skew.is_zero());
    }
}

#[test]
fn a_feed_is_polled_only_where_what_it_shows_is_not_stale() {
    // Rules cannot compare numbers: each that is too small is named, and what the code refuses is what the template refuses.
    let template = Template::read();
    let rule = template.at("/Rules/FeedSettings");
    let given = json!({"Fn::Not": [{"Fn::Equals": [{"Ref": "PollRepositories"}, ""]}]});
    assert_eq!(rule["RuleCondition"], given);
    assert_eq!(template.at("/Parameters/PollRepositories/Default"), "");
    let contains = &rule["Assertions"][0]["Assert"]["Fn::Not"][0]["Fn::Contains"];
    assert_eq!(contains[1], json!({"Ref": "RetentionDays"}));
    let refused: BTreeSet<String> = listed(&contains[0]).iter().map(text_of).collect();
    let fewest = template.at("/Parameters/RetentionDays/MinValue").as_i64().unwrap();
    for days in fewest..=40 {
        let (days, one) = (json!(days), json!("acme/app"));
        let polled = [("RetentionDays", &days), ("PollRepositories", &one)];
        let read = PollerConfig::read(environment(&template, POLLER, &polled));
        assert_eq!(read.is_err(), refused.contains(&days.to_string()), "{days} {read:?}");
        let read = PollerConfig::read(environment(&template, POLLER, &polled[..1]));
        assert!(read.is_ok(), "{days} {read:?}");
    }
    assert_eq!(refused.len(), 16);
    // github.com keeps its log for three days; only an Enterprise server for seven.
    let rule = template.at("/Rules/RecoverySettings");
    assert_eq!(
        rule["RuleCondition"],
        json!({"Fn::Equals": [{"Ref": "GithubHost"}, "github.com"]})
    );
    assert_eq!(
        rule["Assertions"][0]["Assert"],
        json!({"Fn::Equals": [{"Ref": "RecoverLogDays"}, 3]})
    );
}

#[test]
fn every_listed_value_of_what_is_polled_is_one_that_the_code_takes() {
    let template = Template::read();
    for name in ["RecoverApp", "RecoverRemedy", "RecoverLogDays"] {
        let values = template.at(&format!("/Parameters/{name}/AllowedValues"));
        for value in values.as_array().unwrap() {
            let read = PollerConfig::read(environment(&template, POLLER, &[(name, value)]));
            assert!(read.is_ok(), "{name}={value}: {read:?}");
        }
    }
}

#[test]
fn the_ledger_is_kept_protected_and_streamed() {
    let template = Template::read();
    let [(_, table)] = template.resources("AWS::DynamoDB::Table")[..] else {
        panic!("one table")
    };
    assert_eq!(
        (&table["DeletionPolicy"], &table["UpdateReplacePolicy"]),
        (&json!("Retain"), &json!("Retain"))
    );
    let properties = &table["Properties"];
    let expected = [
        ("BillingMode", json!("PAY_PER_REQUEST")),
        (
            "PointInTimeRecoverySpecification",
            json!({"PointInTimeRecoveryEnabled": true}),
        ),
        ("SSESpecification", json!({"SSEEnabled": true})),
        ("StreamSpecification", json!({"StreamViewType": "NEW_IMAGE"})),
        (
            "TimeToLiveSpecification",
            json!({"AttributeName": "expires_at", "Enabled": true}),
        ),
        (
            "DeletionProtectionEnabled",
            json!({"Fn::If": ["ProtectsLedger", true, false]}),
        ),
    ];
    for (name, value) in expected {
        assert_eq!(properties[name], value, "{name}");
    }
    assert_eq!(template.at("/Parameters/DeletionProtection/Default"), "true");
    assert_eq!(properties["TableName"], Value::Null, "left to the stack");
}

/// What tells one table's shape from another's: attributes, keys, and keys and projection of each index.
type Shape = (
    BTreeSet<(String, String)>,
    Vec<(String, String)>,
    BTreeMap<String, (Vec<(String, String)>, String)>,
);

fn pairs(list: &Value, one: &str, other: &str) -> Vec<(String, String)> {
    let pairs = list.as_array().into_iter().flatten();
    pairs
        .map(|entry| (text_of(&entry[one]), text_of(&entry[other])))
        .collect()
}

fn shape_of_template(template: &Template) -> Shape {
    let table = template.at("/Resources/LedgerTable/Properties");
    let keys = |value: &Value| pairs(&value["KeySchema"], "AttributeName", "KeyType");
    let indexes = table["GlobalSecondaryIndexes"].as_array().into_iter().flatten();
    let indexes = indexes.map(|index| {
        let projection = text_of(&index["Projection"]["ProjectionType"]);
        (text_of(&index["IndexName"]), (keys(index), projection))
    });
    let attributes = pairs(&table["AttributeDefinitions"], "AttributeName", "AttributeType");
    (attributes.into_iter().collect(), keys(table), indexes.collect())
}

async fn shape_of_tests() -> Shape {
    let table = Table::start().await;
    let described = table.client().describe_table().table_name(TABLE).send().await.unwrap();
    let described = described.table.unwrap();
    let keys = |keys: &[aws_sdk_dynamodb::types::KeySchemaElement]| {
        let keys = keys.iter();
        keys.map(|key| (key.attribute_name().to_owned(), key.key_type().as_str().to_owned()))
            .collect::<Vec<_>>()
    };
    let attributes = described.attribute_definitions().iter();
    let attributes = attributes.map(|one| {
        (
            one.attribute_name().to_owned(),
            one.attribute_type().as_str().to_owned(),
        )
    });
    let indexes = described.global_secondary_indexes().iter().map(|index| {
        let projection = index.projection().and_then(|projection| projection.projection_type());
        let projection = projection.map(|kind| kind.as_str().to_owned()).unwrap_or_default();
        (
            index.index_name().unwrap().to_owned(),
            (keys(index.key_schema()), projection),
        )
    });
    (attributes.collect(), keys(described.key_schema()), indexes.collect())
}

#[tokio::test]
async fn the_table_of_the_tests_is_the_templates_and_its_indexes_are_those_of_the_code() {
    let template = Template::read();
    let shape = shape_of_template(&template);
    assert_eq!(shape, shape_of_tests().await);
    let names: BTreeSet<&str> = shape.2.keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from([DUE_INDEX, WAITING_INDEX, RECENT_INDEX]));
    assert!(shape.2.values().all(|(_, projection)| projection == "KEYS_ONLY"));
}

#[test]
fn inboxes_keep_order_and_messages_wake_who_waits_and_outlive_their_agents() {
    // DESIGN §6: 14 days, high-throughput FIFO, dead letters. S3-24
    let template = Template::read();
    let queues = template.resources(QUEUE);
    let (queues, others): (Vec<_>, Vec<_>) = queues.into_iter().partition(|(name, _)| name.starts_with("Inbox"));
    let others: Vec<&str> = others.into_iter().map(|(name, _)| name).collect();
    assert_eq!(others, ["PollerDeadLetters"], "{others:?}");
    let (dead, inboxes): (Vec<_>, Vec<_>) = queues.iter().partition(|(name, _)| name.starts_with("InboxDlq"));
    assert_eq!((inboxes.len(), dead.len()), (4, 4), "two agents, dispatcher, notice");
    for (name, queue) in &queues {
        let properties = &queue["Properties"];
        assert_eq!(properties["FifoQueue"], true, "{name}");
        assert_eq!(properties["DeduplicationScope"], "messageGroup", "{name}");
        assert_eq!(properties["FifoThroughputLimit"], "perMessageGroupId", "{name}");
        assert_eq!(properties["MessageRetentionPeriod"], 14 * 86_400, "{name}");
        assert_eq!(properties["SqsManagedSseEnabled"], true, "{name}");
        assert_eq!(properties["QueueName"], Value::Null, "{name}: left to the stack");
        assert_eq!(
            (&queue["DeletionPolicy"], &queue["UpdateReplacePolicy"]),
            (&json!("Retain"), &json!("Retain"))
        );
    }
    for (name, queue) in inboxes {
        let wait_s = &queue["Properties"]["ReceiveMessageWaitTimeSeconds"];
        assert_eq!(*wait_s, 20, "{name}: who blocks on it is woken at once");
        let letters = name.replace("Inbox", "InboxDlq");
        let target = &queue["Properties"]["RedrivePolicy"]["deadLetterTargetArn"];
        let plain = json!({"Fn::GetAtt": [{"Fn::Sub": letters}, "Arn"]});
        assert_eq!(target, &plain, "{name}");
        assert!(dead.iter().any(|(name, _)| **name == letters), "{name}");
    }
}

/// Statements of every policy, with where they stand.
fn statements(template: &Template) -> Vec<(String, Value)> {
    let mut statements = Vec::new();
    for (name, resource) in template.all() {
        let properties = &resource["Properties"];
        let own = std::iter::once(&properties["PolicyDocument"]);
        let inline = properties["Policies"].as_array().into_iter().flatten();
        let documents = own.chain(inline.map(|policy| &policy["PolicyDocument"]));
        for document in documents.filter(|document| !document.is_null()) {
            let all = document["Statement"].as_array().cloned().unwrap_or_default();
            statements.extend(all.into_iter().map(|statement| (name.to_owned(), statement)));
        }
    }
    statements
}

fn listed(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_else(|| vec![value.clone()])
}

/// What one role may do: what stands in it, and in the policies that are attached to it.
fn allowed(template: &Template, role: &str) -> BTreeSet<(String, String)> {
    let mut allowed = BTreeSet::new();
    for (name, statement) in statements(template) {
        let attached = &template.at(&format!("/Resources/{name}/Properties/Roles"));
        let attached = attached.as_array().into_iter().flatten();
        if name != role && !attached.clone().any(|one| *one == json!({"Ref": role})) {
            continue;
        }
        // A statement that depends on a parameter is looked at as if it were there.
        let statement = match statement["Fn::If"].as_array() {
            Some(either) => either[1].clone(),
            None => statement,
        };
        assert_eq!(statement["Effect"], "Allow", "{name}");
        for action in listed(&statement["Action"]) {
            for resource in listed(&statement["Resource"]) {
                assert!(!text_of(&resource).contains('*'), "{name}: {resource}");
                assert!(!text_of(&action).contains('*'), "{name}: {action}");
                allowed.insert((text_of(&action), resource.to_string()));
            }
        }
    }
    allowed
}

#[test]
fn each_role_may_do_what_its_code_does_and_nothing_else() {
    // S2-19
    let template = Template::read();
    let arn = |name: &str| json!({"Fn::GetAtt": format!("{name}.Arn")}).to_string();
    let inbox = |name: &str| json!({"Fn::GetAtt": [{"Fn::Sub": format!("Inbox{name}")}, "Arn"]}).to_string();
    let index = |name: &str| json!({"Fn::Sub": format!("${{LedgerTable.Arn}}/index/{name}")}).to_string();
    let secret = || json!({"Fn::GetAtt": "Secret.Id"}).to_string();
    let both = |logs: &str, index: String| {
        [
            ("logs:CreateLogStream", arn(logs)),
            ("logs:PutLogEvents", arn(logs)),
            ("dynamodb:UpdateItem", arn("LedgerTable")),
            ("dynamodb:GetItem", arn("LedgerTable")),
            ("dynamodb:BatchGetItem", arn("LedgerTable")),
            ("dynamodb:Query", index),
            ("dynamodb:Query", arn("LedgerTable")),
            ("sqs:SendMessage", arn("InboxDispatcher")),
            ("sqs:SendMessage", arn("InboxNotice")),
            ("sqs:SendMessage", inbox("builder")),
            ("sqs:SendMessage", inbox("reviewer")),
        ]
    };
    let webhook = [
        // Transactions are allowed by the actions of their parts.
        ("dynamodb:PutItem", arn("LedgerTable")),
        ("secretsmanager:GetSecretValue", secret()),
    ];
    let expected = both("WebhookLogs", index("waiting")).into_iter().chain(webhook);
    let named = |(action, resource): (&str, String)| (action.to_owned(), resource);
    assert_eq!(allowed(&template, "WebhookRole"), expected.map(named).collect());
    // The reaper admits nothing and has no secret.
    let expected = both("ReaperLogs", index("due")).into_iter().map(named).collect();
    assert_eq!(allowed(&template, "ReaperRole"), expected);
    let expected = BTreeSet::from([named(("lambda:InvokeFunction", arn("ReaperFunction")))]);
    assert_eq!(allowed(&template, "ReaperScheduleRole"), expected);
    let source = json!({"Ref": "SourceQueueArn"}).to_string();
    let sqs = [
        ("logs:CreateLogStream", arn("SqsLogs")),
        ("logs:PutLogEvents", arn("SqsLogs")),
        ("dynamodb:PutItem", arn("LedgerTable")),
        ("dynamodb:UpdateItem", arn("LedgerTable")),
        ("dynamodb:GetItem", arn("LedgerTable")),
        ("dynamodb:Query", arn("LedgerTable")),
        ("sqs:SendMessage", arn("InboxDispatcher")),
        ("sqs:SendMessage", arn("InboxNotice")),
        ("sqs:SendMessage", inbox("builder")),
        ("sqs:SendMessage", inbox("reviewer")),
        ("sqs:ReceiveMessage", source.clone()),
        ("sqs:DeleteMessage", source.clone()),
        ("sqs:GetQueueAttributes", source.clone()),
        ("sqs:ChangeMessageVisibility", source.clone()),
        ("sqs:GetQueueUrl", source),
    ];
    assert_eq!(allowed(&template, "SqsRole"), sqs.into_iter().map(named).collect());
    // The poller admits, finds what is due, wakes what has waited, and asks GitHub with what the secret holds.
    let poller = [
        ("dynamodb:PutItem", arn("LedgerTable")),
        ("dynamodb:Query", index("waiting")),
        ("secretsmanager:GetSecretValue", secret()),
    ];
    let expected = both("PollerLogs", index("due")).into_iter().chain(poller);
    assert_eq!(allowed(&template, "PollerRole"), expected.map(named).collect());
    let start = [
        ("lambda:InvokeFunction", arn("PollerFunction")),
        ("sqs:SendMessage", arn("PollerDeadLetters")),
    ];
    let expected = start.into_iter().map(named).collect();
    assert_eq!(allowed(&template, "PollerScheduleRole"), expected);
    assert_eq!(template.resources("AWS::IAM::Role").len(), 6);
}

#[test]
fn a_queue_is_mapped_where_one_is_given_and_each_message_fails_alone() {
    let template = Template::read();
    let [(_, mapping)] = template.resources("AWS::Lambda::EventSourceMapping")[..] else {
        panic!("one mapping")
    };
    assert_eq!(mapping["Condition"], "HasSourceQueue");
    assert_eq!(template.at("/Parameters/SourceQueueArn/Default"), "");
    let properties = &mapping["Properties"];
    assert_eq!(properties["FunctionResponseTypes"], json!(["ReportBatchItemFailures"]));
    assert_eq!(properties["EventSourceArn"], json!({"Ref": "SourceQueueArn"}));
    assert_eq!(properties["BatchSize"], json!({"Ref": "QueueBatchSize"}));
    let window = &properties["MaximumBatchingWindowInSeconds"]["Fn::If"][1];
    assert_eq!(window, &json!({"Ref": "QueueWindowSeconds"}));
    let limited = json!({"MaximumConcurrency": {"Ref": "QueueMaximumConcurrency"}});
    assert_eq!(properties["ScalingConfig"]["Fn::If"][1], limited);
}

#[test]
fn a_source_queue_stays_invisible_for_six_timeouts_and_the_window() {
    // SQSB-13
    assert_eq!(visibility_seconds_min(5), 185);
    let template = Template::read();
    let description = text_of(template.at("/Parameters/SourceQueueArn/Description"));
    assert!(
        description.contains(&format!("{} seconds", visibility_seconds_min(0))),
        "{description}"
    );
    assert!(forebay::trial::SOURCE_VISIBILITY_SECONDS >= visibility_seconds_min(0));
    // BRKR-02: what is received once more than allowed goes to the dead letters, so the last time does not count.
    let bridged: u32 = (1..forebay::trial::SOURCE_RECEIVES_MAX)
        .map(sqs::held_back_seconds)
        .sum();
    assert!(bridged > 20 * 60, "{bridged}");
}

#[test]
fn the_reaper_runs_on_a_schedule_of_its_own_and_alone() {
    let template = Template::read();
    let function = &template.at("/Resources/ReaperFunction/Properties");
    let schedule = &function["Events"]["Schedule"];
    assert_eq!(schedule["Type"], "ScheduleV2");
    let properties = &schedule["Properties"];
    assert_eq!(properties["OmitName"], true, "or two stacks would share one schedule");
    assert_eq!(properties["ScheduleExpression"], json!({"Ref": "ReapSchedule"}));
    assert_eq!(properties["RoleArn"], json!({"Fn::GetAtt": "ReaperScheduleRole.Arn"}));
    assert_eq!(template.at("/Parameters/ReapSchedule/Default"), "rate(1 minute)");
    assert_eq!(template.at("/Parameters/ReaperReservedConcurrency/Default"), 1);
    assert!(!function["ReservedConcurrentExecutions"].is_null());
    // What cannot run is not repeated: the next run finds the same rows.
    assert_eq!(function["EventInvokeConfig"]["MaximumRetryAttempts"], 0);
}

#[test]
fn the_poller_is_started_where_something_is_asked_of_github_and_alone() {
    let template = Template::read();
    let function = template.at("/Resources/PollerFunction/Properties");
    let schedule = &function["Events"]["PollSchedule"];
    assert_eq!(schedule["Type"], "ScheduleV2");
    let properties = &schedule["Properties"];
    assert_eq!(properties["OmitName"], true, "or two stacks would share one schedule");
    assert_eq!(properties["ScheduleExpression"], json!({"Ref": "PollSchedule"}));
    assert_eq!(properties["FlexibleTimeWindow"], json!({"Mode": "OFF"}));
    assert_eq!(properties["RoleArn"], json!({"Fn::GetAtt": "PollerScheduleRole.Arn"}));
    assert_eq!(properties["RetryPolicy"]["MaximumRetryAttempts"], 0);
    let rates = template.at("/Parameters/PollSchedule/AllowedValues");
    assert_eq!(
        *rates,
        json!([1, 2, 5, 15].map(|minutes| match minutes {
            1 => "rate(1 minute)".to_owned(),
            more => format!("rate({more} minutes)"),
        }))
    );
    assert_eq!(template.at("/Parameters/PollSchedule/Default"), &rates[0]);
    // It rests unless one of these says what to ask for.
    let state = json!({"Fn::If": ["AsksGithub", "ENABLED", "DISABLED"]});
    assert_eq!(properties["State"], state);
    let given = |name: &str| json!({"Fn::Not": [{"Fn::Equals": [{"Ref": name}, ""]}]});
    let asks = json!({"Fn::Or": [
        given("PollRepositories"),
        given("RecoverRepositories"),
        given("RecoverOrganizations"),
        {"Fn::Equals": [{"Ref": "RecoverApp"}, "true"]},
    ]});
    assert_eq!(*template.at("/Conditions/AsksGithub"), asks);
    for (name, resting) in [
        ("PollRepositories", ""),
        ("RecoverRepositories", ""),
        ("RecoverOrganizations", ""),
        ("RecoverApp", "false"),
    ] {
        assert_eq!(template.at(&format!("/Parameters/{name}/Default")), resting);
    }
    assert_eq!(template.at("/Parameters/PollerReservedConcurrency/Default"), 1);
    let reserved = json!({"Fn::If": [
        "ReservesPollerConcurrency", {"Ref": "PollerReservedConcurrency"}, {"Ref": "AWS::NoValue"},
    ]});
    assert_eq!(function["ReservedConcurrentExecutions"], reserved);
    // What cannot run is not repeated: what is due stays due.
    assert_eq!(function["EventInvokeConfig"]["MaximumRetryAttempts"], 0);
}

#[test]
fn a_run_of_the_poller_that_could_not_be_started_is_kept_for_14_days() {
    let template = Template::read();
    let schedule = template.at("/Resources/PollerFunction/Properties/Events/PollSchedule/Properties");
    let letters = json!({"Arn": {"Fn::GetAtt": "PollerDeadLetters.Arn"}});
    assert_eq!(schedule["DeadLetterConfig"], letters);
    let queue = template.at("/Resources/PollerDeadLetters/Properties");
    // The scheduler sends to no FIFO queue.
    assert_eq!(
        *queue,
        json!({"MessageRetentionPeriod": 14 * 86_400, "SqsManagedSseEnabled": true})
    );
}

#[test]
fn roles_are_explicit_and_only_their_service_takes_them() {
    let template = Template::read();
    for (name, role) in template.resources("AWS::IAM::Role") {
        assert_eq!(role["Properties"]["ManagedPolicyArns"], Value::Null, "{name}");
        let trust = &role["Properties"]["AssumeRolePolicyDocument"]["Statement"];
        let mut expected = json!([{
            "Effect": "Allow",
            "Principal": {"Service": "lambda.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }]);
        if name.ends_with("ScheduleRole") {
            // Schedules of this account only: the service acts for every account there is.
            let account = json!({"aws:SourceAccount": {"Ref": "AWS::AccountId"}});
            expected[0]["Principal"]["Service"] = json!("scheduler.amazonaws.com");
            expected[0]["Condition"] = json!({"StringEquals": account});
        }
        assert_eq!(*trust, expected, "{name}");
    }
    for (name, function) in template.resources(FUNCTION) {
        assert!(
            !function["Properties"]["Role"].is_null(),
            "{name} needs a role of its own"
        );
        assert_eq!(
            function["Properties"]["Policies"],
            Value::Null,
            "{name}: SAM's templates are wider than needed"
        );
    }
}

#[test]
fn the_public_url_is_open_and_the_body_decides() {
    // For NONE, SAM adds both permissions that a public URL needs.
    let template = Template::read();
    let url = template.at("/Resources/WebhookFunction/Properties/FunctionUrlConfig");
    assert_eq!(url, &json!({"AuthType": "NONE"}));
    assert!(
        !template
            .at("/Resources/WebhookFunction/Properties/ReservedConcurrentExecutions")
            .is_null()
    );
}

#[test]
fn every_function_has_the_memory_and_the_logs_that_the_stack_decides() {
    let template = Template::read();
    for (name, function) in template.resources(FUNCTION) {
        let memory = &function["Properties"]["MemorySize"];
        assert_eq!(*memory, json!({"Ref": "MemorySize"}), "{name}");
        let logging = &function["Properties"]["LoggingConfig"];
        let group = logging["LogGroup"]["Ref"].as_str().unwrap();
        assert_eq!(
            template.at(&format!("/Resources/{group}/Type")),
            "AWS::Logs::LogGroup",
            "{name}"
        );
        assert_eq!(logging["LogFormat"], "JSON", "{name}");
    }
    for (name, group) in template.resources("AWS::Logs::LogGroup") {
        assert_eq!(
            group["Properties"]["RetentionInDays"],
            json!({"Ref": "LogRetentionDays"}),
            "{name}"
        );
    }
    // Metric lines carry no level; above INFO the platform would drop them.
    let levels = template.at("/Parameters/ApplicationLogLevel/AllowedValues");
    assert_eq!(levels, &json!(["TRACE", "DEBUG", "INFO"]));
}

#[test]
fn the_secret_starts_empty_so_that_everything_is_refused_until_there_is_one() {
    let template = Template::read();
    let secret = template.at("/Resources/Secret");
    assert_eq!(secret["DeletionPolicy"], "Retain");
    let document = secret["Properties"]["SecretString"].as_str().unwrap();
    let secrets = forebay_core::signature::Secrets::parse(document, "").unwrap();
    assert!(secrets.is_empty());
}

#[test]
fn each_binary_has_the_name_of_its_folder_and_a_short_main() {
    let template = Template::read();
    let functions = template.resources(FUNCTION);
    let binaries: BTreeSet<&str> = functions
        .iter()
        .filter_map(|(_, function)| function["Metadata"]["BuildProperties"]["Binary"].as_str())
        .collect();
    let folders = std::fs::read_dir(format!("{WORKSPACE}/functions")).unwrap();
    let folders: BTreeSet<String> = folders
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(binaries, folders.iter().map(String::as_str).collect());
    for folder in &folders {
        let manifest = std::fs::read_to_string(format!("{WORKSPACE}/functions/{folder}/Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("name = \"{folder}\"")), "{folder}");
        let main = std::fs::read_to_string(format!("{WORKSPACE}/functions/{folder}/src/main.rs")).unwrap();
        assert!(main.lines().count() <= 40, "{folder}");
    }
}

#[test]
fn every_alarm_says_what_to_do_is_silent_without_news_and_watches_a_metric_that_there_is() {
    // REDL-07, SIG-07; that the code writes these names is shown where it writes them, and README lists them.
    let template = Template::read();
    let readme = std::fs::read_to_string(format!("{WORKSPACE}/README.md")).unwrap();
    let namespace = template.at("/Resources/WebhookFunction/Properties/Environment/Variables/METRICS_NAMESPACE");
    let alarms = template.resources("AWS::CloudWatch::Alarm");
    let alarms: BTreeMap<&str, &Value> = alarms
        .into_iter()
        .map(|(name, alarm)| (name, &alarm["Properties"]))
        .collect();
    for (name, alarm) in &alarms {
        let metric = alarm["MetricName"].as_str().unwrap();
        if alarm["Namespace"] == *namespace {
            assert!(readme.contains(&format!("`{metric}`")), "{name}: {metric}");
        } else {
            let known = [
                ("AWS/SQS", "ApproximateNumberOfMessagesVisible"),
                ("AWS/Lambda", "Throttles"),
            ];
            let watched = (alarm["Namespace"].as_str().unwrap(), metric);
            assert!(known.contains(&watched), "{name}: {watched:?}");
        }
        assert!(alarm["AlarmDescription"].as_str().unwrap().len() > 80, "{name}");
        assert_eq!(alarm["TreatMissingData"], "notBreaching", "{name}");
        assert_eq!(alarm["ComparisonOperator"], "GreaterThanThreshold", "{name}");
        assert!(!alarm["AlarmActions"].is_null(), "{name}");
    }
    let lost = alarms["LostDeliveries"];
    assert_eq!(
        (&lost["MetricName"], &lost["Threshold"]),
        (&"PollerLost".into(), &0.into())
    );
    let secret = serde_json::json!([
        { "Name": "Outcome", "Value": "refused" },
        { "Name": "Refusal", "Value": "no_webhook_secret" },
    ]);
    assert_eq!(alarms["NoWebhookSecret"]["Dimensions"], secret);
    for name in [
        "MissingDeliveries",
        "MisconfiguredSources",
        "PermanentFailures",
        "OverdueEvents",
        "ShedTargets",
        "ThrottledWebhook",
        "InboxDeadLettersbuilder",
        "InboxDeadLettersDispatcher",
    ] {
        assert!(alarms.contains_key(name), "{name}: {:?}", alarms.keys());
    }
}
