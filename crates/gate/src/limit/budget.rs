//! `budget`: units of the policy's rates, to be spent without asking. It refuses nobody: units are
//! taken out of the rates when they are granted.

use tidegate_core::lease::Id;
use tidegate_core::lease::budget::{Allowance, Config, Refundable, State};
use tidegate_core::{Decision, Limiter, Micros, Timestamp, Words};

use super::Kind;
use super::algorithm::{Algorithm, Answer};
use crate::request::{Request, Unspent};

impl Algorithm for Config {
    const KIND: Kind = Kind::Budget;

    fn ask(&self, state: &mut State<&mut [u64]>, now: Timestamp, request: &Request) -> Answer {
        if request.cost > 0 {
            self.advance(state, now);
        }
        Ok(untouched(self, state, now))
    }

    fn look(&self, state: &State<&[u64]>, now: Timestamp, _: &Request) -> Answer {
        Ok(untouched(self, state, now))
    }

    fn grant(
        &self,
        state: &mut State<&mut [u64]>,
        now: Timestamp,
        (holder, wants): (Id, u64),
        available: u64,
    ) -> Option<Allowance> {
        Some(Self::grant(self, state, now, holder, wants, available))
    }

    fn give_back(
        &self,
        state: &mut State<&mut [u64]>,
        now: Timestamp,
        holder: Id,
        unspent: Unspent,
    ) -> Option<Refundable> {
        let Unspent { granted_at, left } = unspent;
        let expires_at = granted_at.saturating_add(self.period());
        Self::give_back(self, state, now, holder, Allowance { left, granted_at, expires_at })
    }
}

fn untouched(config: &Config, state: &State<impl Words>, now: Timestamp) -> Decision {
    let taken = now.taken_after(state.newest(), config.period());
    let passed = taken.saturating_since(state.newest()).0;
    let reset_after = Micros(config.reset_after(state).0.saturating_sub(passed));
    Decision::Allow { limit: config.most(), remaining: config.most(), reset_after }
}
