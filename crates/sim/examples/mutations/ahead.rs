//! Mutations of what an only writer stores ahead, and of questions and replies, for the world of objects.

use super::Mutation;

const PARTITION: &str = "crates/tier/src/authority/partition.rs";
const AHEAD: &str = "crates/gate/src/state/transaction/ahead.rs";
const BUCKET: &str = "crates/core/src/bucket/mod.rs";
const TRANSACTION: &str = "crates/gate/src/state/transaction.rs";
const REPLIES: &str = "crates/tier/src/wire/inbox.rs";

#[rustfmt::skip]
pub(super) const MUTATIONS: [Mutation; 9] = [
    ("persist ahead without its horizon", BUCKET,
        "let inflow = span.saturating_mul(self.inflow.value()); // at most p·C", "let inflow = 0;"),
    ("a charge covers one unit more", AHEAD,
        "let Some(left) = ahead.units.checked_sub(units) else", "let Some(left) = ahead.units.saturating_add(1).checked_sub(units) else"),
    ("cover does not end", AHEAD,
        "let is_covered = *from <= at && at < ahead.until;", "let is_covered = *from <= at;"),
    ("a refused write keeps memory", PARTITION,
        "            answers.push_back((of_each_key.remove(asked), answer, cause));
        }
        self.forget();", "            answers.push_back((of_each_key.remove(asked), answer, cause));
        }"),
    ("an only writer decides before it has read", PARTITION,
        "let is_known = transaction.knows(own);", "let is_known = transaction.knows(own) || true;"),
    ("an only writer takes back what it knows when it reads a further key", TRANSACTION,
        "if !self.is_only_writer || !slot.is_known {", "if true {"),
    ("an only writer decides a further key before the first is written", PARTITION,
        "let has_read = *is_only_writer && !decided.is_empty();", "let has_read = false;"),
    ("a reply has the number of the next question", REPLIES,
        "Reply::Answers(answers).write(name).into();", "Reply::Answers(answers).write(Name { number: name.number.wrapping_add(1), ..name }).into();"),
    ("a repeated question is taken twice", REPLIES,
        "            Found::Known => self.repeat(to, (name, hash)),\n            Found::Forgotten => self.refuse(to, name, Failure::Unknown),\n            Found::New => {", "            Found::Known if false => self.repeat(to, (name, hash)),\n            Found::Forgotten => self.refuse(to, name, Failure::Unknown),\n            Found::Known | Found::New => {"),
];
