//! Every fault at every outside call of every way through the system, under a clock that takes no time.

use forebay_tests::exhaust::{Clock, Pace, paths, run};
use tokio::runtime::{Builder, Runtime};

fn paused() -> Runtime {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without input or output")
}

#[test]
fn whatever_fails_at_whichever_call_nothing_is_lost_and_every_invariant_holds() {
    let pace = Pace {
        runtime: paused,
        clock: Clock::Paused,
        threads: 2,
        at_once: 1,
    };
    let report = run(&paths(), None, pace);
    assert!(report.holds(), "cargo run --bin faults\n{report}");
    assert!(report.rows.iter().all(|(_, row)| row.combinations > 0), "{report}");
}
