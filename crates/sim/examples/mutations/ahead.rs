//! Mutations of what an only writer stores ahead, and of questions and replies, for the world of objects.

use super::Mutation;

const HOME: &str = "crates/tier/src/authority/home.rs";
const AHEAD: &str = "crates/gate/src/session/ahead.rs";
const SLOT: &str = "crates/gate/src/session/slot.rs";
const BUCKET: &str = "crates/core/src/bucket/mod.rs";
const SESSION: &str = "crates/gate/src/session.rs";
const REPLIES: &str = "crates/tier/src/wire/replies.rs";

#[rustfmt::skip]
pub(super) const MUTATIONS: [Mutation; 9] = [
    ("persist ahead without its horizon", BUCKET,
        "let inflow = span.saturating_mul(self.inflow.value()); // at most p·C", "let inflow = 0;"),
    ("a charge covers one unit more", AHEAD,
        "let Some(left) = ahead.units.checked_sub(units) else", "let Some(left) = ahead.units.saturating_add(1).checked_sub(units) else"),
    ("cover does not end", AHEAD,
        "let is_covered = *from <= at && at < ahead.until;", "let is_covered = *from <= at;"),
    ("cover begins before its time", AHEAD,
        "let is_covered = *from <= at && at < ahead.until;", "let is_covered = { let _ = from; at < ahead.until };"),
    ("cover is kept after other bytes were found", SLOT,
        "        self.lead.iter_mut().for_each(|lead| lead.end());\n", ""),
    ("cover is used before the write is stored", AHEAD,
        "let Some(Charged { from, ahead }) = &mut self.stored else", "let Some(Charged { from, ahead }) = self.next.as_mut().or(self.stored.as_mut()) else"),
    ("a refused write keeps memory", HOME,
        "            answers.push_back((of_each_key.remove(asked), answer));
        }
        self.forget();", "            answers.push_back((of_each_key.remove(asked), answer));
        }"),
    ("an answer on the guess that nothing is stored", SESSION,
        "let is_settled = |slot: &Slot| slot.is_known && slot.due", "let is_settled = |slot: &Slot| slot.due"),
    ("a repeated question is taken twice", REPLIES,
        "            Found::Known => self.repeat(to, (name, hash)),\n            Found::Forgotten => self.refuse(to, name, Failure::Unknown),\n            Found::New => {", "            Found::Known if false => self.repeat(to, (name, hash)),\n            Found::Forgotten => self.refuse(to, name, Failure::Unknown),\n            Found::Known | Found::New => {"),
];
