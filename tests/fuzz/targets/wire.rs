//! Reads any bytes as a question and as a reply. A question that is read gets one reply, and the same one if it comes
//! again, which then changes nothing. A reply answers all operations of its question or none of them.

#![no_main]

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tidegate_gate::{Id, Micros, Operation, Policies, Resolved, Timestamp, fnv1a};
use tidegate_tier::authority::{self, Authority, SwapEntry, SwapOutcome};
use tidegate_tier::wire::{AuthorityOptions, Inbox, NodeOptions, Outbox, Outgoing, Place};

static POLICIES: LazyLock<Policies> =
    LazyLock::new(|| Policies::parse(include_str!("../policies.toml")).unwrap());

const NODE: Id = Id([1, 2]);

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    kind: u8,
    /// Whether to write the name of a policy, and a key of which it decides.
    policy: Option<u8>,
    now: u32,
    bytes: &'a [u8],
}

impl Input<'_> {
    /// A message with the right head and checksum, which chance would never find.
    fn message(&self) -> Vec<u8> {
        let head = [NODE.0[0], NODE.0[1], 0].into_iter().flat_map(u64::to_le_bytes);
        let mut message: Vec<u8> = [1, self.kind].into_iter().chain(head).collect();
        if let Some(policy) = self.policy {
            let policies = POLICIES.all();
            let policy = policies[usize::from(policy) % policies.len()].name();
            message.push(u8::try_from(policy.len()).unwrap());
            message.extend(policy.bytes());
            message.extend([3, b'a', b'/', b'b']);
        }
        message.extend(self.bytes);
        let checksum = fnv1a(message.iter().copied());
        message.extend(checksum.to_le_bytes());
        message
    }
}

fuzz_target!(|input: Input<'_>| {
    for message in [input.message().as_slice(), input.bytes] {
        question(message, Timestamp(input.now.into()));
        reply(message);
    }
});

fn question(message: &[u8], now: Timestamp) {
    let mut inbox = Inbox::new(AuthorityOptions::default());
    let mut authority: Authority<Place, String> = Authority::new(authority::Options::default());
    let mut store = HashMap::new();
    let mut answers: Vec<(u8, Arc<[u8]>)> = Vec::new();
    let mut stored = Vec::new();
    for copy in 0..3 {
        let times = (now, Micros(0));
        let handled = inbox.handle_question((copy, message), &POLICIES, times, &mut authority);
        if let Err((to, error)) = handled {
            assert!(to == copy && !error.to_string().is_empty() && answers.is_empty());
            return;
        }
        if copy > 0 {
            decide(&mut authority, &mut store, now);
        }
        while let Some(reply) = inbox.poll_reply(Micros(0), &mut authority) {
            answers.push(reply);
        }
        stored.push(store.clone());
    }
    // the second copy has come before the authority has decided, or after
    answers.sort_unstable_by_key(|(copy, _)| *copy);
    assert!(answers.iter().map(|(copy, _)| *copy).eq(0..3));
    assert!(answers.iter().all(|(_, reply)| *reply == answers[0].1));
    assert_eq!(stored[1], stored[2]);
}

/// Decides what waits, and stores it.
fn decide(
    authority: &mut Authority<Place, String>,
    store: &mut HashMap<String, Vec<u8>>,
    now: Timestamp,
) {
    let times = (Some(now), Micros(0));
    while let Some(swap) = authority.poll_swap(times, |_| false) {
        for partition in 0..swap.len() {
            for SwapEntry { name, becomes, .. } in authority.records(&swap, partition) {
                store.extend(becomes.map(|bytes| (name.to_owned(), bytes.to_owned())));
            }
        }
        let outcomes = vec![SwapOutcome::Swapped; swap.len()];
        authority.handle(swap, outcomes, times);
    }
}

fn reply(message: &[u8]) {
    let mut outbox = Outbox::new(NodeOptions { node: NODE, ..NodeOptions::default() });
    let resolved = Resolved::new(&POLICIES.all()[0], "a/b").unwrap();
    for token in 0..2 {
        let (resolved, operation) = (resolved.clone(), Operation::from(1));
        outbox.ask(Outgoing { resolved, operation, now: None, at: Micros(0), token });
    }
    assert_eq!(outbox.poll_transmit(Micros(0)).map(|question| question.number), Some(0));
    let handled = outbox.handle_reply(message, Micros(0));
    let answers: Vec<u8> =
        std::iter::from_fn(|| outbox.poll_answer()).map(|answer| answer.asked.token).collect();
    match handled {
        Ok(()) => assert_eq!((answers, outbox.waiting()), (vec![0, 1], 0)),
        Err(ignored) => {
            assert!(!ignored.to_string().is_empty());
            assert_eq!((answers, outbox.waiting()), (vec![], 2));
        }
    }
}
