//! Holds over an edit of their limiter.

use super::key::Key;
use super::list::{Hold, Outcome};
use super::{Config, Counter, State};
use crate::bucket;
use crate::limiter::WordsMut;
use crate::time::Timestamp;
use crate::window::calendar::Boundaries;

/// When the units of a key count that goes on under another limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// When they were granted.
    Kept,
    /// All at the newest time.
    Newest,
}

/// How live holds go on.
enum Course {
    /// The limiter is the same.
    Same,
    /// From a bucket to a bucket of other numbers.
    Bucket(bucket::Config, bucket::Config),
    /// From windows to windows.
    Windows,
}

impl<B: Boundaries> Config<B> {
    /// Goes on with a key that counted and held under `old`, which has other numbers. `state` must be fresh. Live holds stay live:
    /// what a commit leaves is what the edit would have left if the true cost had been known before. A bucket rounds what is
    /// spent up to its own scale, once for each hold.
    ///
    /// `carry` makes the words of this limiter out of those of the old one, and says when the units count then; `None` if it
    /// cannot count as many. It is not asked between two buckets.
    ///
    /// The holds for which there is no place end, the oldest first, and those whose units a window no longer counts in full. They
    /// stay charged: a later commit charges what exceeds the estimate, or all of it if there was no place to remember the hold.
    ///
    /// `false` if there is no live hold, or none can go on: between a bucket and a window, for a bucket that starts empty, and under a limiter that cannot
    /// count what was used. `state` is fresh then.
    pub fn take_over(
        &self,
        state: &mut State<impl WordsMut, B>,
        old: &Self,
        held: &mut State<impl WordsMut, B>,
        carry: impl FnOnce(&mut [u64], &[u64]) -> Option<Times>,
    ) -> bool {
        let taken = self.takes_over(state, old, held, carry);
        if !taken {
            state.words_mut().fill(0);
        }
        taken
    }

    fn takes_over(
        &self,
        state: &mut State<impl WordsMut, B>,
        old: &Self,
        held: &mut State<impl WordsMut, B>,
        carry: impl FnOnce(&mut [u64], &[u64]) -> Option<Times>,
    ) -> bool {
        let Some(course) = course(&old.counter, &self.counter) else { return false };
        let (Some(mut own), Some(mut before)) = (self.key(state), old.key(held)) else {
            return false;
        };
        if before.holds.len() == 0 {
            return false;
        }
        before.end_uncounted();
        while before.holds.len() > self.most {
            before.keep_charged(0);
        }
        let taken = match course {
            Course::Same => own.take_words(&before),
            Course::Bucket(old, new) => own.take_bucket(&before, &old, &new),
            Course::Windows => {
                let used = before.limiter.used(before.words);
                match carry(own.words, before.words) {
                    Some(times) if own.limiter.used(own.words) <= used => {
                        own.take_holds(&before, times);
                        true
                    }
                    _ => false,
                }
            }
        };
        if taken {
            own.take_outcomes(&before);
            own.end_uncounted();
            let newest = own.newest();
            own.expire(newest);
        }
        taken
    }
}

fn course<B: Boundaries>(old: &Counter<B>, new: &Counter<B>) -> Option<Course> {
    match (old, new) {
        _ if old == new => Some(Course::Same),
        (Counter::TokenBucket(old), Counter::TokenBucket(new)) => {
            let is_plain = !old.starts_empty() && !new.starts_empty();
            is_plain.then_some(Course::Bucket(*old, *new))
        }
        (Counter::TokenBucket(_), _) | (_, Counter::TokenBucket(_)) => None,
        _ => Some(Course::Windows),
    }
}

impl Key<'_> {
    /// Ends a hold and keeps its estimate charged.
    fn keep_charged(&mut self, place: usize) {
        let Hold { id, units, .. } = self.holds.get(place);
        self.settle(place, units);
        let outcome = Outcome { charged: units, late: true, is_final: false };
        self.holds.end(id, outcome, self.newest().saturating_add(self.terms.remember));
    }

    /// Ends the holds of which a window counts no more than a part: their true cost would count in full.
    fn end_uncounted(&mut self) {
        for place in (0..self.holds.len()).rev() {
            let Hold { units, granted_at, .. } = self.holds.get(place);
            if !self.limiter.counts(self.words, granted_at, units) {
                self.keep_charged(place);
            }
        }
    }

    fn take_words(&mut self, before: &Self) -> bool {
        self.words.copy_from_slice(before.words);
        self.take_holds(before, Times::Kept);
        for place in 0..before.holds.len() {
            self.holds.since_mut(place).copy_from_slice(before.holds.since(place));
        }
        self.holds.set_before(before.holds.before());
        true
    }

    fn take_bucket(&mut self, before: &Self, old: &bucket::Config, new: &bucket::Config) -> bool {
        self.take_holds(before, Times::Kept);
        new.take_over(self.words, &mut self.holds, old, (before.words, &before.holds))
    }

    /// Takes over the live holds. The list must have room for them.
    fn take_holds(&mut self, before: &Self, times: Times) {
        for hold in before.holds.each() {
            let granted_at = match times {
                Times::Kept => hold.granted_at,
                Times::Newest => before.newest(),
            };
            let until = hold.until.min(granted_at.saturating_add(self.terms.longest));
            self.holds.push(Hold { granted_at, until, ..hold }, 0);
        }
    }

    /// Takes over how holds have ended.
    fn take_outcomes(&mut self, before: &Self) {
        let longest = before.newest().saturating_add(self.terms.remember);
        for (id, outcome, until) in before.holds.outcomes() {
            self.holds.end(id, outcome, Timestamp::min(until, longest));
        }
    }
}
