//! Configuration: what is missing, malformed or contradictory is named, all of it at once.

use super::*;

fn environment(changed: &[(&str, &str)]) -> BTreeMap<String, String> {
    let good = [
        ("TABLE_NAME", "ledger"),
        ("SECRET_ID", "secret"),
        ("INBOX_dispatcher", "https://sqs/dispatcher.fifo"),
        ("INBOX_notice", "https://sqs/notice.fifo"),
        ("INBOX_reviewer", "https://sqs/reviewer.fifo"),
    ];
    let pairs = good.iter().chain(changed);
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn read(changed: &[(&str, &str)]) -> Result<Config, Problems> {
    Config::read(environment(changed))
}

/// The one problem that `changed` makes.
#[track_caller]
fn problem(changed: &[(&str, &str)]) -> String {
    let problems = read(changed).unwrap_err();
    assert_eq!(problems.sentences().len(), 1, "{changed:?}: {problems}");
    problems.sentences()[0].clone()
}

#[test]
fn what_is_needed_is_enough_and_the_rest_has_defaults() {
    let config = read(&[]).unwrap();
    assert_eq!(
        (config.table.as_str(), config.metrics_namespace.as_str()),
        ("ledger", "Forebay")
    );
    assert_eq!(config.secret, SecretSource::SecretsManager("secret".to_owned()));
    assert_eq!(
        config.inboxes.keys().collect::<Vec<_>>(),
        ["dispatcher", "notice", "reviewer"]
    );
    assert_eq!(
        (config.limits, config.github_host, config.source_ranges),
        (Limits::default(), None, Vec::new())
    );
    assert_eq!(config.shedder, ShedderConfig::default());
    assert_eq!(
        (config.body_bytes_max, config.secret_cache),
        (6_291_456, Duration::from_secs(300))
    );
}

#[test]
fn each_needed_variable_is_named_when_it_is_missing_or_blank() {
    // LAMB-07
    for name in ["TABLE_NAME", "SECRET_ID", "INBOX_dispatcher", "INBOX_notice"] {
        let mut missing = environment(&[]);
        missing.remove(name);
        let problems = Config::read(missing).unwrap_err();
        assert_eq!(problems.sentences().len(), 1, "{problems}");
        assert!(
            problems.sentences()[0].starts_with(&format!("{name} is missing")),
            "{problems}"
        );
        for blank in ["", "  ", "\n"] {
            assert!(problem(&[(name, blank)]).starts_with(&format!("{name} is ")));
        }
    }
}

#[test]
fn each_optional_variable_may_be_blank_and_then_has_its_default() {
    let defaults = format!("{:?}", read(&[]).unwrap());
    for name in VARIABLES
        .iter()
        .filter(|name| !["TABLE_NAME", "SECRET_ID"].contains(name))
    {
        for blank in ["", " "] {
            assert_eq!(format!("{:?}", read(&[(name, blank)]).unwrap()), defaults, "{name}");
        }
    }
}

#[test]
fn each_number_is_taken_up_to_its_borders_and_refused_beyond_them() {
    for (name, least, most) in [
        ("BODY_BYTES_MAX", "1024", "6291456"),
        ("SECRET_CACHE_SECONDS", "1", "3600"),
        ("RETENTION_DAYS", "4", "3650"),
        ("PARK_DAYS", "1", "30"),
        ("AGE_DAYS_MAX", "1", "30"),
        ("FAILURES_MAX", "1", "100"),
        ("RETRY_SECONDS_MIN", "1", "3600"),
        ("RETRY_SECONDS_MAX", "15", "43200"),
        ("LEASE_SECONDS", "16", "900"),
        ("SKEW_SECONDS", "0", "19"),
        ("SHED_WINDOW_SECONDS", "10", "3600"),
        ("SHED_ERROR_PERCENT", "1", "100"),
        ("SHED_LATENCY_MS_MAX", "10", "30000"),
        ("SHED_SAMPLES_MIN", "1", "1000000"),
        ("SHED_CLEAN_SECONDS", "10", "3600"),
        ("SHED_PROBATION_SECONDS", "1", "3600"),
        ("SHED_PROBE_SECONDS", "5", "900"),
        ("SHED_CACHE_SECONDS", "1", "5"),
    ] {
        for good in [least, most, &format!(" {least} ")] {
            assert!(
                read(&[(name, good)]).is_ok(),
                "{name}={good}: {:?}",
                read(&[(name, good)])
            );
        }
        for bad in ["x", "1.5", "-1", "1e3", "0x10", "99999999999999999999", "7 days"] {
            assert!(
                problem(&[(name, bad)]).starts_with(&format!("{name} is not a whole number from ")),
                "{name}={bad}"
            );
        }
    }
    for (name, bad) in [
        ("BODY_BYTES_MAX", "1023"),
        ("BODY_BYTES_MAX", "6291457"),
        ("SECRET_CACHE_SECONDS", "0"),
        ("RETENTION_DAYS", "3"),
        ("PARK_DAYS", "0"),
        ("AGE_DAYS_MAX", "31"),
        ("FAILURES_MAX", "0"),
        ("RETRY_SECONDS_MIN", "0"),
        ("LEASE_SECONDS", "15"),
        ("SKEW_SECONDS", "61"),
        ("SHED_WINDOW_SECONDS", "31"),
        ("SHED_LATENCY_MS_MAX", "4999"),
        ("SHED_ERROR_PERCENT", "101"),
        ("SHED_PROBE_SECONDS", "4"),
        ("SHED_CACHE_SECONDS", "6"),
    ] {
        assert!(problem(&[(name, bad)]).starts_with(name), "{name}={bad}");
    }
}

#[test]
fn a_lease_that_does_not_outlive_its_function_is_refused() {
    assert!(problem(&[("LEASE_SECONDS", "20"), ("SKEW_SECONDS", "10")]).starts_with("LEASE_SECONDS must be more than"));
    assert!(read(&[("LEASE_SECONDS", "21"), ("SKEW_SECONDS", "10")]).is_ok());
}

#[test]
fn all_problems_are_named_at_once() {
    // LAMB-07
    let mut variables = environment(&[
        ("TABLE_NAME", ""),
        ("INBOX_notice", ""),
        ("INBOX_Bad-Name", "https://sqs/x"),
        ("ROUTES", "acme/app=nobody,nonsense"),
        ("SOURCE_RANGES", "10.0.0.0/8,everyone"),
        ("BODY_BYTES_MAX", "many"),
        ("SECRET_CACHE_SECONDS", "0"),
        ("RETENTION_DAYS", "1"),
        ("LEASE_SECONDS", "3"),
        ("RETRY_SECONDS_MIN", "100"),
        ("RETRY_SECONDS_MAX", "50"),
    ]);
    variables.remove("SECRET_ID");
    let mut without_retention = variables.clone();
    let problems = Config::read(variables).unwrap_err();
    for name in [
        "TABLE_NAME",
        "SECRET_ID",
        "INBOX_notice",
        "INBOX_Bad-Name",
        "ROUTES",
        "SOURCE_RANGES",
        "BODY_BYTES_MAX",
        "SECRET_CACHE_SECONDS",
        "RETENTION_DAYS",
        "LEASE_SECONDS",
    ] {
        assert!(
            problems.sentences().iter().any(|sentence| sentence.starts_with(name)),
            "{name}: {problems}"
        );
    }
    // Rules between variables are judged together too, once each variable is a number.
    without_retention.remove("RETENTION_DAYS");
    let problems = Config::read(without_retention).unwrap_err();
    for name in ["LEASE_SECONDS", "RETRY_SECONDS_MAX"] {
        assert!(
            problems.sentences().iter().any(|sentence| sentence.starts_with(name)),
            "{name}: {problems}"
        );
    }
    assert!(
        problems
            .to_string()
            .starts_with("read configuration from the environment: "),
        "{problems}"
    );
}

#[test]
fn the_secret_has_one_source() {
    let both = problem(&[("PROVIDERS_FILE", "/tmp/providers.json")]);
    assert_eq!(both, "SECRET_ID and PROVIDERS_FILE are both given");
    let config = read(&[("SECRET_ID", ""), ("PROVIDERS_FILE", "/tmp/providers.json")]).unwrap();
    assert_eq!(config.secret, SecretSource::File(PathBuf::from("/tmp/providers.json")));
}

#[test]
fn only_a_name_that_a_queue_can_have_is_an_inbox() {
    for name in ["INBOX_", "INBOX_A", "INBOX_a-b", "INBOX_2a"] {
        assert!(problem(&[(name, "https://sqs/x")]).starts_with(name));
    }
    assert!(problem(&[("INBOX_builder", " ")]).starts_with("INBOX_builder is empty"));
}

#[test]
fn a_route_to_an_inbox_that_is_not_there_is_refused_at_the_start() {
    assert!(problem(&[("ROUTES", "acme/app=nobody")]).starts_with("ROUTES: "));
    assert!(read(&[("ROUTES", "acme/app=reviewer,acme/app#12=reviewer")]).is_ok());
}

#[test]
fn the_public_github_has_no_prefix_and_another_host_has_its_own_in_lower_case() {
    let host = |text: &str| read(&[("GITHUB_HOST", text)]).unwrap().github_host;
    assert_eq!((host("github.com"), host("GitHub.com"), host(" ")), (None, None, None));
    assert_eq!(host("GHE.Acme.example").as_deref(), Some("ghe.acme.example"));
}

#[test]
fn a_range_holds_its_addresses_and_no_others() {
    #[track_caller]
    fn check(range: &str, inside: &[&str], outside: &[&str]) {
        let parsed = AddressRange::parse(range).unwrap();
        let contains = |address: &&&str| parsed.contains(address.parse().unwrap());
        assert_eq!(
            inside.iter().find(|address| !contains(address)),
            None,
            "{range} holds it"
        );
        assert_eq!(outside.iter().find(contains), None, "{range} does not hold it");
    }
    check(
        "192.30.252.0/22",
        &["192.30.252.0", "192.30.255.255", "::ffff:192.30.253.7"],
        &[
            "192.30.251.255",
            "192.31.0.0",
            "::ffff:192.31.0.0",
            "2a0a:a440::1",
            "::192.30.253.7",
        ],
    );
    check("10.1.2.3/32", &["10.1.2.3"], &["10.1.2.2", "10.1.2.4"]);
    // Bits behind the prefix do not count.
    check("10.1.2.3/8", &["10.255.0.1"], &["11.0.0.0"]);
    check(
        "2a0a:a440::/29",
        &["2a0a:a440::1", "2a0a:a447:ffff::"],
        &["2a0a:a448::", "10.0.0.1"],
    );
    check("::1/128", &["::1"], &["::2", "0.0.0.1"]);
    // Everybody, of the one kind: as everywhere else, each kind has its own.
    check(
        "0.0.0.0/0",
        &["0.0.0.0", "255.255.255.255", "::ffff:1.2.3.4"],
        &["::1", "2001:db8::1"],
    );
    check("::/0", &["::1", "2001:db8::1"], &["1.2.3.4", "::ffff:1.2.3.4"]);
    // A mapped range is the range that it maps.
    check(
        "::ffff:10.0.0.0/104",
        &["10.9.9.9", "::ffff:10.9.9.9"],
        &["11.0.0.0", "::1"],
    );
    check("::ffff:0.0.0.0/96", &["1.2.3.4"], &["::1"]);
}

#[test]
fn what_is_no_range_is_refused() {
    for text in [
        "",
        "/",
        "10.0.0.0",
        "10.0.0.0/",
        "/8",
        "10.0.0.0/33",
        "::/129",
        "10.0.0/8",
        "10.0.0.0/8/8",
        "10.0.0.0/-1",
        "10.0.0.0/x",
        "10.0.0.256/8",
        " 10.0.0.0/8",
        "github.com/8",
        "10.0.0.0/99999999999",
    ] {
        assert_eq!(AddressRange::parse(text), None, "{text:?}");
    }
    let ranges = read(&[("SOURCE_RANGES", " 10.0.0.0/8 , ,::/0")]).unwrap().source_ranges;
    assert_eq!(ranges.len(), 2);
    assert!(problem(&[("SOURCE_RANGES", "10.0.0.0")]).starts_with("SOURCE_RANGES: `10.0.0.0`"));
}

#[test]
fn every_variable_that_is_named_is_read() {
    // A name in the list that nothing reads would be set by the template for nothing. A value that no variable takes tells
    // them apart; those that take any text are the rest.
    let any_text = [
        "TABLE_NAME",
        "SECRET_ID",
        "IGNORED_ACTORS",
        "GITHUB_HOST",
        "METRICS_NAMESPACE",
    ];
    for name in VARIABLES {
        let refused = read(&[(name, "no,such=value")]).is_err();
        assert_eq!(refused, !any_text.contains(name), "{name}");
    }
}

#[test]
fn the_reaper_needs_no_secret_and_has_limits_of_its_own() {
    let mut variables = environment(&[]);
    variables.remove("SECRET_ID");
    let read = |changed: &[(&str, &str)]| {
        let changed = changed
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        ReaperConfig::read(variables.clone().into_iter().chain(changed).collect())
    };
    let config = read(&[]).unwrap();
    assert_eq!((config.limits, config.reap), (Limits::default(), ReapLimits::default()));
    for (name, least, most, beyond) in [
        ("REAP_EVENTS_MAX", "1", "100000", "100001"),
        ("REAP_CONCURRENCY", "1", "64", "65"),
        ("REAP_PAGE_ROWS", "1", "1000", "1001"),
    ] {
        assert!(
            read(&[(name, least)]).is_ok() && read(&[(name, most)]).is_ok(),
            "{name}"
        );
        for bad in ["0", beyond, "many"] {
            let problems = read(&[(name, bad)]).unwrap_err();
            assert!(problems.sentences()[0].starts_with(name), "{problems}");
        }
    }
    // LAMB-07: all at once, those that it shares with the webhook included.
    let problems = read(&[("TABLE_NAME", ""), ("REAP_CONCURRENCY", "0"), ("LEASE_SECONDS", "14")]).unwrap_err();
    assert_eq!(problems.sentences().len(), 3, "{problems}");
}

fn for_queues(changed: &[(&str, &str)]) -> Result<SqsConfig, Problems> {
    let pairs = [
        ("TABLE_NAME", "ledger"),
        ("INBOX_builder", "http://q/builder.fifo"),
        ("INBOX_dispatcher", "http://q/dispatcher.fifo"),
        ("INBOX_notice", "http://q/notice.fifo"),
    ];
    let pairs = pairs.iter().chain(changed);
    SqsConfig::read(
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    )
}

#[test]
fn the_function_behind_queues_needs_a_table_and_inboxes_and_no_secret() {
    let config = for_queues(&[]).unwrap();
    assert_eq!((config.table.as_str(), config.envelopes), ("ledger", Envelopes::Keep));
    assert_eq!(config.routing.queues.inbox("arn:aws:sqs:r:1:any"), "dispatcher");
}

#[test]
fn a_queue_goes_to_the_inbox_that_its_name_or_its_arn_is_given() {
    // S1-12, S1-14
    let routes = "orders=builder, arn:aws:sqs:r:2:orders=notice";
    let config = for_queues(&[
        ("QUEUE_ROUTES", routes),
        ("QUEUE_INBOX", "notice"),
        ("SNS_UNWRAP", "true"),
    ])
    .unwrap();
    let inbox = |arn: &str| config.routing.queues.inbox(arn).to_owned();
    assert_eq!(inbox("arn:aws:sqs:r:1:orders"), "builder");
    assert_eq!(inbox("arn:aws:sqs:r:2:orders"), "notice", "the ARN says more");
    assert_eq!(inbox("arn:aws:sqs:r:1:other"), "notice");
    assert_eq!(config.envelopes, Envelopes::Unwrap);
}

#[test]
fn every_problem_with_queues_is_named_at_once() {
    // LAMB-07
    let changed = [
        ("QUEUE_ROUTES", "orders,a=nobody,b=builder,b=notice,=builder"),
        ("QUEUE_INBOX", "somebody"),
        ("SNS_UNWRAP", "perhaps"),
        ("RETENTION_DAYS", "15"),
    ];
    let problems = for_queues(&changed).unwrap_err();
    let about = |text: &str| {
        problems
            .sentences()
            .iter()
            .filter(|problem| problem.contains(text))
            .count()
    };
    assert_eq!(about("QUEUE_ROUTES"), 5, "{problems}");
    assert_eq!((about("`somebody`"), about("`nobody`"), about("two routes")), (1, 1, 1));
    assert_eq!(
        (about("SNS_UNWRAP"), about("RETENTION_DAYS must be at least 16")),
        (1, 1)
    );
    assert!(for_queues(&[("RETENTION_DAYS", "16")]).is_ok());
}
