//! The limiters behind a plain C ABI, as wasm without imports, for wasmtime and other runtimes.
//!
//! The host keeps the states and passes the time. The guest decides. Both read and write one buffer
//! of 64-bit words in the guest's memory, at [`tidegate_buffer`]:
//!
//! 1. The host writes each limit of a policy: the number of its words, and then these words
//!    (`Limit::parameters`; for a limit in shadow 200 comes before them). It calls [`tidegate_policy`] with the number of all words written,
//!    which returns a handle.
//! 2. The host writes the state of a key, which is all zero for a key never seen, and calls
//!    [`tidegate_decide`], which returns the answer. The buffer then holds the new state, followed
//!    by limit, remaining, retry after and reset after. Spans are in µs.
//!
//! All other operations on a key go through [`tidegate_operate`].

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_gate::{
    Decision, Limits, Operation, OperationError, Policy, Probability, Request, Timestamp,
};

/// The number of words of the buffer. It has room for the largest state of one limit, and for a
/// state of each other limit.
const WORDS: usize = 65_536;
/// The most policies that the guest remembers.
const MAX_POLICIES: usize = 1_024;

/// Answer of [`tidegate_decide`]: the request may pass.
pub const ALLOWED: i32 = 0;
/// Answer of [`tidegate_decide`]: the request must not pass.
pub const DENIED: i32 = 1;
/// Answer of [`tidegate_decide`]: the limits can never grant the cost of the request.
pub const COST_EXCEEDS_CAPACITY: i32 = 2;
/// Answer of [`tidegate_decide`]: a limit holds leases, so the operation must name a lease. Use
/// [`tidegate_operate`].
pub const NEEDS_LEASE: i32 = 3;
/// Answer of any call: the arguments or the words in the buffer are invalid. Nothing was done.
pub const INVALID: i32 = -1;

/// The words are atomics because the host writes them between calls. In wasm they are plain loads
/// and stores.
static BUFFER: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

thread_local! {
    static POLICIES: RefCell<Vec<Limits>> = const { RefCell::new(Vec::new()) };
}

/// Returns the address of the buffer, which has 65,536 little-endian words.
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_buffer() -> *const AtomicU64 {
    BUFFER.as_ptr()
}

/// Remembers the policy whose limits are the first `words` words of the buffer. Returns its handle,
/// or [`INVALID`].
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_policy(words: u32) -> i32 {
    policy(words).unwrap_or(INVALID)
}

/// Returns the number of words of a state of the policy, or [`INVALID`].
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_words(policy: i32) -> i32 {
    with_policy(policy, |policy| i32::try_from(policy.words()).ok()).unwrap_or(INVALID)
}

/// Decides on a request of `cost` with the state in the buffer. Returns [`ALLOWED`], [`DENIED`],
/// [`COST_EXCEEDS_CAPACITY`], [`NEEDS_LEASE`] or [`INVALID`].
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_decide(policy: i32, now_us: u64, cost: u64) -> i32 {
    with_policy(policy, |policy| decide(policy, Timestamp(now_us), cost)).unwrap_or(INVALID)
}

/// Does the operation in the `words` words behind the state in the buffer (`Operation::to_words`).
/// Returns the answers of [`tidegate_decide`]. Behind the state and its four numbers it writes more
/// numbers:
///
/// 1. what the operation did beside deciding: the kind of an `Effect`;
/// 2. the fraction to refuse in units of 2^-32, or `u64::MAX` if the operation has none;
/// 3. to 5. what the kind says (`Effect::to_numbers`);
/// 6. and the following: for each limit [`ALLOWED`] or [`DENIED`], and its four numbers.
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_operate(policy: i32, now_us: u64, words: u32) -> i32 {
    with_policy(policy, |limits| operate(limits, Timestamp(now_us), usize::try_from(words).ok()?))
        .unwrap_or(INVALID)
}

fn policy(words: u32) -> Option<i32> {
    let parameters = read(usize::try_from(words).ok()?)?;
    let limits = Policy::of_parameters(&parameters).ok()?.limits().clone();
    POLICIES.with_borrow_mut(|policies| {
        if policies.len() >= MAX_POLICIES {
            return None;
        }
        policies.push(limits);
        i32::try_from(policies.len() - 1).ok()
    })
}

fn decide(limits: &Limits, now: Timestamp, cost: u64) -> Option<i32> {
    let mut words = state(limits)?;
    let decision = match limits.decide(&mut words, now, &Request::of(cost)) {
        Ok(decision) => decision,
        Err(error) => return why_not(error),
    };
    words.extend(numbers(&decision));
    write(&words);
    Some(told(&decision))
}

fn operate(limits: &Limits, now: Timestamp, length: usize) -> Option<i32> {
    let mut words = state(limits)?;
    let all = read(words.len().checked_add(length)?)?;
    let operation = Operation::from_words(all.get(words.len()..)?)?;
    let verdict = match limits.operate(&mut words, now, &operation) {
        Ok(verdict) => verdict,
        Err(error) => return why_not(error),
    };
    words.extend(numbers(&verdict.decision));
    let (kind, effect) = verdict.effect.to_numbers();
    words.extend([kind.into(), verdict.factor.map_or(u64::MAX, Probability::units)]);
    words.extend(effect);
    for said in &verdict.limits {
        words.push(u64::from(!said.is_allowed()));
        words.extend(numbers(said));
    }
    write(&words);
    Some(told(&verdict.decision))
}

/// The state in the buffer, if these limits accept it. Each limit checks its own words: limits that
/// count by different parts of the key were written at different times.
fn state(limits: &Limits) -> Option<Vec<u64>> {
    let words = read(limits.words())?;
    let mut rest = words.as_slice();
    for each in limits.iter() {
        let (own, after) = rest.split_at_checked(each.limit.words())?;
        each.limit.accepts(own).ok()?;
        rest = after;
    }
    Some(words)
}

fn numbers(decision: &Decision) -> [u64; 4] {
    let (retry_after, reset_after) = (decision.retry_after().0, decision.reset_after().0);
    [decision.limit(), decision.remaining(), retry_after, reset_after]
}

const fn told(decision: &Decision) -> i32 {
    if decision.is_allowed() { ALLOWED } else { DENIED }
}

const fn why_not(error: OperationError) -> Option<i32> {
    match error {
        OperationError::Cost(_) => Some(COST_EXCEEDS_CAPACITY),
        OperationError::NeedsLease => Some(NEEDS_LEASE),
        _ => None,
    }
}

fn write(words: &[u64]) {
    for (slot, word) in BUFFER.iter().zip(words) {
        slot.store(*word, Ordering::Relaxed);
    }
}

fn with_policy(handle: i32, of: impl FnOnce(&Limits) -> Option<i32>) -> Option<i32> {
    let handle = usize::try_from(handle).ok()?;
    POLICIES.with_borrow(|policies| of(policies.get(handle)?))
}

fn read(words: usize) -> Option<Vec<u64>> {
    Some(BUFFER.get(..words)?.iter().map(|word| word.load(Ordering::Relaxed)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All checks are in one test because all threads share the buffer.
    #[test]
    fn decides_and_refuses_what_makes_no_sense() {
        let two_at_three_per_second = [5, 1, 2, 3, 1_000_000, 0];
        write(&two_at_three_per_second);
        let policy = tidegate_policy(6);
        assert_eq!((policy, tidegate_words(policy)), (0, 2));
        write(&[0, 0]);
        assert_eq!(tidegate_decide(policy, 7, 2), ALLOWED);
        assert_eq!(read(6), Some(vec![2_000_000, 7, 2, 0, 0, 666_667]));
        assert_eq!(tidegate_decide(policy, 7, 1), DENIED);
        assert_eq!(read(6), Some(vec![2_000_000, 7, 2, 0, 333_334, 666_667]));
        assert_eq!(tidegate_decide(policy, 7, 3), COST_EXCEEDS_CAPACITY);
        write(&[4_000_001, 7]);
        assert_eq!(tidegate_decide(policy, 7, 1), INVALID, "more than the deepest debt");
        let refund = Operation::from_words(&[2, 7, 2, 1]).unwrap();
        write(&[&[2_000_000, 7], &refund.to_words()[..]].concat());
        assert_eq!(tidegate_operate(policy, 7, 4), ALLOWED);
        assert_eq!(
            read(16),
            Some(vec![1_000_000, 7, 2, 1, 0, 333_334, 0, u64::MAX, 0, 0, 0, 0, 2, 1, 0, 333_334])
        );
        assert_eq!(tidegate_operate(policy, 7, 3), INVALID, "no such operation");
        let one_lease_of_a_second = [4, 6, 1, 1_000_000, 1];
        write(&one_lease_of_a_second);
        let leases = tidegate_policy(5);
        write(&vec![0; usize::try_from(tidegate_words(leases)).unwrap()]);
        assert_eq!(
            tidegate_decide(leases, 7, 1),
            NEEDS_LEASE,
            "an operation without a lease does not get lease 0"
        );
        assert_eq!(tidegate_decide(leases, 7, 0), ALLOWED, "a peek needs no lease");
        for handle in [-1, 2, i32::MAX] {
            assert_eq!(tidegate_decide(handle, 7, 1), INVALID);
            assert_eq!(tidegate_words(handle), INVALID);
        }
        write(&two_at_three_per_second.repeat(17));
        for words in [0, 5, 7, 6 * 17, 65_537, u32::MAX] {
            assert_eq!(tidegate_policy(words), INVALID, "{words}");
        }
        assert_eq!(tidegate_policy(6 * 16), 2);
        for invalid in [[1, 99], [0, 0], [1, 1], [u64::MAX, 1]] {
            write(&invalid);
            assert_eq!(tidegate_policy(2), INVALID, "no such limit");
        }
    }
}
