use super::*;

#[test]
fn a_clock_that_steps_never_blocks_for_longer_than_the_span_and_the_longer_period() {
    let block = Block::new(Timestamp(1_000), Micros(100));
    for (now, left_in_10, left_in_200, is_over) in [
        (0, None, None, false), // the clock may come back
        (799, None, None, false),
        (800, None, Some(300), false),
        (899, None, Some(201), false),
        (900, Some(200), Some(200), false),
        (1_000, Some(100), Some(100), false),
        (1_099, Some(1), Some(1), false),
        (1_100, None, None, true),
        (u64::MAX, None, None, true),
    ] {
        let left = |period| block.retry_after(Timestamp(now), Micros(period)).map(|left| left.0);
        assert_eq!((left(10), left(200)), (left_in_10, left_in_200), "at {now}");
        assert_eq!(block.left(Timestamp(now)) == Micros::ZERO, is_over, "at {now}");
    }
}

#[test]
fn extreme_times_and_spans_are_no_panic() {
    for from in [0, 1, u64::MAX] {
        for span in [0, 1, u64::MAX] {
            let block = Block::new(Timestamp(from), Micros(span));
            for now in [0, 1, u64::MAX] {
                let left = block.retry_after(Timestamp(now), Micros(span)).unwrap_or_default();
                assert!(left <= Micros::MAX);
            }
        }
    }
}

#[test]
fn a_state_is_read_as_it_was_written_or_refused() {
    for (from, span) in [(7, 9), (0, 1), (u64::MAX, Micros::MAX.0), (7, u64::MAX)] {
        let block = Block::new(Timestamp(from), Micros(span));
        assert_eq!(block.to_words(), [from, span.min(Micros::MAX.0)]);
        assert_eq!(Block::from_words(block.to_words()), Ok(block));
    }
    for span in [0, Micros::MAX.0 + 1, u64::MAX] {
        assert_eq!(Block::from_words([7, span]), Err(InvalidState));
    }
}
