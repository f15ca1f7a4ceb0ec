//! A naive penalty: keeps a list of refusals and a list of penalties, and reads both for each
//! answer.

use crate::{Outcome, first};

/// Naive penalties for one key. All spans are in µs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the first five are those of tidegate_core::shed::penalty::Terms")]
pub struct Penalty {
    pub refusals: u64,
    pub within: u64,
    pub duration: u64,
    pub max: u64,
    pub forgive_after: u64,
    /// The newest time seen.
    pub newest: i128,
    /// The times of the refusals since the last penalty began.
    pub refused: Vec<i128>,
    /// The times at which each penalty began and ended.
    pub penalties: Vec<(i128, i128)>,
}

impl Penalty {
    /// Decides whether a request may pass at `now`.
    pub fn decide(&mut self, now: u64) -> Outcome {
        let now = self.settle(now);
        let allowed = !self.in_penalty(now);
        let counted = u64::try_from(self.counted(now)).unwrap_or(u64::MAX);
        Outcome {
            allowed,
            remaining: if allowed { self.refusals - counted } else { 0 },
            retry_after: first(|d| !self.in_penalty(now + d)),
            reset_after: first(|d| self.counted(now + d) == 0 && self.forgiven(now + d)),
        }
    }

    /// Counts a refusal at `now`. Returns the length of the penalty that it begins.
    pub fn refused(&mut self, now: u64) -> Option<u64> {
        let now = self.settle(now);
        if self.in_penalty(now) {
            return None;
        }
        self.refused.push(now);
        if u64::try_from(self.counted(now)).unwrap_or(u64::MAX) < self.refusals {
            return None;
        }
        let lasts = match self.penalties.last() {
            Some((began, ended)) if !self.forgiven(now) => {
                (2 * (ended - began)).min(i128::from(self.max))
            }
            _ => i128::from(self.duration),
        };
        self.refused.clear();
        self.penalties.push((now, now + lasts));
        u64::try_from(lasts).ok()
    }

    /// Forgets everything.
    pub fn forgive(&mut self) {
        self.newest = 0;
        self.refused.clear();
        self.penalties.clear();
    }

    /// The facts that determine every later answer: the newest time, the refusals that count, and
    /// the last penalty if it is not forgiven.
    #[must_use]
    pub fn essence(&self) -> (i128, Vec<i128>, Option<(i128, i128)>) {
        let counted = self.refused.iter().filter(|&&at| self.counts(at, self.newest));
        let last = self.penalties.last().filter(|_| !self.forgiven(self.newest));
        (self.newest, counted.copied().collect(), last.copied())
    }

    fn settle(&mut self, now: u64) -> i128 {
        let now = i128::from(now);
        let period = self.within.max(self.max + self.forgive_after);
        if now < self.newest - i128::from(period) {
            // the newest time came from a clock that was ahead, so all times move back; refusals
            // that still count do not move before time 0
            let shift = self.newest - now;
            let (newest, all) = (self.newest, self.refused.clone());
            self.refused = all.into_iter().filter(|&at| self.counts(at, newest)).collect();
            for at in &mut self.refused {
                *at = (*at - shift).max(0);
            }
            for (began, ended) in &mut self.penalties {
                *began -= shift;
                *ended -= shift;
            }
            self.newest = now;
        }
        self.newest = self.newest.max(now);
        self.newest
    }

    fn in_penalty(&self, t: i128) -> bool {
        self.penalties.iter().any(|&(began, ended)| began <= t && t < ended)
    }

    fn forgiven(&self, t: i128) -> bool {
        self.penalties.iter().all(|&(_, ended)| t >= ended + i128::from(self.forgive_after))
    }

    fn counts(&self, at: i128, t: i128) -> bool {
        at > t - i128::from(self.within)
    }

    fn counted(&self, t: i128) -> usize {
        self.refused.iter().filter(|&&at| self.counts(at, t)).count()
    }
}
