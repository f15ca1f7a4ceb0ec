//! `sliding_log`: a number of units in any span, for several rates at once. Each grant is remembered with
//! its time.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::ConfigError;
use tidegate_core::lease::budget::Refundable;
use tidegate_core::window::log::{Bound, Config, Denied, State, Window};
use tidegate_core::{Limiter, Micros, RateLimiter, Timestamp, never};

use super::Kind;
use super::algorithm::{Algorithm, Decided, asks_a_rate_limiter};
use super::build::{required, text};
use super::describe::span;
use super::form::LimitForm;
use super::parameters::unfit;
use super::request::Request;

impl Algorithm for Config {
    const NAME: &'static str = "sliding_log";
    const NUMBER: u64 = 4;
    const FIELDS: &'static [&'static str] = &["rates", "min_gap", "count_denied"];

    fn read(form: &LimitForm) -> Result<Self, String> {
        let rates = required("rates", form.rates.as_ref())?;
        let windows: Vec<Window> = rates.iter().map(|window| window.0).collect();
        let min_gap = form.min_gap.map_or(Micros::ZERO, |span| span.0);
        let counted = form.count_denied.unwrap_or(false);
        let denied = if counted { Denied::Counted } else { Denied::Forgotten };
        Self::new(&windows, min_gap, denied).map_err(text)
    }

    fn numbers(&self) -> Vec<u64> {
        let counted = u64::from(self.denied() == Denied::Counted);
        let windows = self.windows().iter().flat_map(|window| [window.limit, window.period.0]);
        [self.min_gap().0, counted].into_iter().chain(windows).collect()
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        let [min_gap, counted @ (0 | 1), ref windows @ ..] = *numbers else {
            return Err(unfit(numbers));
        };
        let (windows, []) = windows.as_chunks() else { return Err(unfit(numbers)) };
        let window = |&[limit, period]: &[u64; 2]| Window { limit, period: Micros(period) };
        let windows: Vec<Window> = windows.iter().map(window).collect();
        let denied = if counted == 1 { Denied::Counted } else { Denied::Forgotten };
        Self::new(&windows, Micros(min_gap), denied)
    }

    fn describe(&self) -> String {
        let gap = match self.min_gap() {
            Micros::ZERO => String::new(),
            gap => format!(", {} apart", span(gap)),
        };
        let denied = match self.denied() {
            Denied::Counted => ", refused ones too",
            Denied::Forgotten => "",
        };
        let windows: Vec<String> = self.windows().iter().map(window_in_words).collect();
        format!("{}{gap}{denied}", windows.join(" and "))
    }

    /// The gap is 0, and the rates follow.
    fn held_by(&self, state: &State<&[u64]>, now: Timestamp, cost: u64) -> Option<u8> {
        let rate = |rate: Window| {
            let place = self.windows().iter().position(|window| *window == rate)?;
            u8::try_from(place).ok()?.checked_add(1)
        };
        match Config::held_by(self, state, now, cost)?.0 {
            Bound::Gap => Some(0),
            Bound::Rate(window) => rate(window),
        }
    }

    fn describe_part(&self, part: u8) -> Option<String> {
        let Some(rate) = part.checked_sub(1) else {
            return Some(format!("requests at least {} apart", span(self.min_gap())));
        };
        self.windows().get(usize::from(rate)).map(window_in_words)
    }

    asks_a_rate_limiter!();

    /// Each of its rates counts others of them as used.
    fn remembered(&self, state: &State<&[u64]>) -> Option<u64> {
        Some(self.remembered(state))
    }

    /// A log remembers no debt.
    fn most_counted(&self) -> u64 {
        self.windows().iter().map(|window| window.limit).max().unwrap_or_else(|| never(0))
    }

    fn remembers_refusals(&self) -> bool {
        self.denied() == Denied::Counted
    }

    fn note_refusal(
        &self,
        state: &mut State<&mut [u64]>,
        now: Timestamp,
        request: &Request,
    ) -> Micros {
        self.refused(state, now, request.cost)
    }

    /// A rate may hold more units than the whole log grants at once; the largest ratio counts enough of them.
    fn ratio(&self, old: &Self) -> (u64, u64) {
        let capacities = (Algorithm::capacity(self), Algorithm::capacity(old));
        self.windows().iter().fold(capacities, |largest, window| {
            let before = old.windows().iter().map(|old| {
                let periods = window.period.0.div_ceil(old.period.0.max(1));
                old.limit.saturating_mul(periods)
            });
            let found = (window.limit, before.min().unwrap_or_else(|| never(1)));
            if is_less(largest, found) { found } else { largest }
        })
    }

    fn adopt(
        &self,
        own: &mut State<&mut [u64]>,
        _: &Self,
        held: &State<&[u64]>,
        ratio: (u64, u64),
    ) -> bool {
        Self::adopt(self, own, held, ratio);
        true
    }
}

fn is_less((a, b): (u64, u64), (c, d): (u64, u64)) -> bool {
    u128::from(a).saturating_mul(d.into()) < u128::from(c).saturating_mul(b.into())
}

fn window_in_words(window: &Window) -> String {
    format!("{} in any {}", window.limit, span(window.period))
}
