//! Mutations of the authority, and of the session inside.

use super::Mutation;

const HOME: &str = "crates/tier/src/authority/home.rs";
const HOMES: &str = "crates/tier/src/authority/homes.rs";
const AUTHORITY: &str = "crates/tier/src/authority.rs";
const SWAP: &str = "crates/tier/src/authority/swap.rs";
const SESSION: &str = "crates/gate/src/session.rs";
const SLOT: &str = "crates/gate/src/session/slot.rs";

#[rustfmt::skip]
pub(super) const MUTATIONS: [Mutation; 44] = [
    ("a settled answer is sent before the swap", HOME,
        "is_settled && *is_only_writer => {", "is_settled => {
                    let _ = &is_only_writer;"),
    ("found bytes are not taken", HOME,
        "        self.session.found(found);", "        drop(found);"),
    ("operations are done again in another order", HOME,
        "for (asked, _) in mem::take(decided) {", "for (asked, _) in mem::take(decided).into_iter().rev() {"),
    ("every answer is sent when other bytes were found", HOME,
        "Ok(Answered { verdict, is_settled: true }) => Ok(verdict),", "Ok(Answered { verdict, is_settled: _ }) => Ok(verdict),"),
    ("only the operations that are not settled stay in the session's order", HOME,
        "Ok(Answered { verdict, is_settled: true }) => Ok(verdict),", "Ok(Answered { verdict, is_settled }) if is_settled || !verdict.decision.is_allowed() => Ok(verdict),"),
    ("a failed operation is granted", HOME,
        "            for (asked, _) in decided.drain(..) {
                answers.push_back((of_each_key.remove(asked), Err(failure.clone())));",
        "            for (asked, verdict) in decided.drain(..) {
                let answer = verdict.ok_or_else(|| failure.clone());
                answers.push_back((of_each_key.remove(asked), answer));"),
    ("the session is kept after a failure", HOME,
        "                answers.push_back((of_each_key.remove(asked), Err(failure.clone())));
            }
        }
        self.forget();", "                answers.push_back((of_each_key.remove(asked), Err(failure.clone())));
            }
        }"),
    ("a contended operation is granted", HOME,
        "Ok(Answered { verdict, .. }) if takes_nothing(&asked.operation, &verdict) => {", "Ok(Answered { verdict, .. }) => {"),
    ("the session is kept when a home gives up", HOME,
        "            answers.push_back((of_each_key.remove(asked), answer));
        }
        self.forget();", "            answers.push_back((of_each_key.remove(asked), answer));
        }"),
    ("a refusal fails when a home gives up", HOME,
        "    is_refused || operation.is_peek()", "    let _ = is_refused;\n    operation.is_peek()"),
    ("callers that are gone are granted", HOME,
        "if is_droppable(&asked.operation) && is_gone(&asked.token) {", "if false && is_gone(&asked.token) {"),
    ("the release of a caller that is gone is left out", HOME,
        "if is_droppable(&asked.operation) && is_gone(&asked.token) {", "if is_gone(&asked.token) {"),
    ("the last operation is decided first", HOME,
        "waiting.pop_front()", "waiting.pop_back()"),
    ("bytes that are no state are remembered", HOME,
        "        session.forget_unreadable(); // somebody may mend them\n", ""),
    ("a swap is not remembered", HOME,
        "        self.session.stored(kept_until);\n", ""),
    ("patience goes on after a swap", HOME,
        "            busy.lost_since = None;
            let Busy { decided, of_each_key, .. } = &mut **busy;
            for (asked, verdict)", "            let Busy { decided, of_each_key, .. } = &mut **busy;
            for (asked, verdict)"),
    ("patience begins with another home's", HOME,
        "        let mut busy = self.busy.take()?;
        busy.lost_since = None;", "        let busy = self.busy.take()?;"),
    ("an old time counts", AUTHORITY,
        "        if is_old { now } else { self.now }", "        let _ = (is_old, now);\n        self.now"),
    ("the present time always counts", AUTHORITY,
        "        if is_old { now } else { self.now }", "        let _ = is_old;\n        now"),
    ("patience is too short", AUTHORITY,
        "if home.lost_for(at) > self.options.patience {", "if home.lost_for(at) >= self.options.patience {"),
    ("a refused write is tried again", AUTHORITY,
        "                Outcome::Refused(found, error) => {
                    home.give_up(&found, (now, &Failure::Store(error)), &mut self.answers);",
        "                Outcome::Refused(found, _) => {
                    home.found(found, now, &mut self.answers);"),
    ("a home is not ready again after a swap", AUTHORITY,
        "                Outcome::Failed(error) => home.failed(&Failure::Store(error), &mut self.answers),
            }
            self.settle(id);", "                Outcome::Failed(error) => home.failed(&Failure::Store(error), &mut self.answers),
            }"),
    ("one operation fewer may wait", AUTHORITY,
        "match self.waiting <= most {", "match self.waiting < most {"),
    ("operations that are left out count as waiting", AUTHORITY,
        "            self.waiting = self.waiting.saturating_sub(gone);", "            let _ = gone;"),
    ("the search for homes to forget ends early", HOMES,
        "self.homes.capacity().saturating_add(1).saturating_mul(2)", "self.homes.capacity().saturating_mul(2)"),
    ("a home is forgotten while operations wait", HOMES,
        "Some(home) if home.is_idle() && !home.was_used => self.remove(id),", "Some(home) if !home.was_used => self.remove(id),"),
    ("the session does not take the bytes that it stored", SLOT,
        "            let before = self.found.replace(mem::take(&mut self.becomes));
            self.becomes = before.unwrap_or_default();
", ""),
    ("a slice that is only read is not compared", SESSION,
        "self.slots.iter_mut().filter(|slot| slot.is_used).map(Slot::used)", "self.slots.iter_mut().filter(|slot| slot.is_used && slot.due.is_some()).map(Slot::used)"),
    ("one slice is not compared", SESSION,
        "self.slots.iter_mut().filter(|slot| slot.is_used).map(Slot::used)", "self.slots.iter_mut().skip(1).filter(|slot| slot.is_used).map(Slot::used)"),
    ("a slice is not compared once others are", SESSION,
        "self.slots.iter_mut().filter(|slot| slot.is_used).map(Slot::used)", "self.slots.iter_mut().filter(|slot| slot.is_used).take(1).map(Slot::used)"),
    ("loaded bytes leave a write due", SLOT,
        "(self.is_used, self.is_carried, self.due, self.is_known) = (false, false, None, true);", "(self.is_used, self.is_carried, self.is_known) = (false, false, true);"),
    ("a slice expires early", SLOT,
        "self.time_to_live = slice.time_to_live(words, self.now);", "self.time_to_live = Micros(slice.time_to_live(words, self.now).0.div_euclid(2));"),
    ("an answer is settled although an earlier one is not", SESSION,
        "slot.is_known && slot.due != Some(Due::BeforeAnswer);", "slot.is_known;"),
    ("a refusal that a limit remembers is settled", SESSION,
        "let is_more = slice.remembers_refusals() || begins || unblocked || slot.is_carried;", "let is_more = begins || unblocked || slot.is_carried;"),
    ("the first refusal of a bucket that starts empty is settled", SESSION,
        "let is_more = slice.remembers_refusals() || begins || unblocked || slot.is_carried;", "let is_more = slice.remembers_refusals() || unblocked || slot.is_carried || (begins && false);"),
    ("the bytes of an earlier write are written again", SLOT,
        "        self.due = self.due.max(due);
        self.is_encoded = false;
", "        self.due = self.due.max(due);
"),
    ("the storage keeps other bytes for as long as the last ones", SLOT,
        "        self.kept_until = Micros::ZERO;
", ""),
    ("the storage is never told how long to keep a slice", SWAP,
        "    (!is_kept).then(|| Micros(needed.saturating_mul(2)))", "    (!is_kept && used.found.is_none()).then(|| Micros(needed.saturating_mul(2)))"),
    ("the clocks of the nodes count as equal", SWAP,
        "let needed = used.write?.time_to_live.0.saturating_add(keep_longer.0).max(1);", "let needed = used.write?.time_to_live.0.max(1);\n    let _ = keep_longer;"),
    ("the storage is believed to keep a slice for longer", SWAP,
        "        Some(keep) => Micros(at.0.saturating_add(keep.0)),", "        Some(keep) => Micros(at.0.saturating_add(keep.0.saturating_mul(2))),"),
    ("an operation is begun however long it waited", HOME,
        "            if asked.at < too_late {", "            if false && asked.at < too_late {"),
    ("an operation is too late at once", AUTHORITY,
        "let too_late = Micros(at.0.saturating_sub(self.options.most_wait.0));", "let too_late = at;"),
    ("a refusal on a state that was carried over is settled", SESSION,
        "let is_more = slice.remembers_refusals() || begins || unblocked || slot.is_carried;", "let is_more = slice.remembers_refusals() || begins || unblocked;"),
    ("a refusal makes an earlier write less urgent", SLOT,
        "self.due = self.due.max(due);", "self.due = due;"),
];
