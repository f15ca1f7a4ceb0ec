//! The bound of a table, measured by the allocator.
#![expect(unsafe_code, reason = "an allocator")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tidegate_core::lease::Id;
use tidegate_gate::{KeyHasher, Operation, Policy, Request, Table, TableError, Timestamp};

/// What this thread has allocated, the most that it was, and where allocating ends.
struct Counting;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
    static END: Cell<usize> = const { Cell::new(usize::MAX) };
}

// SAFETY: passes on what it is asked, or refuses it
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.get().saturating_add(layout.size());
        // small ones come from what WebAssembly keeps back for them
        if held > END.get() && layout.size() > 8_192 {
            return std::ptr::null_mut();
        }
        HELD.set(held);
        MOST.set(MOST.get().max(held));
        // SAFETY: as asked
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.set(HELD.get().saturating_sub(layout.size()));
        // SAFETY: as asked
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const MIB: usize = 1 << 20;

fn policy(limits: &str) -> Policy {
    Policy::parse("p", &format!("limits = [{limits}]")).unwrap()
}

/// From one state that is inline to one of 185 KB, and several states for one key.
const POLICIES: [&str; 5] = [
    "{ algorithm = 'token_bucket', capacity = 5, rate = '1/h' }",
    "{ algorithm = 'concurrency', capacity = 4096, time_to_live = '1h' }",
    "{ algorithm = 'sliding_log', rates = ['600/h'] }",
    "{ algorithm = 'token_bucket', capacity = 50, rate = '1/h' }, \
     { algorithm = 'budget', most = 10, time = '1h' }",
    "{ name = 'a', algorithm = 'sliding_log', rates = ['60/h'] }, \
     { name = 'b', depth = 1, algorithm = 'concurrency', capacity = 100, time_to_live = '1h' }",
];

fn acquire(table: &mut Table, policy: &Policy, key: &str, at: u64) -> Result<bool, TableError> {
    let lease = Some(Id([1, 1]));
    let request = Operation::from(Request { lease, ..Request::of(1) });
    let verdict = table.operate(policy, key, Timestamp(at), request)?;
    Ok(verdict.decision.is_allowed())
}

/// Short and long keys, until one is refused.
fn fill(table: &mut Table, policy: &Policy, prefix: &str, at: u64) -> usize {
    let key = |count| match count % 3 {
        0 => format!("{prefix}{count:0300}/user"),
        1 => format!("{prefix}{count}/user of the organisation"),
        _ => format!("{prefix}{count}"),
    };
    (0..4_000_000).find(|count| acquire(table, policy, &key(*count), at).is_err()).unwrap()
}

#[test]
fn a_table_allocates_no_more_than_its_bound_at_any_moment() {
    for limits in POLICIES {
        let policy = policy(limits);
        let least = Table::least_bytes(&policy);
        for max_bytes in [least, least + MIB, 3 * MIB, least + 8 * MIB] {
            let before = HELD.get();
            MOST.set(before);
            let mut table = Table::new(max_bytes, KeyHasher::new(1));
            let count = fill(&mut table, &policy, "", 0);
            assert!(count > 0, "{limits}: {max_bytes}");
            assert!(HELD.get() - before <= table.bytes(), "{limits}: it takes what it says");
            assert!(table.bytes() <= max_bytes, "{limits}: {}", table.bytes());
            // a decision copies the state that it is about, and a verdict has a few words
            let copy = policy.limits().words() * 8 + 4_096;
            let most = MOST.get() - before;
            assert!(most <= max_bytes + copy, "{limits}: {most} of {max_bytes}");

            // an hour later all have expired, and as many find room again
            let again = fill(&mut table, &policy, "again-", 3_600_000_000 * 60);
            assert!(again + 1 >= count, "{limits}: {again} of {count} keys");
            assert!(MOST.get() - before <= max_bytes + copy, "{limits}");
        }
    }
}

#[test]
fn an_allocator_that_has_no_more_is_a_full_table() {
    for limits in POLICIES {
        let policy = policy(limits);
        for bytes in [MIB, 3 * MIB] {
            END.set(HELD.get() + bytes);
            let mut table = Table::new(usize::MAX, KeyHasher::new(1));
            let count = fill(&mut table, &policy, "", 0);
            let known = (0..5).map(|_| acquire(&mut table, &policy, "2", 0));
            let known: Result<Vec<_>, _> = known.collect();
            END.set(usize::MAX);
            assert!(count > 2 && known.is_ok(), "{limits}: {count} keys, then {known:?}");
        }
    }
}

#[test]
fn what_has_expired_gives_its_memory_back() {
    let policy = policy(POLICIES[2]);
    for bytes in [3 * MIB, 12 * MIB] {
        let mut table = Table::new(bytes, KeyHasher::new(1));
        let before = HELD.get();
        fill(&mut table, &policy, "", 0);
        assert!(table.bytes() > bytes / 3 * 2);
        table.sweep(Timestamp(3_600_000_000 * 60));
        assert_eq!((table.len(), table.bytes(), HELD.get()), (0, 0, before));
    }
}
