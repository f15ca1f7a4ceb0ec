//! The core behind a plain C ABI: wasm without imports, for wasmtime and any other runtime.
//!
//! The host keeps the states and tells the time; the guest decides. Both read and write one buffer
//! of 64-bit words in the guest's memory, at [`tidegate_buffer`]:
//!
//! 1. write each limit of a policy as a number of words and so many words (`Limit::parameters`), and
//!    call [`tidegate_policy`] with the number of all those words: a handle;
//! 2. write a key's state, all zero if it was never seen, and call [`tidegate_decide`]: the answer,
//!    with the new state in the buffer, and behind it limit, remaining, retry after and reset
//!    after (spans in µs).
//!
//! Whatever else can be asked of a key goes through [`tidegate_operate`].

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_gate::{
    Allowance, Decision, Limits, Operation, OperationError, Policy, Probability, Request, Timestamp,
};

/// How many words the buffer has: room for the largest state of one limit, and for one of each
/// other.
const WORDS: usize = 65_536;
/// The most policies that are remembered.
const MAX_POLICIES: usize = 1_024;

/// [`tidegate_decide`]: the request may pass.
pub const ALLOWED: i32 = 0;
/// [`tidegate_decide`]: it must not.
pub const DENIED: i32 = 1;
/// [`tidegate_decide`]: the limits can never grant its cost.
pub const COST_EXCEEDS_CAPACITY: i32 = 2;
/// [`tidegate_decide`]: a limit holds leases; [`tidegate_operate`] can name one.
pub const NEEDS_LEASE: i32 = 3;
/// Any call: the arguments or the words in the buffer make no sense. Nothing was done.
pub const INVALID: i32 = -1;

/// Atomics, because somebody else writes here between calls; in wasm they are plain loads and
/// stores.
static BUFFER: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

thread_local! {
    static POLICIES: RefCell<Vec<Limits>> = const { RefCell::new(Vec::new()) };
}

/// Where the buffer is: 65,536 words, little endian.
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_buffer() -> *const AtomicU64 {
    BUFFER.as_ptr()
}

/// Remembers a policy of the limits in the buffer, that many words together. A handle, or
/// [`INVALID`].
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_policy(words: u32) -> i32 {
    policy(words).unwrap_or(INVALID)
}

/// How many words a state of the policy has, or [`INVALID`].
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_words(policy: i32) -> i32 {
    with_policy(policy, |policy| i32::try_from(policy.words()).ok()).unwrap_or(INVALID)
}

/// Decides on the state in the buffer. [`ALLOWED`], [`DENIED`], [`COST_EXCEEDS_CAPACITY`],
/// [`NEEDS_LEASE`] or [`INVALID`].
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_decide(policy: i32, now_us: u64, cost: u64) -> i32 {
    with_policy(policy, |policy| decide(policy, Timestamp(now_us), cost)).unwrap_or(INVALID)
}

/// Does what is asked in the so many words behind the state in the buffer (`Operation::to_words`).
/// Answers as [`tidegate_decide`], and behind the four numbers leaves five more: whether the lease it
/// is about was live (0, 1, or 2 if it is about none), the fraction to refuse in units of 2^-32
/// (`u64::MAX` if there is none), and the units to spend without asking, when they were granted and
/// when they end.
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
    words.push(verdict.live.map_or(2, u64::from));
    words.push(verdict.factor.map_or(u64::MAX, Probability::units));
    let Allowance { left, granted_at, expires_at } = verdict.allowance.unwrap_or_default();
    words.extend([left, granted_at.0, expires_at.0]);
    write(&words);
    Some(told(&verdict.decision))
}

/// The state in the buffer, if it can be one of these limits. Each by itself: those that count by other
/// parts of the key were written at other times.
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

    /// One test: the buffer is shared by all threads.
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
        let settle = Operation::from_words(&[2, 7, 2, 1]).unwrap();
        write(&[&[2_000_000, 7], &settle.to_words()[..]].concat());
        assert_eq!(tidegate_operate(policy, 7, 4), ALLOWED);
        assert_eq!(read(11), Some(vec![1_000_000, 7, 2, 1, 0, 333_334, 2, u64::MAX, 0, 0, 0]));
        assert_eq!(tidegate_operate(policy, 7, 3), INVALID, "no such operation");
        let one_lease_of_a_second = [4, 6, 1, 1_000_000, 1];
        write(&one_lease_of_a_second);
        let leases = tidegate_policy(5);
        write(&vec![0; usize::try_from(tidegate_words(leases)).unwrap()]);
        assert_eq!(tidegate_decide(leases, 7, 1), NEEDS_LEASE, "no lease is not lease 0");
        assert_eq!(tidegate_decide(leases, 7, 0), ALLOWED, "a peek needs none");
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
