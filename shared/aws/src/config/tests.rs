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
        ("TABLE_NAME", "bad name!"),
        ("INBOX_notice", ""),
        ("INBOX_builder", "nonsense"),
        ("INBOX_Bad-Name", "https://sqs/x"),
        ("GITHUB_HOST", "no,such value/at all"),
        ("METRICS_NAMESPACE", "no,such value/at all"),
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
        "INBOX_builder",
        "INBOX_Bad-Name",
        "GITHUB_HOST",
        "METRICS_NAMESPACE",
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

/// That `name` takes each of `good`, and that each of `bad` is one problem, which names it.
#[track_caller]
fn check_shape(name: &str, good: &[&str], bad: &[&str]) {
    for good in good {
        assert!(read(&[(name, good)]).is_ok(), "{name}={good}");
    }
    for bad in bad {
        let problem = problem(&[(name, bad)]);
        assert!(problem.starts_with(&format!("{name} is no")), "{name}={bad}: {problem}");
    }
}

#[test]
fn a_table_is_named_as_dynamodb_names_tables_or_by_its_arn() {
    let (longest, longer) = ("t".repeat(255), "t".repeat(256));
    let arn = |rest: &str| format!("arn:aws:dynamodb:{rest}");
    let (whole, longest_arn) = (
        arn("eu-west-1:123456789012:table/ledger"),
        arn(&format!("eu-west-1:123456789012:table/{longest}")),
    );
    check_shape(
        "TABLE_NAME",
        &["abc", "A-b_c.9", ".-_", &longest, &whole, &longest_arn],
        &["ab", &longer, "bad name!", "led/ger", "lédger", "ledger\nledger"],
    );
    for rest in [
        "eu-west-1:123456789012:table/ab",
        "eu-west-1:123456789012:table/ledger/index/due",
        "eu-west-1:123456789012:ledger",
        "eu-west-1:12345678901:table/ledger",
        "eu-west-1:12345678901x:table/ledger",
        "eu-west-1::table/ledger",
        ":123456789012:table/ledger",
        "eu-west-1:123456789012:table/ledger:",
    ] {
        check_shape("TABLE_NAME", &[], &[&arn(rest)]);
    }
    check_shape(
        "TABLE_NAME",
        &["ledger"],
        &[
            "arn:aws:sqs:eu-west-1:123456789012:table/ledger",
            "arn::dynamodb:eu-west-1:123456789012:table/ledger",
            "urn:aws:dynamodb:eu-west-1:123456789012:table/ledger",
        ],
    );
}

#[test]
fn an_inbox_is_where_a_url_leads() {
    check_shape(
        "INBOX_builder",
        &[
            "https://sqs.eu-west-1.amazonaws.com/123456789012/builder.fifo",
            "http://127.0.0.1:4566/000000000000/builder.fifo",
            " https://sqs/builder.fifo\n",
        ],
        &[
            "nonsense",
            "builder.fifo",
            "arn:aws:sqs:eu-west-1:123456789012:builder.fifo",
            "ftp://sqs/builder.fifo",
            "https://",
            "https:///builder.fifo",
            "https://sqs/a b",
            "//sqs/builder.fifo",
        ],
    );
    for bad in ["nonsense", " "] {
        let routed = [("INBOX_builder", bad), ("ROUTES", "acme/app=builder")];
        assert!(
            problem(&routed).starts_with("INBOX_builder is "),
            "{bad:?}: a route to it is no second problem"
        );
    }
}

#[test]
fn a_namespace_is_what_the_template_takes_for_one() {
    let (longest, longer) = (format!("F{}", "a".repeat(254)), format!("F{}", "a".repeat(255)));
    check_shape(
        "METRICS_NAMESPACE",
        &["F", "Forebay", "acme/forebay_2.x#a-b", &longest],
        &["2Forebay", "/Forebay", "AWS/Lambda:x", "for ebay", "Förebay", &longer],
    );
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
fn a_host_is_a_name_alone() {
    let (longest, longer) = ("h".repeat(253), "h".repeat(254));
    let bad = [
        "no,such value/at all",
        "https://ghe.acme.example",
        "ghe.acme.example:8443",
        "ghe.acme.example/api",
        "user@ghe.acme.example",
        "-ghe.acme.example",
        ".ghe",
        "ghe-",
        "ghe.acme.example.",
        "ghé.example",
        "ghe_1.example",
        &longer,
    ];
    check_shape(
        "GITHUB_HOST",
        &["g", "ghe", "10.0.0.7", "GHE-1.Acme.example", &longest],
        &bad,
    );
    // The poller asks that host too, and says so once.
    for bad in bad {
        assert!(
            polling_problem(&[("GITHUB_HOST", bad)]).starts_with("GITHUB_HOST is no"),
            "{bad}"
        );
    }
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
    let any_text = ["SECRET_ID", "IGNORED_ACTORS"];
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
    let problems = read(&[
        ("TABLE_NAME", ""),
        ("INBOX_reviewer", "nonsense"),
        ("METRICS_NAMESPACE", "no,such"),
        ("REAP_CONCURRENCY", "0"),
        ("LEASE_SECONDS", "14"),
    ]);
    let problems = problems.unwrap_err();
    assert_eq!(problems.sentences().len(), 5, "{problems}");
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
        ("TABLE_NAME", "t"),
        ("INBOX_builder", "nonsense"),
        ("METRICS_NAMESPACE", "no,such"),
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
    for name in ["TABLE_NAME", "INBOX_builder", "METRICS_NAMESPACE"] {
        assert_eq!(about(name), 1, "{name}: {problems}");
    }
    assert!(for_queues(&[("RETENTION_DAYS", "16")]).is_ok());
}

/// What the poller reads of the webhook's environment, with these variables.
fn for_polling(changed: &[(&str, &str)]) -> Result<PollerConfig, Problems> {
    PollerConfig::read(environment(changed))
}

/// The one problem that `changed` makes for the poller.
#[track_caller]
fn polling_problem(changed: &[(&str, &str)]) -> String {
    let problems = for_polling(changed).unwrap_err();
    assert_eq!(problems.sentences().len(), 1, "{changed:?}: {problems}");
    problems.sentences()[0].clone()
}

fn one(name: &str) -> Polled {
    Polled::One(Repository::new(name).unwrap())
}

#[test]
fn a_poller_that_is_told_nothing_asks_github_for_nothing() {
    let config = for_polling(&[]).unwrap();
    assert_eq!((config.feeds.len(), config.logs.len()), (0, 0));
    assert_eq!((config.limits, config.concurrency), (Limits::default(), 4));
    assert_eq!(config.recovery, RecoveryConfig::default());
    let feed = FeedConfig {
        host: None,
        interval: SignedDuration::from_secs(60),
        read_all_every: SignedDuration::from_mins(60),
        backlog: SignedDuration::from_hours(24),
        limits: api::Limits::default(),
    };
    assert_eq!(config.feed, feed);
    assert_eq!(config.secret, SecretSource::SecretsManager("secret".to_owned()));
    // A claim of a source outlives whoever may be under it, by any clock.
    let schedule = ScheduleConfig {
        lease: SignedDuration::from_secs(55),
        skew: SignedDuration::from_secs(5),
    };
    assert_eq!(config.schedule, schedule);
}

#[test]
fn the_poller_needs_what_the_webhook_needs() {
    // LAMB-07
    for name in ["TABLE_NAME", "SECRET_ID", "INBOX_dispatcher", "INBOX_notice"] {
        let mut missing = environment(&[]);
        missing.remove(name);
        let problems = PollerConfig::read(missing).unwrap_err();
        assert_eq!(problems.sentences().len(), 1, "{problems}");
        assert!(
            problems.sentences()[0].starts_with(&format!("{name} is missing")),
            "{problems}"
        );
        assert!(polling_problem(&[(name, " ")]).starts_with(&format!("{name} is ")));
    }
}

#[test]
fn every_variable_of_the_poller_is_read_and_may_be_blank_where_it_has_a_default() {
    let defaults = format!("{:?}", for_polling(&[]).unwrap());
    let any_text = ["SECRET_ID", "IGNORED_ACTORS", "RECOVER_ADDRESS"];
    for name in POLLER_VARIABLES {
        let refused = for_polling(&[(name, "no,such=value/at all")]).is_err();
        assert_eq!(refused, !any_text.contains(name), "{name}");
        if !["TABLE_NAME", "SECRET_ID"].contains(name) {
            let blank = format!("{:?}", for_polling(&[(name, " ")]).unwrap());
            assert_eq!(blank, defaults, "{name}");
        }
    }
}

#[test]
fn each_number_of_the_poller_is_taken_up_to_its_borders_and_refused_beyond_them() {
    for (name, least, most, below, beyond) in [
        ("POLL_SECONDS", "60", "3600", "59", "3601"),
        ("POLL_ALL_MINUTES", "10", "1440", "9", "1441"),
        ("POLL_BACKLOG_HOURS", "0", "720", "-1", "721"),
        ("POLL_CONCURRENCY", "1", "32", "0", "33"),
        ("RECOVER_SECONDS", "60", "86400", "59", "86401"),
        ("RECOVER_LOG_DAYS", "1", "7", "0", "8"),
        ("RECOVER_PAGES_MAX", "1", "200", "0", "201"),
        ("RECOVER_REQUESTS_MAX", "1", "100", "0", "101"),
        ("RECOVER_ATTEMPTS_MAX", "1", "20", "0", "21"),
        ("LIMIT_WAIT_SECONDS_MAX", "60", "86400", "59", "86401"),
        ("SECRET_CACHE_SECONDS", "1", "3600", "0", "3601"),
    ] {
        for good in [least, most] {
            assert!(for_polling(&[(name, good)]).is_ok(), "{name}={good}");
        }
        for bad in [below, beyond, "x", "1.5", "99999999999999999999", "7 days"] {
            let problem = polling_problem(&[(name, bad)]);
            assert!(
                problem.starts_with(&format!("{name} is not a whole number from {least} to {most}")),
                "{name}={bad}: {problem}"
            );
        }
    }
}

#[test]
fn numbers_arrive_where_they_are_used() {
    let config = for_polling(&[
        ("POLL_SECONDS", "120"),
        ("POLL_ALL_MINUTES", "30"),
        ("POLL_BACKLOG_HOURS", "48"),
        ("POLL_CONCURRENCY", "7"),
        ("RECOVER_SECONDS", "61"),
        ("RECOVER_LOG_DAYS", "7"),
        ("RECOVER_PAGES_MAX", "8"),
        ("RECOVER_REQUESTS_MAX", "9"),
        ("RECOVER_ATTEMPTS_MAX", "10"),
        ("RECOVER_REMEDY", "fetch"),
        ("RECOVER_ADDRESS", "https://hooks.acme.example/github"),
        ("RECOVER_EVENTS", "pull_request, issues,issues"),
        ("LIMIT_WAIT_SECONDS_MAX", "600"),
        ("SKEW_SECONDS", "9"),
    ])
    .unwrap();
    let limits = api::Limits {
        wait_max: SignedDuration::from_secs(600),
    };
    let feed = FeedConfig {
        host: None,
        interval: SignedDuration::from_secs(120),
        read_all_every: SignedDuration::from_mins(30),
        backlog: SignedDuration::from_hours(48),
        limits,
    };
    assert_eq!((config.feed, config.concurrency), (feed, 7));
    let recovery = RecoveryConfig {
        interval: SignedDuration::from_secs(61),
        retention: SignedDuration::from_hours(7 * 24),
        events: BTreeSet::from(["issues".to_owned(), "pull_request".to_owned()]),
        remedy: Remedy::Fetch,
        address: "https://hooks.acme.example/github".to_owned(),
        pages_max: 8,
        requests_max: 9,
        attempts_max: 10,
        limits,
        ..RecoveryConfig::default()
    };
    assert_eq!(config.recovery, recovery);
    assert_eq!(config.schedule.lease, SignedDuration::from_secs(59));
}

#[test]
fn an_address_that_every_hook_ends_in_is_refused() {
    let problem = polling_problem(&[("RECOVER_ADDRESS", "//")]);
    assert!(problem.starts_with("RECOVER_ADDRESS"), "{problem}");
}

#[test]
fn feeds_are_named_one_by_one_by_their_owner_or_by_the_routes() {
    let feeds = |text: &str| {
        let routes = "acme/app=reviewer,acme/app#12=reviewer,Acme/Site=reviewer";
        let read = for_polling(&[("POLL_REPOSITORIES", text), ("ROUTES", routes)]);
        read.unwrap().feeds
    };
    assert_eq!(feeds("acme/lib"), BTreeSet::from([one("acme/lib")]));
    let several = BTreeSet::from([one("acme/lib"), Polled::AllOf("globex".to_owned())]);
    assert_eq!(feeds(" acme/lib , ,globex/*,acme/lib"), several);
    // Each repository once, however many routes it has.
    assert_eq!(feeds("routes"), BTreeSet::from([one("acme/app"), one("acme/site")]));
    let both = BTreeSet::from([one("acme/app"), one("acme/lib"), one("acme/site")]);
    assert_eq!(feeds("acme/lib,routes"), both);
    // Nothing is routed, and so nothing is polled.
    let none = for_polling(&[("POLL_REPOSITORIES", "routes")]).unwrap().feeds;
    assert_eq!(none, BTreeSet::new());
    for bad in [
        "acme",
        "acme/",
        "/app",
        "*",
        "*/*",
        "acme/a*",
        "/*",
        "acme/app/x",
        "a b/c",
        "Routes",
        "acme/app#1",
    ] {
        let problem = polling_problem(&[("POLL_REPOSITORIES", bad)]);
        assert_eq!(
            problem,
            format!("POLL_REPOSITORIES: `{bad}` is none of owner/name, owner/* and routes")
        );
    }
}

#[test]
fn logs_are_those_of_repositories_of_organisations_and_of_the_app() {
    let logs = |changed: &[(&str, &str)]| for_polling(changed).unwrap().logs;
    let all = logs(&[
        ("RECOVER_REPOSITORIES", "acme/app, acme/lib"),
        ("RECOVER_ORGANIZATIONS", "acme,globex"),
        ("RECOVER_APP", "true"),
    ]);
    let repository = |name: &str| HookLog::Repository(Repository::new(name).unwrap());
    let organization = |name: &str| HookLog::Organization(name.to_owned());
    let expected = [
        repository("acme/app"),
        repository("acme/lib"),
        organization("acme"),
        organization("globex"),
        HookLog::App,
    ];
    assert_eq!(all, expected);
    assert_eq!(logs(&[("RECOVER_APP", "false")]), []);
    for (name, bad, says) in [
        ("RECOVER_REPOSITORIES", "acme", "`acme` is not owner/name"),
        ("RECOVER_ORGANIZATIONS", "acme/app", "`acme/app` is no name"),
        ("RECOVER_APP", "yes", "is neither true nor false"),
        ("RECOVER_REMEDY", "Fetch", "is neither redeliver nor fetch"),
        ("RECOVER_EVENTS", "Push", "`Push` is no name"),
    ] {
        let problem = polling_problem(&[(name, bad)]);
        assert!(problem.starts_with(name) && problem.contains(says), "{problem}");
    }
}

#[test]
fn a_feed_needs_a_retention_that_is_longer_than_it_is() {
    // DESIGN §4: what a feed still shows must not have been forgotten.
    let polled = ("POLL_REPOSITORIES", "acme/app");
    let problem = polling_problem(&[polled, ("RETENTION_DAYS", "31")]);
    assert!(problem.starts_with("RETENTION_DAYS must be at least 32"), "{problem}");
    assert!(for_polling(&[polled, ("RETENTION_DAYS", "32")]).is_ok());
    // A log alone shows no more than a few days.
    let logs = [("RECOVER_REPOSITORIES", "acme/app"), ("RETENTION_DAYS", "31")];
    assert!(for_polling(&logs).is_ok());
}

#[test]
fn the_rest_interface_is_where_the_host_has_it_unless_it_is_said_to_be_elsewhere() {
    let config = |changed: &[(&str, &str)]| for_polling(changed).unwrap();
    assert_eq!(config(&[]).api, ApiBase::default());
    assert_eq!(config(&[("GITHUB_HOST", "github.com")]).api, ApiBase::default());
    let enterprise = config(&[("GITHUB_HOST", "GHE.Acme.example")]);
    assert_eq!(
        enterprise.api,
        ApiBase::parse("https://ghe.acme.example/api/v3").unwrap()
    );
    // Its name is a part of every event id, whichever net reports the event.
    let host = Some("ghe.acme.example");
    assert_eq!(
        (enterprise.feed.host.as_deref(), enterprise.recovery.host.as_deref()),
        (host, host)
    );
    let double = config(&[("GITHUB_API_URL", "http://127.0.0.1:4000")]);
    assert_eq!(double.api.host(), "127.0.0.1:4000");
    assert_eq!(double.feed.host, None);
    for bad in ["http://api.github.com", "api.github.com", "https://x@api.github.com"] {
        let problem = polling_problem(&[("GITHUB_API_URL", bad)]);
        assert!(problem.starts_with("GITHUB_API_URL: the API's address"), "{problem}");
    }
}

#[test]
fn every_problem_of_the_poller_is_named_at_once() {
    // LAMB-07
    let changed = [
        ("TABLE_NAME", ""),
        ("INBOX_reviewer", "nonsense"),
        ("ROUTES", "acme/app=nobody"),
        ("GITHUB_HOST", "https://ghe.acme.example"),
        ("METRICS_NAMESPACE", "no,such"),
        ("GITHUB_API_URL", "ftp://github"),
        ("POLL_REPOSITORIES", "acme/app,acme"),
        ("POLL_SECONDS", "1"),
        ("POLL_ALL_MINUTES", "1"),
        ("POLL_BACKLOG_HOURS", "many"),
        ("POLL_CONCURRENCY", "0"),
        ("RECOVER_REPOSITORIES", "acme"),
        ("RECOVER_ORGANIZATIONS", "a/b"),
        ("RECOVER_APP", "perhaps"),
        ("RECOVER_EVENTS", "Push"),
        ("RECOVER_REMEDY", "pray"),
        ("RECOVER_SECONDS", "1"),
        ("RECOVER_LOG_DAYS", "30"),
        ("RECOVER_PAGES_MAX", "0"),
        ("RECOVER_REQUESTS_MAX", "0"),
        ("RECOVER_ATTEMPTS_MAX", "0"),
        ("LIMIT_WAIT_SECONDS_MAX", "0"),
        ("SECRET_CACHE_SECONDS", "0"),
        ("RETENTION_DAYS", "31"),
        ("SHED_CACHE_SECONDS", "0"),
    ];
    let problems = for_polling(&changed).unwrap_err();
    for (name, _) in changed {
        let about = problems.sentences().iter().filter(|problem| problem.starts_with(name));
        assert_eq!(about.count(), 1, "{name}: {problems}");
    }
    assert_eq!(problems.sentences().len(), changed.len(), "{problems}");
}
