//! States that an edit of the policy takes over.

use alloc::vec::Vec;
use core::mem;

use tidegate_core::Timestamp;

use super::Table;
use super::answers::Answer;
use super::entry::Entry;
use crate::decide::Record;
use crate::policy::Policy;
use crate::state::{Stored, before_edit, carry};

/// What a table has of a key, on its way from the table of a policy to the table of the edited one.
#[derive(Debug)]
pub struct Carried(What);

#[derive(Debug)]
enum What {
    /// A state.
    State(Entry),
    /// The answer of this id, which repeats of its request get whatever the limits are.
    Answer([u64; 2], Answer),
}

impl Carried {
    /// The key, or the part of it that a limit counts by.
    #[must_use]
    pub fn key(&self) -> &str {
        match &self.0 {
            What::State(entry) => &entry.key,
            What::Answer(_, answer) => &answer.key,
        }
    }
}

impl Table {
    /// Takes all states out. The table that is left learns no key any more, so that a request which was under way
    /// cannot spend what the taken states still count.
    #[must_use]
    #[inline(never)]
    pub fn close(&mut self) -> Self {
        let closed = Self::new(0, self.hasher.clone());
        mem::replace(self, closed)
    }

    /// The states as they are under the edited policy, if it is edited at `now`. States of limits that are no longer there
    /// stay, as they do in a store: limits that come back go on with them.
    pub fn into_carried<'a>(
        self,
        from: &'a Policy,
        to: &'a Policy,
        now: Timestamp,
    ) -> impl Iterator<Item = Carried> + 'a {
        let goes_on = |new: &'a Record| Some((before_edit(new, from, to)?, new));
        let edited: Vec<_> = to.records().filter_map(goes_on).collect();
        let carried = move |entry: Entry| {
            let own = from.records().find(|own| entry.counts_for(own, &entry.key));
            let own = own.unwrap_or(&entry.record); // a caller's limits, or of an earlier revision
            let goes_on = edited.iter().find(|(old, _)| old.is(own)).copied();
            let is_back = || to.records().find(|new| new.is(own)).map(|new| (own, new));
            let Some((old, new)) = goes_on.or_else(|| is_back().filter(|_| !own.counts_apart()))
            else {
                let has_ended = from.has(own) && own.counts_apart();
                return (!has_ended).then_some(entry);
            };
            let old = if old.counts_apart() { old } else { &entry.record };
            if entry.record.is(new) && old.fingerprint() == new.fingerprint() {
                return Some(Entry { record: (*new).clone(), ..entry });
            }
            let words = old.going_on_from(&entry.record, &entry.words);
            let (words, block) = old.unblocked(&words);
            let (words, forgets) = carry(new, old, words, (to.on_change(), now));
            if forgets && !new.counts_apart() && !new.remembers_refusals() {
                return Some(entry); // until a request that leaves what these limits can hold
            }
            Entry::new(new, &entry.key, Stored { words: &words, block })
        };
        let answers = self.answers.into_iter().map(|(id, answer)| What::Answer(id, answer));
        let states = self.entries.into_iter().filter_map(carried).map(What::State);
        answers.chain(states).map(Carried)
    }

    /// Takes a state over, even beyond the bound: a state that is forgotten would loosen its limits. `false` if the
    /// allocator has no room.
    #[inline(never)]
    pub fn adopt(&mut self, Carried(what): Carried) -> bool {
        let entry = match what {
            What::State(entry) => entry,
            What::Answer(id, answer) => {
                self.answers.insert(id, answer);
                return true;
            }
        };
        let hash = self.hasher.hash(&entry.key);
        let has_room = self.reserve(&[hash], entry.heap(), usize::MAX).is_some();
        if has_room {
            self.insert(entry);
        }
        has_room
    }

    /// Changes the bound. A table that is larger learns no new keys until enough states have expired.
    pub const fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }
}
