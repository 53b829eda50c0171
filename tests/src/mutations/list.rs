//! The mutations.

use super::{Check, Edit, Mutation};

/// The core by itself. Alone, it needs nothing of the SDK.
const CORE: Check = Check(&["-p", "forebay-core", "--lib"]);
/// What every ledger must do, on DynamoDB's conditions too.
const CONTRACT: Check = Check(&["--test", "contract"]);
const WEBHOOK: Check = Check(&["--test", "webhook"]);
const REAPER: Check = Check(&["--test", "reaper"]);
const QUEUES: Check = Check(&["--test", "sqs"]);
/// What every store of sources must do, on DynamoDB's conditions.
const SOURCES: Check = Check(&["--test", "sources", "on_dynamodb"]);
/// Whole turns of the poller.
const TURNS: Check = Check(&["--test", "sources", "turns"]);
/// Rows that cannot be read, and the scheduler among them.
const UNREADABLE: Check = Check(&["--test", "sources", "schedule"]);

const TRANSITION: &str = "shared/core/src/ledger/transition.rs";
const DRIVE: &str = "shared/core/src/drive.rs";
const DYNAMODB: &str = "shared/aws/src/dynamodb.rs";
const SOURCE_ROW: &str = "shared/core/src/schedule/row.rs";
const SOURCE_ROWS: &str = "shared/aws/src/dynamodb/sources.rs";
const FEED: &str = "shared/core/src/source/github/feed.rs";
const FEED_OFFER: &str = "shared/core/src/source/github/feed/offer.rs";

/// Every mutation.
pub const LIST: &[Mutation] = &[
    Mutation {
        name: "core-settles-unconditionally",
        file: TRANSITION,
        edits: &[Edit {
            find: "    if let Some(refused) = not_owned(state, settle.token, settle.nonce, settle.now) {
        return Verdict::Refused(refused);
    }
",
            replace: "",
        }],
        why: "an owner that was fenced overwrites what came of the event (4)",
        check: CORE,
    },
    Mutation {
        name: "core-renews-without-token",
        file: TRANSITION,
        edits: &[Edit {
            find: "    if let Some(refused) = not_owned(state, renew.token, renew.nonce, renew.now) {
        return Verdict::Refused(refused);
    }
",
            replace: "",
        }],
        why: "an owner that was fenced prolongs another's lease (4)",
        check: CORE,
    },
    Mutation {
        name: "core-owner-needs-no-nonce",
        file: TRANSITION,
        edits: &[Edit {
            find: "if state.token != token || state.nonce != nonce {",
            replace: "if state.token != token || nonce != nonce {",
        }],
        why: "an owner from another life of the row has the same token (4)",
        check: CORE,
    },
    Mutation {
        name: "core-claims-without-nonce",
        file: TRANSITION,
        edits: &[Edit {
            find: "if state.status == Status::Claimed && state.nonce == claim.nonce {",
            replace: "if state.status == Status::Claimed {",
        }],
        why: "whoever claims second is told that the claim is theirs (4)",
        check: CORE,
    },
    Mutation {
        name: "core-claims-without-expiry",
        file: TRANSITION,
        edits: &[Edit {
            find: ".filter(|until| claim.now <= later(*until, claim.skew))",
            replace: ".filter(|_| false)",
        }],
        why: "an event is taken from an owner whose lease runs (4)",
        check: CORE,
    },
    Mutation {
        name: "core-claims-without-skew",
        file: TRANSITION,
        edits: &[Edit {
            find: ".filter(|until| claim.now <= later(*until, claim.skew))",
            replace: ".filter(|until| claim.now <= *until)",
        }],
        why: "an owner whose clock is behind still counts on its lease (11)",
        check: CORE,
    },
    Mutation {
        name: "core-claim-removes-the-due-time",
        file: TRANSITION,
        edits: &[Edit {
            find: "        due_at: Some(later(lease_until, claim.skew)),
        waiting_for: None,",
            replace: "        due_at: None,
        waiting_for: None,",
        }],
        why: "nobody finds the event if its owner dies (5)",
        check: CORE,
    },
    Mutation {
        name: "core-settles-before-it-sends",
        file: DRIVE,
        edits: &[
            Edit {
                find: "        let sent = self.send(loaded).await;
        join_all(sent.into_iter().map(|sent| self.settle_sent(sent))).await
",
                replace: "        let later: Vec<Outgoing> = loaded.iter().flat_map(Loaded::messages).collect();
        let sent = self.send(loaded).await;
        let driven = join_all(sent.into_iter().map(|sent| self.settle_sent(sent))).await;
        drop(self.inboxes.send(later).await);
        driven
",
            },
            Edit {
                find: "            self.inboxes.send(messages).await.into_iter()
",
                replace: "            vec![Sent::Yes; messages.len()].into_iter()
",
            },
        ],
        why: "who dies or fails between the two has recorded a message that nobody got (3)",
        check: CORE,
    },
    Mutation {
        name: "core-sends-again-what-is-recorded",
        file: DRIVE,
        edits: &[Edit {
            find: "let sent = |inbox: &&String| row.state.destinations.get(*inbox) != Some(&Sent::Yes);",
            replace: "let sent = |_: &&String| true;",
        }],
        why: "one inbox that cannot be reached makes the others get every message again (3)",
        check: CORE,
    },
    Mutation {
        name: "dynamodb-settles-unconditionally",
        file: DYNAMODB,
        edits: &[Edit {
            find: "            condition: OWNED.to_owned(),",
            replace: "            condition: format!(\"({OWNED}) OR attribute_exists(#status)\"),",
        }],
        why: "an owner that was fenced overwrites what came of the event (4)",
        check: CONTRACT,
    },
    Mutation {
        name: "dynamodb-renews-without-token",
        file: DYNAMODB,
        edits: &[Edit {
            find: "condition: format!(\"{OWNED} AND #lease_until < :until\"),",
            replace: "condition: format!(\"(({OWNED}) OR attribute_exists(#status)) AND #lease_until < :until\"),",
        }],
        why: "an owner that was fenced prolongs another's lease (4)",
        check: CONTRACT,
    },
    Mutation {
        name: "dynamodb-owner-needs-no-nonce",
        file: DYNAMODB,
        edits: &[Edit {
            find: "#token = :token AND #nonce = :nonce AND #lease_until > :now\";",
            replace: "#token = :token AND (#nonce = :nonce OR attribute_exists(#nonce)) AND #lease_until > :now\";",
        }],
        why: "an owner from another life of the row has the same token (4)",
        check: CONTRACT,
    },
    Mutation {
        name: "dynamodb-claim-keeps-the-nonce",
        file: DYNAMODB,
        edits: &[Edit {
            find: "#token = #token + :one, #nonce = :nonce,",
            replace: "#token = #token + :one, #nonce = if_not_exists(#nonce, :nonce),",
        }],
        why: "nobody can tell whose claim it is (4)",
        check: CONTRACT,
    },
    Mutation {
        name: "dynamodb-claims-without-expiry",
        file: DYNAMODB,
        edits: &[Edit {
            find: "(attribute_not_exists(#lease_until) OR #lease_until < :lapsed)",
            replace: "(attribute_exists(#lease_until) OR #lease_until < :lapsed)",
        }],
        why: "an event is taken from an owner whose lease runs (4)",
        check: CONTRACT,
    },
    Mutation {
        name: "dynamodb-claims-without-skew",
        file: DYNAMODB,
        edits: &[Edit {
            find: ".value(\":lapsed\", millis(before(claim.now, claim.skew)))",
            replace: ".value(\":lapsed\", millis(before(claim.now, SignedDuration::ZERO)))",
        }],
        why: "an owner whose clock is behind still counts on its lease (11)",
        check: CONTRACT,
    },
    Mutation {
        name: "dynamodb-claim-removes-the-due-time",
        file: DYNAMODB,
        edits: &[
            Edit {
                find: "#failures = if_not_exists(#failures, :zero) + :one, #due_shard = :due_shard, #due_at = :due_at \\
                 REMOVE #waiting_for\"",
                replace: "#failures = if_not_exists(#failures, :zero) + :one \\
                 REMOVE #waiting_for, #due_shard, #due_at\"",
            },
            Edit {
                find: "        .value(\":due_shard\", text(items::due_shard_of(pk)))
        .value(\":due_at\", millis(after(lease_until, claim.skew)))
",
                replace: "",
            },
        ],
        why: "nobody finds the event if its owner dies (5)",
        check: CONTRACT,
    },
    Mutation {
        name: "dynamodb-drives-what-other-bytes-mean",
        file: "shared/aws/src/dynamodb/admit.rs",
        edits: &[Edit {
            find: "(Outcome::Accepted(id), Some(row)) if row.event.id == *id => Some(row),",
            replace: "(Outcome::Accepted(_), Some(row)) => Some(row),",
        }],
        why: "a known delivery that comes with other bytes brings along what these mean (2)",
        check: CONTRACT,
    },
    Mutation {
        name: "webhook-answers-before-it-is-durable",
        file: "functions/webhook/src/keep.rs",
        edits: &[Edit {
            find: "return handled(Verdict::Failed, admission.event.as_ref());",
            replace: "return handled(Verdict::Accepted, admission.event.as_ref());",
        }],
        why: "GitHub is told that what nobody kept was accepted, and never sends it again (1)",
        check: WEBHOOK,
    },
    Mutation {
        name: "reaper-stops-at-poison",
        file: "functions/reaper/src/run.rs",
        edits: &[Edit {
            find: "                Some(ended) => tally.add(&self.ended(&mut under_way, ended).await),
",
            replace: "                Some(ended) => {
                    let reaped = self.ended(&mut under_way, ended).await;
                    tally.add(&reaped);
                    found_all |= matches!(reaped, Reaped::Poison { .. });
                }
",
        }],
        why: "one row that cannot be read holds up all others (5, 10)",
        check: REAPER,
    },
    Mutation {
        name: "sqs-acknowledges-what-was-not-kept",
        file: "functions/sqs/src/take.rs",
        edits: &[Edit {
            find: "            Fate::Unkept(_) => false,
",
            replace: "            Fate::Unkept(_) => true,
",
        }],
        why: "a queue forgets a message that nobody has (1)",
        check: QUEUES,
    },
    Mutation {
        name: "sqs-lets-a-group-overtake-its-head",
        file: "functions/sqs/src/take.rs",
        edits: &[Edit {
            find: "            Fate::Pending => !is_ordered(&head.message),
",
            replace: "            Fate::Pending => true,
",
        }],
        why: "what a FIFO queue kept in order arrives out of it",
        check: QUEUES,
    },
    Mutation {
        name: "poller-stores-the-validator-before-the-events",
        file: FEED_OFFER,
        edits: &[Edit {
            find: "Err(error) if matches!(error.kind(), ErrorKind::Reject | ErrorKind::Bug) => {",
            replace: "Err(error) if matches!(error.kind(), ErrorKind::Retry | ErrorKind::Fix | ErrorKind::Reject) => {",
        }],
        why: "a feed that has not changed is not read again, and what nobody kept of it is lost (6)",
        check: TURNS,
    },
    Mutation {
        name: "poller-takes-a-page-with-one-known-item-for-covered",
        file: FEED,
        edits: &[Edit {
            find: "items.iter().all(|listed| seen.contains(&listed.item.mark))",
            replace: "items.iter().any(|listed| seen.contains(&listed.item.mark))",
        }],
        why: "what comes late into the feed stands behind what was seen, and is never reached",
        check: TURNS,
    },
    Mutation {
        name: "poller-core-claims-what-is-not-due",
        file: SOURCE_ROW,
        edits: &[Edit {
            find: "    if row.due_at > claim.now {
        return SourceVerdict::Refused(SourceRefused::NotDue(row.due_at));
    }
",
            replace: "",
        }],
        why: "a feed is polled more often than it asked for",
        check: CORE,
    },
    Mutation {
        name: "poller-core-gives-back-without-nonce",
        file: SOURCE_ROW,
        edits: &[Edit {
            find: "if row.token != token || row.nonce != nonce {",
            replace: "if row.token != token || nonce != nonce {",
        }],
        why: "a poller from another life of the row has the same token (4)",
        check: CORE,
    },
    Mutation {
        name: "poller-claims-what-is-not-due",
        file: SOURCE_ROWS,
        edits: &[Edit {
            find: "#v <= :format AND #due_at <= :now AND attribute_type(#token, :n)",
            replace: "#v <= :format AND attribute_type(#token, :n)",
        }],
        why: "a feed is polled more often than it asked for",
        check: SOURCES,
    },
    Mutation {
        name: "poller-gives-back-without-token",
        file: SOURCE_ROWS,
        edits: &[Edit {
            find: "#v <= :format AND #token = :token AND #nonce = :nonce AND #lease_until > :now",
            replace: "#v <= :format AND (#token = :token OR attribute_exists(#token)) AND (#nonce = :nonce OR \
                      attribute_exists(#nonce)) AND #lease_until > :now",
        }],
        why: "a frozen poller moves the cursor back, and the claim of whoever came after it (4, 6)",
        check: SOURCES,
    },
    Mutation {
        name: "poller-gives-back-without-nonce",
        file: SOURCE_ROWS,
        edits: &[Edit {
            find: "AND #nonce = :nonce AND #lease_until > :now",
            replace: "AND (#nonce = :nonce OR attribute_exists(#nonce)) AND #lease_until > :now",
        }],
        why: "a poller from another life of the row has the same token (4)",
        check: SOURCES,
    },
    Mutation {
        name: "poller-puts-the-cursor-outside-the-transaction",
        file: SOURCE_ROWS,
        edits: &[
            Edit {
                find: "        let (Ok(update), Ok(put)) = (update, put) else {
            return Err(failed(ErrorClass::Invalid));
        };
",
                replace: "        let (Ok(update), Ok(put)) = (update, put) else {
            return Err(failed(ErrorClass::Invalid));
        };
        let apart = self.client.put_item().table_name(&self.table);
        let apart = apart.set_item(Some(put.item().clone())).send().await;
        apart.map_err(|error| ledger_error(GIVE_BACK, on, &error))?;
",
            },
            Edit {
                find: "            .transact_items(TransactWriteItem::builder().put(put).build())
",
                replace: "",
            },
        ],
        why: "whoever comes late moves the cursor although the claim is another's (6)",
        check: SOURCES,
    },
    Mutation {
        name: "poller-stops-at-a-row-that-it-cannot-read",
        file: "shared/core/src/schedule/fenced.rs",
        edits: &[Edit {
            find: "                self.run().unreadable = Some(error);
                put_off(",
            replace: "                if error.class == ErrorClass::Unreadable {
                    return Err(error);
                }
                put_off(",
        }],
        why: "one row that cannot be read holds up all sources behind it (5, 10)",
        check: UNREADABLE,
    },
];
