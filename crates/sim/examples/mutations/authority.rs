//! Mutations of the authority, and of the transaction inside.

use super::Mutation;

const PARTITION: &str = "crates/tier/src/authority/partition.rs";
const PARTITIONS: &str = "crates/tier/src/authority/partitions.rs";
const AUTHORITY: &str = "crates/tier/src/authority.rs";
const ASK: &str = "crates/tier/src/authority/ask.rs";
const TRANSACTION: &str = "crates/gate/src/state/transaction.rs";
const SLOT: &str = "crates/gate/src/state/transaction/record_state.rs";

#[rustfmt::skip]
pub(super) const MUTATIONS: [Mutation; 44] = [
    ("a settled answer is sent before the swap", PARTITION,
        "is_settled && *is_only_writer => {", "is_settled => {
                    let _ = &is_only_writer;"),
    ("found bytes are not taken", PARTITION,
        "        self.transaction.found(found);", "        drop(found);"),
    ("operations are done again in another order", PARTITION,
        "for (asked, _) in mem::take(decided) {", "for (asked, _) in mem::take(decided).into_iter().rev() {"),
    ("every answer is sent when other bytes were found", PARTITION,
        "Ok(Answered { verdict, is_settled: true }) => Ok(verdict),", "Ok(Answered { verdict, is_settled: _ }) => Ok(verdict),"),
    ("only the operations that are not settled stay in the transaction's order", PARTITION,
        "Ok(Answered { verdict, is_settled: true }) => Ok(verdict),", "Ok(Answered { verdict, is_settled }) if is_settled || !verdict.decision.is_allowed() => Ok(verdict),"),
    ("a failed operation is granted", PARTITION,
        "            for (asked, _) in decided.drain(..) {
                let (answer, cause) = on_error.answer(&asked, Some(transaction), failure);",
        "            for (asked, verdict) in decided.drain(..) {
                let _ = (&on_error, &transaction);
                let (answer, cause) = (verdict.ok_or_else(|| failure.clone()), None);"),
    ("the transaction is kept after a failure", PARTITION,
        "                answers.push_back((of_each_key.remove(asked), answer, cause));
            }
        }
        self.forget();", "                answers.push_back((of_each_key.remove(asked), answer, cause));
            }
        }"),
    ("a contended operation is granted", PARTITION,
        "Ok(Answered { verdict, .. }) if takes_nothing(&asked.operation, &verdict) => {", "Ok(Answered { verdict, .. }) => {"),
    ("the transaction is kept when a partition gives up", PARTITION,
        "            answers.push_back((of_each_key.remove(asked), answer, cause));
        }
        self.forget();", "            answers.push_back((of_each_key.remove(asked), answer, cause));
        }"),
    ("a refusal fails when a partition gives up", PARTITION,
        "    is_refused || operation.is_peek()", "    let _ = is_refused;\n    operation.is_peek()"),
    ("callers that are gone are granted", PARTITION,
        "if is_droppable(&asked.operation) && is_gone(&asked.token) {", "if false && is_gone(&asked.token) {"),
    ("the release of a caller that is gone is left out", PARTITION,
        "if is_droppable(&asked.operation) && is_gone(&asked.token) {", "if is_gone(&asked.token) {"),
    ("the last operation is decided first", PARTITION,
        "waiting.pop_front()", "waiting.pop_back()"),
    ("bytes that are no state are remembered", PARTITION,
        "        transaction.forget_unreadable(); // somebody may mend them\n", ""),
    ("a swap is not remembered", PARTITION,
        "        self.transaction.stored(expires_at);\n", ""),
    ("patience goes on after a swap", PARTITION,
        "            busy.lost_since = None;
            let Queue { decided, of_each_key, .. } = &mut **busy;
            for (asked, verdict)", "            let Queue { decided, of_each_key, .. } = &mut **busy;
            for (asked, verdict)"),
    ("patience begins with another partition's", PARTITION,
        "        let mut busy = self.busy.take()?;
        busy.lost_since = None;", "        let busy = self.busy.take()?;"),
    ("an old time counts", ASK,
        "        if is_old { now } else { self.now }", "        let _ = (is_old, now);\n        self.now"),
    ("the present time always counts", ASK,
        "        if is_old { now } else { self.now }", "        let _ = is_old;\n        now"),
    ("patience is too short", AUTHORITY,
        "if partition.lost_for(at) > self.options.patience {", "if partition.lost_for(at) >= self.options.patience {"),
    ("a refused write is tried again", AUTHORITY,
        "                SwapOutcome::Refused(found, error) => {
                    let failure = (now, &Failure::Store(error));
                    partition.give_up(&found, failure, (&mut on_failure, &mut self.answers));",
        "                SwapOutcome::Refused(found, _) => {
                    partition.found(found, now, &mut self.answers);"),
    ("a partition is not ready again after a swap", AUTHORITY,
        "                }
            }
            self.settle(id);", "                }
            }"),
    ("one operation fewer may wait", AUTHORITY,
        "let has_room = self.waiting <= most;", "let has_room = self.waiting < most;"),
    ("operations that are left out count as waiting", AUTHORITY,
        "            self.waiting = less(self.waiting, gone);", "            let _ = gone;"),
    ("the search for partitions to forget ends early", PARTITIONS,
        "self.partitions.capacity().saturating_add(1).saturating_mul(2)", "self.partitions.capacity().saturating_mul(2)"),
    ("a partition is forgotten while operations wait", PARTITIONS,
        "Some(partition) if partition.is_idle() && !partition.was_used => self.remove(id),", "Some(partition) if !partition.was_used => self.remove(id),"),
    ("the transaction does not take the bytes that it stored", SLOT,
        "            let before = self.found.replace(mem::take(&mut self.becomes));
            self.becomes = before.unwrap_or_default();
", ""),
    ("a record that is only read is not compared", TRANSACTION,
        "self.slots.iter_mut().filter(|slot| slot.is_used).map(RecordState::used)", "self.slots.iter_mut().filter(|slot| slot.is_used && slot.due.is_some()).map(RecordState::used)"),
    ("one record is not compared", TRANSACTION,
        "self.slots.iter_mut().filter(|slot| slot.is_used).map(RecordState::used)", "self.slots.iter_mut().skip(1).filter(|slot| slot.is_used).map(RecordState::used)"),
    ("a record is not compared once others are", TRANSACTION,
        "self.slots.iter_mut().filter(|slot| slot.is_used).map(RecordState::used)", "self.slots.iter_mut().filter(|slot| slot.is_used).take(1).map(RecordState::used)"),
    ("loaded bytes leave a write due", SLOT,
        "(self.is_used, self.is_carried, self.due, self.is_known) = (false, false, None, true);", "(self.is_used, self.is_carried, self.is_known) = (false, false, true);"),
    ("a record expires early", SLOT,
        "self.time_to_live = record.time_to_live(words, self.now);", "self.time_to_live = Micros(record.time_to_live(words, self.now).0.div_euclid(2));"),
    ("an answer is settled although an earlier one is not", TRANSACTION,
        "slot.is_known && slot.due != Some(Due::BeforeAnswer);", "slot.is_known;"),
    ("a refusal that a limit remembers is settled", TRANSACTION,
        "let is_more = record.remembers_refusals() || begins || unblocked || slot.is_carried;", "let is_more = begins || unblocked || slot.is_carried;"),
    ("the first refusal of a bucket that starts empty is settled", TRANSACTION,
        "let is_more = record.remembers_refusals() || begins || unblocked || slot.is_carried;", "let is_more = record.remembers_refusals() || unblocked || slot.is_carried || (begins && false);"),
    ("the bytes of an earlier write are written again", SLOT,
        "        self.due = self.due.max(due);
        self.is_encoded = false;
", "        self.due = self.due.max(due);
"),
    ("the storage keeps other bytes for as long as the last ones", SLOT,
        "        self.expires_at = Micros::ZERO;
", ""),
    ("the storage is never told how long to keep a record", ASK,
        "    (!is_kept).then(|| Micros(needed.saturating_mul(2)))", "    (!is_kept && used.found.is_none()).then(|| Micros(needed.saturating_mul(2)))"),
    ("the clocks of the nodes count as equal", ASK,
        "let needed = used.write?.time_to_live.0.saturating_add(ttl_margin.0).max(1);", "let needed = used.write?.time_to_live.0.max(1);\n    let _ = ttl_margin;"),
    ("the storage is believed to keep a record for longer", ASK,
        "        Some(ttl) => Micros(at.0.saturating_add(ttl.0)),", "        Some(ttl) => Micros(at.0.saturating_add(ttl.0.saturating_mul(2))),"),
    ("an operation is begun however long it waited", PARTITION,
        "            if asked.at < too_late {", "            if false && asked.at < too_late {"),
    ("an operation is too late at once", AUTHORITY,
        "let too_late = Micros(at.0.saturating_sub(self.options.most_wait.0));", "let too_late = at;"),
    ("a refusal on a state that was carried over is settled", TRANSACTION,
        "let is_more = record.remembers_refusals() || begins || unblocked || slot.is_carried;", "let is_more = record.remembers_refusals() || begins || unblocked;"),
    ("a refusal makes an earlier write less urgent", SLOT,
        "self.due = self.due.max(due);", "self.due = due;"),
];
