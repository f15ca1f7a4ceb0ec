//! `budget`: units that holders spend without asking. A budget refuses no request: its units are taken out
//! of the policy's limits on units over time when they are granted.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::ConfigError;
use tidegate_core::lease::Id;
use tidegate_core::lease::budget::{Allowance, Config, Refundable, State};
use tidegate_core::{Ahead, Decision, Limiter, Micros, Timestamp, Words};

use super::Kind;
use super::algorithm::{Algorithm, Decided};
use super::build::{required, text};
use super::describe::span;
use super::form::LimitForm;
use super::parameters::{unfit, wide};
use super::request::{Request, Unspent};

impl Algorithm for Config {
    const NAME: &'static str = "budget";
    const NUMBER: u64 = 11;
    const FIELDS: &'static [&'static str] = &["most", "time", "max_holders"];

    fn read(form: &LimitForm) -> Result<Self, String> {
        let most = required("most", form.most)?.get();
        let time = required("time", form.time)?.0;
        let holders = form.max_holders.map_or(DEFAULT_MAX_HOLDERS, |holders| holders.get());
        Self::new(most, time, holders).map_err(text)
    }

    fn numbers(&self) -> Vec<u64> {
        [self.most(), self.period().0, wide(self.max_holders())].into()
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        let [most, time, holders] = *numbers else { return Err(unfit(numbers)) };
        Self::new(most, Micros(time), holders)
    }

    fn describe(&self) -> String {
        let (most, time, holders) = (self.most(), span(self.period()), self.max_holders());
        format!(
            "up to {most} units for {time}, granted to up to {holders} holders, which spend them without asking"
        )
    }

    const KIND: Kind = Kind::Budget;

    fn charges_ahead(&self) -> bool {
        true
    }

    /// Requests take nothing from the holders, so nothing is to be charged.
    fn charge_ahead(&self, _: &mut State<&mut [u64]>, _: u64, _: Micros) -> Option<Ahead> {
        Some(Ahead { units: u64::MAX, until: Timestamp(u64::MAX) })
    }

    fn decide(&self, state: &mut State<&mut [u64]>, now: Timestamp, request: &Request) -> Decided {
        if request.cost > 0 {
            self.advance(state, now);
        }
        Ok(untouched(self, state, now))
    }

    fn peek(&self, state: &State<&[u64]>, now: Timestamp, _: &Request) -> Decided {
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

/// More than the number of nodes that usually spend the units of one key.
pub(crate) const DEFAULT_MAX_HOLDERS: u64 = 64;
