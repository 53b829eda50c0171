//! How messages are cut into batches. What SQS answers to them is tested where its answers are scripted.

use super::*;

fn message(bytes: usize) -> Outgoing {
    Outgoing {
        inbox: "reviewer".to_owned(),
        group: "acme/app#12".to_owned(),
        deduplication: "d".to_owned(),
        body: "x".repeat(bytes),
        reference: "reference".to_owned(),
    }
}

/// How many messages each batch has, with where each message goes kept in order.
fn cut(sizes: &[usize]) -> Vec<Vec<usize>> {
    let placed = sizes.iter().enumerate().map(|(position, bytes)| Placed {
        position,
        message: message(*bytes),
    });
    let batches = batches(placed.collect());
    let positions: Vec<usize> = batches.iter().flatten().map(|(position, ..)| *position).collect();
    assert_eq!(
        positions,
        (0..sizes.len()).collect::<Vec<_>>(),
        "every message, in order"
    );
    batches
        .iter()
        .map(|batch| batch.iter().map(|(_, body, _)| body.len()).collect())
        .collect()
}

fn counts(sizes: &[usize]) -> Vec<usize> {
    cut(sizes).iter().map(Vec::len).collect()
}

#[test]
fn a_batch_has_at_most_ten_messages() {
    assert_eq!(counts(&[]), Vec::<usize>::new());
    assert_eq!(counts(&[1]), [1]);
    assert_eq!(counts(&[1; 10]), [10]);
    assert_eq!(counts(&[1; 11]), [10, 1]);
    assert_eq!(counts(&[1; 25]), [10, 10, 5]);
}

#[test]
fn a_batch_has_at_most_a_mebibyte_attributes_included() {
    let half = MESSAGE_BYTES_MAX / 2 - ATTRIBUTE_BYTES;
    assert_eq!(counts(&[half, half]), [2]);
    assert_eq!(counts(&[half, half + 1]), [1, 1]);
    assert_eq!(counts(&[half, half, 1]), [2, 1]);
    let whole = MESSAGE_BYTES_MAX - ATTRIBUTE_BYTES;
    assert_eq!(cut(&[whole, 1]), [vec![whole], vec![1]]);
    // What is small after something large begins a batch anew, and fills it.
    assert_eq!(counts(&[whole, 1, 1, 1]), [1, 3]);
}

#[test]
fn what_is_larger_than_a_message_may_be_goes_as_its_reference() {
    // SIZE-05
    let whole = MESSAGE_BYTES_MAX - ATTRIBUTE_BYTES;
    let reference = "reference".len();
    assert_eq!(cut(&[whole]), [vec![whole]]);
    assert_eq!(cut(&[whole + 1]), [vec![reference]]);
    assert_eq!(
        cut(&[1_100_000, 5, 2_000_000]),
        [vec![reference, 5, reference]],
        "with others, in one batch"
    );
}

#[test]
fn sizes_are_in_bytes_and_not_in_characters() {
    let rockets = "🚀".repeat(MESSAGE_BYTES_MAX / 4);
    let placed = Placed {
        position: 0,
        message: Outgoing {
            body: rockets,
            ..message(0)
        },
    };
    let batches = batches(vec![placed]);
    assert_eq!(batches[0][0].1, "reference");
}

#[test]
fn only_what_is_wrong_with_the_message_itself_counts_against_it() {
    // BRKR-03
    let check = |expected, classes: &[ErrorClass]| {
        for class in classes {
            assert_eq!(of_class(*class), expected, "{class:?}");
        }
    };
    check(Sent::Throttled, &[ErrorClass::Throttled]);
    check(Sent::Denied, &[ErrorClass::Denied, ErrorClass::NotFound]);
    check(
        Sent::Unreachable,
        &[
            ErrorClass::Conflict,
            ErrorClass::TimedOut,
            ErrorClass::Unreachable,
            ErrorClass::ServerFault,
        ],
    );
    check(
        Sent::Rejected,
        &[ErrorClass::TooLarge, ErrorClass::Invalid, ErrorClass::Unreadable],
    );
}
