//! Mutations of reservations.

use super::Mutation;

const KEY: &str = "crates/core/src/hold/key.rs";
const RESERVABLE: &str = "crates/core/src/hold/reservable.rs";
const LIST: &str = "crates/core/src/hold/list.rs";
const BUCKET: &str = "crates/core/src/bucket/holds.rs";
const FIXED: &str = "crates/core/src/window/fixed.rs";
const HOLD: &str = "crates/core/src/hold/mod.rs";
const HOLDING: &str = "crates/gate/src/limit/holding.rs";
const DECIDE: &str = "crates/gate/src/decide/reservations.rs";
const ENTRY: &str = "crates/tier/src/cache/entry.rs";
const CACHE: &str = "crates/tier/src/cache.rs";

#[rustfmt::skip]
pub(super) const MUTATIONS: [Mutation; 24] = [
    ("a commit is taken twice", KEY,
        "if let Some(Outcome { charged, late, is_final: true }) = ended {", "if false && let Some(Outcome { charged, late, is_final: true }) = ended {"),
    ("a commit charges the estimate", KEY,
        "            self.settle(place, actual);\n            Outcome", "            self.settle(place, self.holds.get(place).units);\n            Outcome"),
    ("a commit that comes late charges nothing", KEY,
        "            self.limiter.charge(self.words, self.newest(), due);\n            self.took(due);\n            self.holds", "            self.took(due);\n            self.holds"),
    ("a commit that comes late charges again what stayed charged", KEY,
        "let due = actual.saturating_sub(charged);", "let due = actual;"),
    ("a reservation that has expired is not released", KEY,
        "OnExpiry::Release => 0,", "OnExpiry::Release => units,"),
    ("a reservation that is to stay charged is released", KEY,
        "OnExpiry::Charge => units,", "OnExpiry::Charge => 0,"),
    ("a reservation never ends", KEY,
        "        if self.holds.is_due(taken) {\n            self.expire(taken);\n        }\n", ""),
    ("a commit is remembered too briefly", KEY,
        "self.holds.end(id, outcome, self.newest().saturating_add(self.terms.remember));", "self.holds.end(id, outcome, self.newest().saturating_add(Micros(self.terms.remember.0.div_euclid(2))));"),
    ("a reservation lasts as long as it asks for", KEY,
        "taken.saturating_add(Micros(span.0.min(self.terms.longest.0)))", "taken.saturating_add(span)"),
    ("a reservation that comes again takes units again", KEY,
        "        if let Some(known) = self.known(id) {\n            return Ok(known);\n        }\n", ""),
    ("a key has one reservation more", LIST,
        "self.count(LIVE).saturating_add(self.count(ENDED)) < self.room", "self.count(LIVE).saturating_add(self.count(ENDED)) <= self.room"),
    ("a bucket forgets what came after a reservation", BUCKET,
        "before.then(passed, deepest).write_to(holds.since_mut(previous));", "let _ = passed;\n                before.write_to(holds.since_mut(previous));"),
    ("a refund of a bucket gives back what is held", BUCKET,
        "let given_back = self.scaled(refund.cost).min(self.spent_if(holds, |_| 0));", "let given_back = self.scaled(refund.cost).min(Level::of(state).spent);"),
    ("a refund of a window gives back what is held", RESERVABLE,
        "refund.cost.min(counted.saturating_sub(held))", "{ let _ = held; refund.cost.min(counted) }"),
    ("a release gives a window back too much", FIXED,
        "let count = counter.count.saturating_sub(counted).saturating_add(actual);", "let count = counter.count.saturating_sub(counted).saturating_add(actual).saturating_sub(u64::from(actual == 0));"),
    ("a state with reservations expires with its units", HOLD,
        "counted.max(last.saturating_since(newest)).min(Micros::MAX)", "{ let _ = last.saturating_since(newest); counted }"),
    ("a state with reservations is stored ahead", HOLDING,
        "        if !self.has_no_holds(&state.borrowed()) {\n            return None;\n        }\n", ""),
    ("a commit leaves the lease of its call", DECIDE,
        "            limit.hold(words, now, &Operation::Release(id));\n", ""),
    ("a refusal outlives a commit by this node", ENTRY,
        "            | Operation::Report(_)\n", "            | Operation::Report(_)\n            | Operation::Commit(..)\n"),
    ("a node spends its units for a reservation", CACHE,
        "if reserves || (policy", "let _ = reserves;\n        if false || (policy"),
    ("a wait ends only with time, not with reservations that end", KEY,
        "if is_last || next.saturating_since(asked_at) >= wait {", "if is_last || true {"),
    ("a reservation that has expired is remembered from when that is seen", KEY,
        "self.holds.end(id, outcome, until.saturating_add(self.terms.remember));", "let _ = until;\n            self.holds.end(id, outcome, taken.saturating_add(self.terms.remember));"),
    ("a repeated commit answers with its own units", KEY,
        "return Committed { charged, late };", "let _ = charged;\n                return Committed { charged: actual, late };"),
    ("only the first limit learns of a commit", DECIDE,
        "            if let Some(own) = limit.commit(words, now, id, actual).filter(", "            if let Some(own) = all.is_none().then(|| limit.commit(words, now, id, actual)).flatten().filter("),
];
