//! Mutations of what nodes do by themselves, and of the operations on a key.

use super::Mutation;

const CACHE: &str = "crates/tier/src/cache.rs";
const ENTRY: &str = "crates/tier/src/cache/entry.rs";
const HELD: &str = "crates/tier/src/cache/held.rs";
const REFUSALS: &str = "crates/tier/src/cache/refusals.rs";
const REPORTS: &str = "crates/tier/src/cache/reports.rs";
const OUTBOX: &str = "crates/tier/src/wire/outbox.rs";
const NODE: &str = "crates/tier/src/node.rs";
const BLOCK: &str = "crates/gate/src/state/key_state.rs";
const DECIDE: &str = "crates/gate/src/decide/operate.rs";
const CONNECTIONS: &str = "crates/gate/src/limit/connections.rs";

#[rustfmt::skip]
pub(super) const MUTATIONS: [Mutation; 28] = [
    ("a unit is spent twice", HELD,
        "        self.allowance.left = left;\n", ""),
    ("a budget does not expire at the node", HELD,
        "if at < self.sent || at >= self.until {", "if at < self.sent {"),
    ("the time of a budget counts from its arrival", HELD,
        "Micros(sent.0.saturating_add(time.0))", "Micros(arrived.0.saturating_add(time.0))"),
    ("units go back and are spent nevertheless", HELD,
        "let last = self.lease.take();", "let last = self.lease.as_ref();"),
    ("units outlive a block by this node", ENTRY,
        "            units.forget(at);", "            let _ = units;"),
    ("units that are under way at a block are taken", HELD,
        "(self.lease, self.sent) = (None, None);", "self.lease = None;"),
    ("a refusal outlives whatever gives units back", ENTRY,
        "        self.refusals.clear();\n", ""),
    ("a refusal outlives a refund by this node", ENTRY,
        "            | Operation::Report(_)\n", "            | Operation::Report(_)\n            | Operation::Refund(_)\n"),
    ("a refusal that is older than a refund is remembered", ENTRY,
        "if self.relaxed.is_none_or(|relaxed| relaxed < refusal.sent()) {", "if true || self.relaxed.is_none_or(|relaxed| relaxed < refusal.sent()) {"),
    ("a key that is forgotten leaves no time of its refunds", CACHE,
        "            *relaxed = (*relaxed).max(entry.relaxed());\n", "            let _ = (&relaxed, entry.relaxed());\n"),
    ("the time of a refusal counts from its arrival", REFUSALS,
        "Micros(sent.0.saturating_add(span.0))", "Micros(heard.at.0.saturating_add(span.0))"),
    ("a refusal is remembered for as long as it lasts", REFUSALS,
        "let until = passes.min(after(remember));", "let until = passes.max(after(Micros::ZERO.min(remember)));"),
    ("a refusal for want of places is remembered", REFUSALS,
        "said.is_allowed() || named.shadow || named.limit.kind() == Kind::Rate", "said.is_allowed() || matches!(named.limit.kind(), Kind::Rate | Kind::Lease)"),
    ("a refusal holds for lower costs", REFUSALS,
        "refusal.cost <= cost && at < refusal.until", "(refusal.cost <= cost || true) && at < refusal.until"),
    ("a block is forgotten", BLOCK,
        "*block = Some(Block::new(taken, *span));", "*block = block.filter(|_| span.0 > 0);"),
    ("a reset leaves the key blocked", BLOCK,
        "Operation::Reset(_) => *block = None,", "Operation::Reset(_) => {}"),
    ("the holder of a blocked key gets units", BLOCK,
        "Budget { wants: 0, ..*budget }", "Budget { wants: budget.wants, ..*budget }"),
    ("a report counts twice", DECIDE,
        "            limit.report(words, now, report);\n", "            limit.report(words, now, report);\n            limit.report(words, now, report);\n"),
    ("units that a holder returns come back twice", DECIDE,
        "                    limit.refund(words, now, refundable);\n", "                    limit.refund(words, now, refundable);\n                    limit.refund(words, now, refundable);\n"),
    ("the units of a holder are taken out of no limit", DECIDE,
        "            if limit.kind() == Kind::Rate {\n                let _ = limit.decide", "            if limit.kind() == Kind::Lease {\n                let _ = limit.decide"),
    ("a reset leaves the limits of its own depth", DECIDE,
        "if record.depth() >= depth {", "if record.depth() > depth {"),
    ("a connection that closes stays open", CONNECTIONS,
        "self.close(state, now, owner, 1)", "self.close(state, now, owner, 0)"),
    ("a reset leaves what is to be reported", REPORTS,
        "                    reporter.forget_units();\n", ""),
    ("an operation waits for its question for ever", OUTBOX,
        "take_while(|asked| too_late(asked)).count();", "take_while(|asked| false && too_late(asked)).count();"),
    ("a node waits for a reply for ever", OUTBOX,
        "            && is_over(flight.sent, at, self.options.deadline)\n", "            && false && is_over(flight.sent, at, self.options.deadline)\n"),
    ("a node asks for itself before it asks for its caller", NODE,
        "        if step.answer.is_none() {
            self.outbox.ask(asked);
        }
        step.own.into_iter().for_each(|own| self.ask_for(own, at));
",
        "        step.own.into_iter().for_each(|own| self.ask_for(own, at));
        if step.answer.is_none() {
            self.outbox.ask(asked);
        }
"),
    ("a node asks for what it has answered", NODE,
        "        if step.answer.is_none() {", "        if true {"),
    ("a node hears of no answer", NODE,
        "            self.cache.handle_verdict(&heard);", "            let _ = heard;"),
];
