//! Who gets what.

use super::*;
use crate::event::{EventId, Subject};
use crate::session::{Owner, Pointer, Session};
use crate::testing::{at, event, repository, session};

fn inboxes() -> BTreeSet<String> {
    ["reviewer", "builder", DISPATCHER, NOTICE].map(str::to_owned).into()
}

fn routing(routes: &str, ignored: &str) -> Routing {
    Routing {
        routes: Routes::parse(routes, &inboxes()).unwrap(),
        queues: QueueRoutes::default(),
        ignored: IgnoredActors::parse(ignored),
    }
}

fn send<const N: usize>(inboxes: [&str; N]) -> Decision {
    Decision::Send(inboxes.map(str::to_owned).into())
}

/// The pointers of open `sessions`.
fn pointers(sessions: &[Session]) -> Pointers {
    let entries = sessions.iter().flat_map(|session| {
        let owner: Owner = session.owner();
        session.keys().into_iter().map(move |key| {
            let owner = Some(owner.clone());
            (
                key,
                Pointer {
                    owner,
                    ..Pointer::default()
                },
            )
        })
    });
    Pointers(entries.collect())
}

fn decide(routing: &Routing, event: &Event, sessions: &[Session]) -> Decision {
    routing.decide(event, &pointers(sessions), at(1))
}

fn unrouted() -> Decision {
    Decision::Nothing(Reason::Unrouted)
}

fn on_pull(number: u64, event: Event) -> Event {
    let repository = repository("acme/app");
    Event {
        subject: Subject::PullRequest { repository, number },
        pull_requests: vec![number],
        ..event
    }
}

fn on_issue(number: u64, event: Event) -> Event {
    let repository = repository("acme/app");
    Event {
        subject: Subject::Issue { repository, number },
        pull_requests: Vec::new(),
        ..event
    }
}

fn on_repository(event: Event) -> Event {
    Event {
        subject: Subject::Repository(repository("acme/app")),
        pull_requests: Vec::new(),
        ..event
    }
}

#[test]
fn work_on_a_pull_request_goes_to_its_live_session() {
    // S3-10
    let owner = session("s1", "reviewer", None, Some(12));
    for kind in [Kind::Comment, Kind::Review, Kind::ReviewComment, Kind::CheckFailure] {
        let decision = decide(&Routing::default(), &event(kind), std::slice::from_ref(&owner));
        assert_eq!(decision, send(["reviewer"]), "{kind}");
    }
}

#[test]
fn work_on_an_owned_branch_goes_to_its_session_whatever_the_case_of_the_repository() {
    // S3-10
    let owner = Session {
        repository: repository("ACME/App"),
        ..session("s1", "reviewer", Some("fix"), None)
    };
    let review = Event {
        branch: Some("fix".to_owned()),
        ..event(Kind::Review)
    };
    assert_eq!(
        decide(&Routing::default(), &review, std::slice::from_ref(&owner)),
        send(["reviewer"])
    );
    let other_case = Event {
        branch: Some("Fix".to_owned()),
        ..event(Kind::Review)
    };
    let parked = decide(&Routing::default(), &other_case, &[owner]);
    assert!(
        matches!(parked, Decision::Park(_)),
        "branches depend on case: {parked:?}"
    );
}

#[test]
fn a_session_of_another_repository_gets_nothing_of_a_branch_of_the_same_name() {
    // ROUT-04
    let app = session("s1", "reviewer", Some("fix"), None);
    let web = Session {
        repository: repository("acme/web"),
        ..session("s2", "builder", Some("fix"), None)
    };
    let mut failed = Event {
        branch: Some("fix".to_owned()),
        ..event(Kind::CheckFailure)
    };
    failed.subject = Subject::PullRequest {
        repository: repository("acme/web"),
        number: 12,
    };
    assert_eq!(decide(&Routing::default(), &failed, &[app, web]), send(["builder"]));
}

#[test]
fn a_forks_branch_never_matches() {
    // PAY-04: such an event has no branch, and no fallback to the base repository.
    let owner = session("s1", "reviewer", Some("main"), None);
    let from_fork = Event {
        branch: None,
        base: Some("main".to_owned()),
        ..event(Kind::Review)
    };
    let key = OwnerKey::pull(&repository("acme/app"), 12);
    assert_eq!(decide(&Routing::default(), &from_fork, &[owner]), Decision::Park(key));
}

#[test]
fn only_a_check_that_went_wrong_is_work() {
    // S3-10
    let owner = [session("s1", "reviewer", None, Some(12))];
    let check = |kind, conclusion: Option<&str>| {
        let check = Event {
            conclusion: conclusion.map(str::to_owned),
            ..event(kind)
        };
        decide(&routing("acme/app=builder", ""), &check, &owner)
    };
    for kind in [Kind::CheckRunCompleted, Kind::CheckSuiteCompleted] {
        for conclusion in ["failure", "timed_out", "startup_failure"] {
            assert_eq!(
                check(kind, Some(conclusion)),
                send(["reviewer", "builder"]),
                "{conclusion}"
            );
        }
        for conclusion in [
            "success",
            "neutral",
            "skipped",
            "cancelled",
            "stale",
            "action_required",
            "new",
        ] {
            assert_eq!(check(kind, Some(conclusion)), unrouted(), "{conclusion}");
        }
        assert_eq!(check(kind, None), unrouted());
    }
    assert_eq!(check(Kind::CheckFailure, None), send(["reviewer", "builder"]), "always");
}

#[test]
fn a_lapsed_session_is_no_owner() {
    let lapsed = Session {
        live_until: at(1),
        ..session("s1", "reviewer", None, Some(12))
    };
    let decision = decide(&Routing::default(), &event(Kind::Comment), &[lapsed]);
    assert!(matches!(decision, Decision::Park(_)), "{decision:?}");
}

#[test]
fn a_check_that_names_several_pull_requests_looks_at_all_of_them() {
    let failed = Event {
        pull_requests: vec![12, 13, 14],
        ..event(Kind::CheckFailure)
    };
    let of_13 = session("s1", "reviewer", None, Some(13));
    let of_14 = session("s2", "builder", None, Some(14));
    let decision = decide(&Routing::default(), &failed, &[of_13, of_14]);
    assert_eq!(decision, send(["reviewer", "builder"]));
    let subject = OwnerKey::pull(&repository("acme/app"), 12);
    assert_eq!(decide(&Routing::default(), &failed, &[]), Decision::Park(subject));
    let routed = decide(&routing("acme/app#13=reviewer,acme/app=builder", ""), &failed, &[]);
    assert_eq!(
        routed,
        send(["reviewer"]),
        "a number's own route, be it the subject's or not"
    );
}

#[test]
fn a_check_without_a_pull_request_waits_for_its_branch() {
    let failed = Event {
        branch: Some("fix".to_owned()),
        ..on_repository(event(Kind::CheckFailure))
    };
    let branch = OwnerKey::branch(&repository("acme/app"), "fix");
    assert_eq!(decide(&Routing::default(), &failed, &[]), Decision::Park(branch));
    let nowhere = on_repository(event(Kind::CheckFailure));
    assert_eq!(decide(&Routing::default(), &nowhere, &[]), unrouted());
}

#[test]
fn a_comment_on_an_issue_is_nobodys_session_work() {
    let issue = on_issue(12, event(Kind::Comment));
    let owner = session("s1", "reviewer", None, Some(12));
    assert_eq!(
        decide(&Routing::default(), &issue, std::slice::from_ref(&owner)),
        unrouted()
    );
    assert_eq!(
        decide(&routing("acme/app#12=builder", ""), &issue, &[owner]),
        send(["builder"])
    );
}

#[test]
fn a_merge_into_exactly_main_goes_to_the_dispatcher() {
    // S3-12
    let merged = |base: Option<&str>| Event {
        base: base.map(str::to_owned),
        ..event(Kind::PullRequestMerged)
    };
    let decision = |base| decide(&Routing::default(), &merged(base), &[]);
    assert_eq!(decision(Some("main")), send([DISPATCHER]));
    for base in ["Main", "main2", "mainline", "release/main", ""] {
        assert_eq!(decision(Some(base)), unrouted(), "{base}");
    }
    assert_eq!(decision(None), unrouted());
    let closed = Event {
        base: Some("main".to_owned()),
        ..event(Kind::PullRequestClosed)
    };
    assert_eq!(decide(&Routing::default(), &closed, &[]), unrouted(), "PAY-17");
}

#[test]
fn a_release_goes_to_the_notice() {
    // S3-13
    let released = on_repository(event(Kind::ReleasePublished));
    assert_eq!(decide(&Routing::default(), &released, &[]), send([NOTICE]));
    let both = decide(&routing("acme/app=reviewer", ""), &released, &[]);
    assert_eq!(both, send([NOTICE, "reviewer"]));
}

#[test]
fn two_routes_to_one_inbox_are_one_destination() {
    let owner = session("s1", "reviewer", Some("fix"), Some(12));
    let review = Event {
        branch: Some("fix".to_owned()),
        ..event(Kind::Review)
    };
    assert_eq!(
        decide(&routing("acme/app=reviewer", ""), &review, &[owner]),
        send(["reviewer"])
    );
}

#[test]
fn the_most_specific_static_route_wins() {
    // S3-15
    let routing = routing("acme/app=builder, Acme/App#12=reviewer", "");
    let opened = |number| on_pull(number, event(Kind::PullRequestOpened));
    assert_eq!(decide(&routing, &opened(12), &[]), send(["reviewer"]));
    assert_eq!(decide(&routing, &opened(13), &[]), send(["builder"]));
    let mut elsewhere = opened(12);
    elsewhere.subject = Subject::PullRequest {
        repository: repository("acme/app2"),
        number: 12,
    };
    assert_eq!(decide(&routing, &elsewhere, &[]), unrouted());
}

#[test]
fn a_push_wakes_no_static_route() {
    let routing = routing("acme/app=builder", "");
    assert_eq!(decide(&routing, &event(Kind::Push), &[]), unrouted());
}

#[test]
fn what_an_ignored_actor_wrote_wakes_nobody_and_what_it_did_otherwise_still_goes() {
    // ROUT-01, ROUT-02
    let routing = routing("acme/app=reviewer", "agent-bot[bot], other");
    let by = |actor: &str, kind| Event {
        actor: Some(actor.to_owned()),
        base: Some(MAIN.to_owned()),
        ..event(kind)
    };
    let silenced = Decision::Nothing(Reason::Silenced);
    for kind in [Kind::Comment, Kind::Review, Kind::ReviewComment] {
        for actor in ["agent-bot[bot]", "Agent-Bot[bot]", "OTHER"] {
            assert_eq!(decide(&routing, &by(actor, kind), &[]), silenced, "{kind} {actor}");
        }
        for actor in ["dev1", "dependabot[bot]", "agent-bot", "another"] {
            assert_eq!(
                decide(&routing, &by(actor, kind), &[]),
                send(["reviewer"]),
                "{kind} {actor}"
            );
        }
    }
    let merged = by("agent-bot[bot]", Kind::PullRequestMerged);
    assert_eq!(decide(&routing, &merged, &[]), send([DISPATCHER, "reviewer"]));
    let failed = by("agent-bot[bot]", Kind::CheckFailure);
    assert_eq!(decide(&routing, &failed, &[]), send(["reviewer"]));
}

#[test]
fn an_ignore_rule_for_bots_does_not_match_an_author_who_is_gone() {
    // PAY-02
    let routing = routing("acme/app=reviewer", "*[bot]");
    let by = |actor: Option<&str>| {
        let comment = Event {
            actor: actor.map(str::to_owned),
            ..event(Kind::Comment)
        };
        decide(&routing, &comment, &[])
    };
    assert_eq!(by(None), send(["reviewer"]));
    assert_eq!(by(Some("ghost")), send(["reviewer"]));
    assert_eq!(by(Some("deploy[bot]")), Decision::Nothing(Reason::Silenced));
}

#[test]
fn a_blank_ignore_list_ignores_nobody() {
    for text in ["", " ", ",", " , ,"] {
        assert_eq!(IgnoredActors::parse(text), IgnoredActors::default(), "{text:?}");
    }
}

#[test]
fn routes_are_read_from_one_line_and_name_the_repositories_worth_polling() {
    // S1-14, S3-15
    let text = " acme/app=reviewer ,Acme/APP#12 = builder,, acme/web#7=builder,";
    let routes = Routes::parse(text, &inboxes()).unwrap();
    assert_eq!(routes.repositories().collect::<Vec<_>>(), ["acme/app", "acme/web"]);
    for blank in ["", "  ", ",,", "\n"] {
        assert_eq!(Routes::parse(blank, &inboxes()), Ok(Routes::default()), "{blank:?}");
    }
}

#[test]
fn all_problems_of_the_routes_are_reported_at_once() {
    // S3-15
    let text =
        "acme/app=reviewer, ACME/app=builder, nonsense, acme/web=nobody, acme/app#12=reviewer, acme/app#12=reviewer";
    let problems = Routes::parse(text, &inboxes()).unwrap_err();
    let expected = vec![
        RouteError::Twice("ACME/app".to_owned()),
        RouteError::Form("nonsense".to_owned()),
        RouteError::NoInbox("acme/web=nobody".to_owned()),
        RouteError::Twice("acme/app#12".to_owned()),
    ];
    assert_eq!(problems, expected);
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(texts[0], "two routes for ACME/app");
    assert!(
        texts[1].contains("`nonsense`") && texts[2].contains("no inbox"),
        "{texts:?}"
    );
}

#[test]
fn hostile_routes_are_refused_and_never_panic() {
    let hostile = [
        "=",
        "#",
        "/",
        "a/b",
        "a/b=",
        "=reviewer",
        "a=reviewer",
        "/b=reviewer",
        "a/=reviewer",
        "a/b/c=reviewer",
        "a/b#=reviewer",
        "a/b#x=reviewer",
        "a/b#-1=reviewer",
        "a/b#1#2=reviewer",
        "a/b#18446744073709551616=reviewer",
        "a/b=Reviewer",
        "a/b=re-viewer",
        "a/b=reviewer=builder",
        "a b/c=reviewer",
        "a/b\u{0}=reviewer",
        "a/b=réviewer",
        "é🚀=🚀",
    ];
    for text in hostile {
        let problems = Routes::parse(text, &inboxes()).unwrap_err();
        assert_eq!(problems, [RouteError::Form(text.to_owned())]);
    }
    let long = format!("{}/b=reviewer", "a".repeat(100_000));
    assert!(Routes::parse(&long, &inboxes()).is_ok());
}

#[test]
fn one_lookup_finds_the_owner_among_many_keys_and_their_number_is_bounded() {
    // Invariant 9
    let failed = Event {
        id: EventId::new("e"),
        branch: Some("fix".to_owned()),
        pull_requests: (1..=1_000).collect(),
        ..event(Kind::CheckFailure)
    };
    let keys = owner_keys(&failed);
    assert_eq!(keys.len(), POINTERS_MAX);
    assert_eq!(keys.last(), Some(&OwnerKey::pull(&repository("acme/app"), 1)));
}
