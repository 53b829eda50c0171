//! Odd answers: one of them costs no delivery, and one log that cannot be read costs no other anything.

use super::*;

#[tokio::test]
async fn one_hook_whose_log_always_refuses_slows_no_other_down() {
    // REDL-15, REDL-16
    for status in [403, 404, 502] {
        let (bench, log, one) = bench();
        for seconds in (0..200).rev() {
            bench.happen_ago(&comment(unreachable()), 600 + seconds);
        }
        let two = bench.add_hook(&HookTarget::Repository(APP.to_owned()));
        bend_refusals(&bench, &format!("/hooks/{two}/deliveries"), status);
        let mut got = 0;
        let mut troubled = 0;
        for _ in 0..15 {
            let round = turn(&bench).await;
            assert!(round.asked(&format!("/hooks/{one}/deliveries?")) > 0, "{status}");
            got += round.tally.counts.redeliveries;
            troubled += round.tally.failures + round.tally.misconfigured;
        }
        assert_eq!(got, 200, "{status}: twenty in each turn");
        assert_eq!(troubled, 15, "{status}: it is told each time");
        let note = bench.row(&log).note;
        assert!(note.is_some(), "{status}: and stands in the row");
    }
}
