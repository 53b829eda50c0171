//! Which event a payload means: one function for each event name, each of them a table of actions and fields.

use super::Named;
use super::payload::{
    CheckRun, CheckSuite, Comment, Commit, Issue, PullRequest, Release, Review, Text, Titled, WorkflowRun, full, owned,
    value, view, word,
};
use super::scene::{About, Scene, Stop, UNHANDLED, need};
use super::time::time;
use crate::delivery::Ignored;
use crate::event::{Event, EventId, Kind, is_failure};

/// The event that a payload means. Adds to `names` even where it means none.
pub(super) fn of(scene: &Scene<'_>, names: &mut Vec<Named>) -> Result<Event, Stop> {
    match scene.envelope.event_name.as_str() {
        "ping" => Err(Stop::Ignored(Ignored::Ping)),
        "pull_request" => pull_request(scene, names),
        "issue_comment" => issue_comment(scene),
        "pull_request_review" => review(scene, names),
        "pull_request_review_comment" => review_comment(scene, names),
        "check_run" => check_run(scene, names),
        "check_suite" => check_suite(scene, names),
        "workflow_run" => workflow_run(scene, names),
        "push" => push(scene),
        "issues" => issues(scene),
        "release" => release(scene),
        _ => Err(Stop::Ignored(Ignored::UnknownEvent)),
    }
}

fn pull_request(scene: &Scene<'_>, names: &mut Vec<Named>) -> Result<Event, Stop> {
    let pull = scene.pull(names)?;
    let action = scene.action()?;
    if !matches!(action, "opened" | "closed") {
        return Err(UNHANDLED);
    }
    let pull = need(pull)?;
    let (id, about) = (need(pull.id)?, About::Pull(need(pull.number)?));
    let is_merged = pull.merged.unwrap_or(pull.merged_at.is_some());
    let event = match action {
        "opened" => Event {
            actor: scene.actor(&pull.user)?,
            occurred_at: time(pull.created_at),
            ..scene.event(
                Kind::PullRequestOpened,
                scene.id(format_args!("pull_request/{id}/opened")),
                about,
            )?
        },
        _ if is_merged => Event {
            actor: scene.actor(&pull.merged_by)?,
            occurred_at: time(pull.merged_at),
            ..scene.event(
                Kind::PullRequestMerged,
                scene.id(format_args!("pull_request/{id}/merged")),
                about,
            )?
        },
        _ => {
            let moment = scene.moment(&[pull.closed_at, pull.updated_at])?;
            let id = scene.id(format_args!("pull_request/{id}/closed/{moment}"));
            Event {
                actor: scene.sender()?,
                occurred_at: time(pull.closed_at),
                ..scene.event(Kind::PullRequestClosed, id, about)?
            }
        }
    };
    let event = Event {
        url: owned(&pull.html_url),
        summary: Event::summarize(full(&pull.title)),
        ..event
    };
    with_sides(scene, &pull, event)
}

/// Head and base of a pull request.
fn with_sides(scene: &Scene<'_>, pull: &PullRequest<'_>, event: Event) -> Result<Event, Stop> {
    Ok(Event {
        branch: scene.own_branch(&pull.head)?.map(str::to_owned),
        base: pull.base.as_ref().and_then(|base| owned(&base.branch)),
        head_sha: pull.head.as_ref().and_then(|head| owned(&head.sha)),
        ..event
    })
}

fn issue_comment(scene: &Scene<'_>) -> Result<Event, Stop> {
    if scene.action()? != "created" {
        return Err(UNHANDLED);
    }
    let comment = need(view::<Comment<'_>>(scene.payload.comment)?)?;
    let issue = need(view::<Issue<'_>>(scene.payload.issue)?)?;
    let (id, number) = (need(comment.id)?, need(issue.number)?);
    let about = if issue.pull_request.is_some() {
        About::Pull(number)
    } else {
        About::Issue(number)
    };
    Ok(Event {
        cloud_source: scene.source([&issue.url, &issue.html_url])?,
        cloud_subject: id.to_string(),
        actor: scene.writer(&comment.user)?,
        url: owned(&comment.html_url),
        summary: Event::summarize(full(&comment.body)),
        occurred_at: time(comment.created_at),
        ..scene.event(Kind::Comment, scene.id(format_args!("comment/{id}")), about)?
    })
}

fn review(scene: &Scene<'_>, names: &mut Vec<Named>) -> Result<Event, Stop> {
    let pull = scene.pull(names)?;
    if scene.action()? != "submitted" {
        return Err(UNHANDLED);
    }
    let pull = need(pull)?;
    let review = need(view::<Review<'_>>(scene.payload.review)?)?;
    let (id, about) = (need(review.id)?, About::Pull(need(pull.number)?));
    let conclusion = lower(&review.state);
    let body = full(&review.body);
    let summary = if body.trim().is_empty() {
        conclusion.as_deref().unwrap_or_default()
    } else {
        body
    };
    let event = Event {
        cloud_source: scene.source([&pull.url, &pull.html_url])?,
        cloud_subject: id.to_string(),
        actor: scene.writer(&review.user)?,
        url: owned(&review.html_url),
        summary: Event::summarize(summary),
        conclusion,
        occurred_at: time(review.submitted_at),
        ..scene.event(Kind::Review, scene.id(format_args!("review/{id}")), about)?
    };
    with_sides(scene, &pull, event)
}

fn review_comment(scene: &Scene<'_>, names: &mut Vec<Named>) -> Result<Event, Stop> {
    let pull = scene.pull(names)?;
    if scene.action()? != "created" {
        return Err(UNHANDLED);
    }
    let pull = need(pull)?;
    let comment = need(view::<Comment<'_>>(scene.payload.comment)?)?;
    let (id, about) = (need(comment.id)?, About::Pull(need(pull.number)?));
    let event = Event {
        cloud_source: scene.source([&pull.url, &pull.html_url])?,
        cloud_subject: id.to_string(),
        actor: scene.writer(&comment.user)?,
        url: owned(&comment.html_url),
        summary: Event::summarize(full(&comment.body)),
        occurred_at: time(comment.created_at),
        ..scene.event(
            Kind::ReviewComment,
            scene.id(format_args!("review_comment/{id}")),
            about,
        )?
    };
    with_sides(scene, &pull, event)
}

fn lower(text: &Option<Text<'_>>) -> Option<String> {
    word(text).map(str::to_lowercase)
}

/// What the three kinds of checks share.
struct Check<'a> {
    kind: Kind,
    id: EventId,
    name: &'a str,
    conclusion: &'a Option<Text<'a>>,
    branch: Option<&'a str>,
    head_sha: &'a Option<Text<'a>>,
    pulls: Vec<u64>,
}

/// The event of a check: its subject is the first of its pull requests, else the repository.
fn checked(scene: &Scene<'_>, check: Check<'_>) -> Result<Event, Stop> {
    let about = check
        .pulls
        .first()
        .map_or(About::Repository, |number| About::Pull(*number));
    let conclusion = lower(check.conclusion);
    let summary = match (check.name.trim(), conclusion.as_deref()) {
        ("", conclusion) => conclusion.unwrap_or_default().to_owned(),
        (name, None) => name.to_owned(),
        (name, Some(conclusion)) => format!("{name}: {conclusion}"),
    };
    Ok(Event {
        pull_requests: check.pulls,
        actor: scene.sender()?,
        summary: Event::summarize(&summary),
        branch: check.branch.map(str::to_owned),
        head_sha: owned(check.head_sha),
        conclusion,
        ..scene.event(check.kind, check.id, about)?
    })
}

fn check_run(scene: &Scene<'_>, names: &mut Vec<Named>) -> Result<Event, Stop> {
    let Some(run) = view::<CheckRun<'_>>(scene.payload.check_run)? else {
        return absent(scene);
    };
    // GitHub names no branch here for a check of a fork.
    let branch = run.check_suite.as_ref().and_then(|suite| word(&suite.head_branch));
    let pulls = scene.pulls(&run.pull_requests, branch, names)?;
    if scene.action()? != "completed" {
        return Err(UNHANDLED);
    }
    let id = need(run.id)?;
    let check = Check {
        kind: Kind::CheckRunCompleted,
        id: scene.id(format_args!("check_run/{id}/{}", scene.guid()?)),
        name: full(&run.name),
        conclusion: &run.conclusion,
        branch,
        head_sha: &run.head_sha,
        pulls,
    };
    Ok(Event {
        cloud_subject: id.to_string(),
        url: owned(&run.html_url),
        occurred_at: time(run.completed_at),
        ..checked(scene, check)?
    })
}

fn check_suite(scene: &Scene<'_>, names: &mut Vec<Named>) -> Result<Event, Stop> {
    let Some(suite) = view::<CheckSuite<'_>>(scene.payload.check_suite)? else {
        return absent(scene);
    };
    let branch = word(&suite.head_branch);
    let pulls = scene.pulls(&suite.pull_requests, branch, names)?;
    if scene.action()? != "completed" {
        return Err(UNHANDLED);
    }
    let id = need(suite.id)?;
    let check = Check {
        kind: Kind::CheckSuiteCompleted,
        id: scene.id(format_args!("check_suite/{id}/{}", scene.guid()?)),
        name: suite.app.as_ref().map_or("", |app| full(&app.name)),
        conclusion: &suite.conclusion,
        branch,
        head_sha: &suite.head_sha,
        pulls,
    };
    // A suite has no page of its own; its commit's checks have one.
    let page = scene
        .home()?
        .and_then(|home| word(&home.html_url))
        .zip(word(&suite.head_sha));
    Ok(Event {
        cloud_subject: id.to_string(),
        url: page.map(|(repository, sha)| format!("{repository}/commit/{sha}/checks")),
        occurred_at: time(suite.updated_at),
        ..checked(scene, check)?
    })
}

fn workflow_run(scene: &Scene<'_>, names: &mut Vec<Named>) -> Result<Event, Stop> {
    let Some(run) = view::<WorkflowRun<'_>>(scene.payload.workflow_run)? else {
        return absent(scene);
    };
    // The branch of a fork's run is named too, and only this tells it from ours.
    let is_own = scene.home()?.is_some_and(|home| home.is(&run.head_repository));
    let branch = word(&run.head_branch).filter(|_| is_own);
    let pulls = scene.pulls(&run.pull_requests, branch, names)?;
    if scene.action()? != "completed" {
        return Err(UNHANDLED);
    }
    if !lower(&run.conclusion).is_some_and(|conclusion| is_failure(&conclusion)) {
        return Err(Stop::Ignored(Ignored::NotAFailure));
    }
    let (id, attempt) = (need(run.id)?, need(run.run_attempt)?);
    let workflow = view::<Titled<'_>>(scene.payload.workflow)?;
    let title = workflow
        .as_ref()
        .and_then(|workflow| word(&workflow.name))
        .or_else(|| word(&run.name));
    let check = Check {
        kind: Kind::CheckFailure,
        id: scene.id(format_args!("run/{id}/attempt/{attempt}")),
        name: word(&run.name).or(title).unwrap_or_default(),
        conclusion: &run.conclusion,
        branch,
        head_sha: &run.head_sha,
        pulls,
    };
    Ok(Event {
        cloud_subject: title.map_or_else(|| id.to_string(), str::to_owned),
        url: owned(&run.html_url),
        occurred_at: time(run.updated_at),
        ..checked(scene, check)?
    })
}

/// The answer to a check's payload without the check: only a completed one would have been needed.
fn absent(scene: &Scene<'_>) -> Result<Event, Stop> {
    Err(if scene.action()? == "completed" {
        Stop::Ignored(Ignored::Incomplete)
    } else {
        UNHANDLED
    })
}

/// The branch that a ref names. A branch may itself be called `refs/heads/…` or like a tag, so only the first prefix goes.
fn branch_of(git_ref: &str) -> Option<&str> {
    git_ref.strip_prefix("refs/heads/").filter(|branch| !branch.is_empty())
}

fn push(scene: &Scene<'_>) -> Result<Event, Stop> {
    let git_ref = value::<Text<'_>>(scene.payload.git_ref)?;
    let git_ref = need(word(&git_ref))?;
    let branch = branch_of(git_ref).ok_or(Stop::Ignored(Ignored::NotABranch))?;
    let is_deleted = value::<bool>(scene.payload.deleted)?.unwrap_or(false);
    let commit = view::<Commit<'_>>(scene.payload.head_commit)?.filter(|_| !is_deleted);
    let commit = commit.ok_or(Stop::Ignored(Ignored::NoHeadCommit))?;
    // Git spells "no commit" as zeros.
    let sha = word(&commit.id).filter(|sha| !sha.bytes().all(|byte| byte == b'0'));
    let sha = sha.ok_or(Stop::Ignored(Ignored::NoHeadCommit))?;
    let home = need(scene.home()?)?;
    let id = need(home.id)?;
    let compare = value::<Text<'_>>(scene.payload.compare)?;
    Ok(Event {
        cloud_subject: git_ref.to_owned(),
        actor: scene.sender()?.map_or_else(|| pusher(scene), |login| Ok(Some(login)))?,
        url: owned(&compare).or_else(|| owned(&commit.url)),
        summary: Event::summarize(full(&commit.message).trim_start().lines().next().unwrap_or_default()),
        branch: Some(branch.to_owned()),
        head_sha: Some(sha.to_owned()),
        occurred_at: time(home.pushed_at).or_else(|| time(commit.timestamp)),
        ..scene.event(
            Kind::Push,
            scene.id(format_args!("push/{id}/{}", scene.guid()?)),
            About::Repository,
        )?
    })
}

fn pusher(scene: &Scene<'_>) -> Result<Option<String>, Stop> {
    Ok(view::<Titled<'_>>(scene.payload.pusher)?.and_then(|pusher| owned(&pusher.name)))
}

fn issues(scene: &Scene<'_>) -> Result<Event, Stop> {
    let action = scene.action()?;
    if !matches!(action, "opened" | "closed") {
        return Err(UNHANDLED);
    }
    let issue = need(view::<Issue<'_>>(scene.payload.issue)?)?;
    let (id, about) = (need(issue.id)?, About::Issue(need(issue.number)?));
    let event = if action == "opened" {
        Event {
            actor: scene.actor(&issue.user)?,
            occurred_at: time(issue.created_at),
            ..scene.event(Kind::IssueOpened, scene.id(format_args!("issue/{id}/opened")), about)?
        }
    } else {
        let moment = scene.moment(&[issue.closed_at, issue.updated_at])?;
        Event {
            actor: scene.sender()?,
            occurred_at: time(issue.closed_at),
            ..scene.event(
                Kind::IssueClosed,
                scene.id(format_args!("issue/{id}/closed/{moment}")),
                about,
            )?
        }
    };
    Ok(Event {
        url: owned(&issue.html_url),
        summary: Event::summarize(full(&issue.title)),
        ..event
    })
}

fn release(scene: &Scene<'_>) -> Result<Event, Stop> {
    if scene.action()? != "published" {
        return Err(UNHANDLED);
    }
    let release = need(view::<Release<'_>>(scene.payload.release)?)?;
    let id = need(release.id)?;
    let moment = scene.moment(&[release.published_at])?;
    let title = word(&release.name)
        .or_else(|| word(&release.tag_name))
        .unwrap_or_default();
    Ok(Event {
        cloud_subject: id.to_string(),
        actor: scene.actor(&release.author)?,
        url: owned(&release.html_url),
        summary: Event::summarize(title),
        occurred_at: time(release.published_at),
        ..scene.event(
            Kind::ReleasePublished,
            scene.id(format_args!("release/{id}/{moment}")),
            About::Repository,
        )?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_prefix_of_a_ref_goes() {
        assert_eq!(branch_of("refs/tags/main"), None, "PAY-11");
        assert_eq!(branch_of("refs/heads/refs/tags/v1"), Some("refs/tags/v1"), "PAY-11");
        assert_eq!(branch_of("refs/heads/feature/a/b"), Some("feature/a/b"), "PAY-11");
        assert_eq!(branch_of("refs/heads/refs/heads/x"), Some("refs/heads/x"));
        assert_eq!(branch_of("refs/heads/"), None);
    }
}
