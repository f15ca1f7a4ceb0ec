//! Naive shedders that remember every call and replay all calls for each answer.

pub mod reporter;
pub mod suppression;
pub mod utilization;

/// The largest k ≤ 2^32 with k / 2^32 ≤ part / whole, found by search. 0 if `part` is negative.
fn probability(part: i128, whole: i128) -> u64 {
    let fits = |k: u64| i128::from(k) * whole <= part << 32;
    if part <= 0 {
        return 0;
    }
    let (mut yes, mut no) = (0, (1 << 32) + 1);
    while no - yes > 1 {
        let middle = u64::midpoint(yes, no);
        if fits(middle) { yes = middle } else { no = middle }
    }
    yes
}
