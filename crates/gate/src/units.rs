//! Spans, rates and shares as the policy file writes them.

use alloc::format;
use alloc::string::String;
use core::fmt;

use tidegate_core::shed::Share;
use tidegate_core::window::log;
use tidegate_core::{MAX_QUANTITY, Micros, Rate};

use tidegate_form::Quoted;
use tidegate_form::{Error, Form, Node};

/// From the smallest to the largest. The last name of a size is the one that is shown.
const UNITS: [(&str, u64); 7] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("min", 60_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

const SPAN: &str = "a span of time in whole microseconds, above 0 and at most 285 years, such as \"90s\", \"1.5s\" or \
     \"1m30s\", with the units d, h, m, s, ms, us";
const RATE: &str =
    "a whole number above 0, a slash and a span of time, such as \"100/s\" or \"5/15m\"";

/// A span such as `90s`, `1.5s` or `1m30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Micros);

/// Writes the span in the largest unit that is exact.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.0;
        if micros == MAX_QUANTITY {
            return f.write_str("285 years"); // the longest span
        }
        let exact = UNITS.iter().rev().find(|(_, unit)| micros.is_multiple_of(*unit));
        let (name, unit) = exact.unwrap_or(&("us", 1));
        write!(f, "{}{name}", micros.checked_div(*unit).unwrap_or(micros))
    }
}

impl Form for Span {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(parse_span).map(Self)
    }
}

/// Reads a span of time, such as `90s`, `1.5s` or `1m30s`, as a policy file writes it.
///
/// # Errors
/// The message says what was expected and what was found.
///
/// ```
/// use tidegate_gate::{Micros, parse_span};
/// assert_eq!(parse_span("1m30s"), Ok(Micros(90_000_000)));
/// assert!(parse_span("0.5us").unwrap_err().starts_with("expected a span of time in whole microseconds"));
/// ```
pub fn parse_span(text: &str) -> Result<Micros, String> {
    span(text).ok_or_else(|| format!("expected {SPAN}; found {}", Quoted(text)))
}

/// A rate such as `100/s` or `5/15m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateForm(pub(crate) Rate);

impl Form for RateForm {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(|text| rate(text).map(Self).ok_or_else(|| no_rate(text)))
    }
}

fn no_rate(text: &str) -> String {
    format!("expected {RATE}; found {}", Quoted(text))
}

/// A share such as `80%` or `0.5%`, to the ten-thousandth of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Percent(pub(crate) Share);

impl Form for Percent {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(|text| {
            percent(text).map(Self).ok_or_else(|| {
                format!(
                    "expected \"0%\" to \"100%\" with at most four decimals, such as \"80%\" or \"0.5%\"; found {}",
                    Quoted(text)
                )
            })
        })
    }
}

/// Writes the share as the policy file does.
impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ppm = self.0.ppm();
        let (whole, decimals) = (ppm.checked_div(10_000), ppm.checked_rem(10_000));
        let text = format!("{}.{:04}", whole.unwrap_or(0), decimals.unwrap_or(0));
        write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

fn percent(text: &str) -> Option<Share> {
    let number = text.strip_suffix('%')?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    if decimals.is_empty() || decimals.len() > 4 {
        return None;
    }
    let decimals = self::whole(&format!("{decimals:0<4}"))?;
    let ppm = self::whole(whole)?.checked_mul(10_000)?.checked_add(decimals)?;
    Share::from_ppm(u32::try_from(ppm).ok()?)
}

/// A number of units in any span, such as `10/m` or `2/3s`. It is not reduced: 10 in 10 s differs from 1
/// in 1 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowForm(pub(crate) log::Window);

impl Form for WindowForm {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.parse(|text| {
            let (limit, period) = per(text).ok_or_else(|| no_rate(text))?;
            match log::MAX_REMEMBERED {
                most if limit > most => Err(format!(
                    "expected at most {most} units, because a log remembers each of them, found {}",
                    Quoted(text)
                )),
                _ => Ok(Self(log::Window { limit, period })),
            }
        })
    }
}

fn rate(text: &str) -> Option<Rate> {
    let (units, period) = per(text)?;
    Rate::new(units, period).ok()
}

/// Units, a slash, and a span: `5/s` stands for `5/1s`.
fn per(text: &str) -> Option<(u64, Micros)> {
    let (units, period) = text.split_once('/')?;
    let period = match unit(period) {
        Some(micros) => Micros(micros),
        None => span(period)?,
    };
    let units = whole(units)?;
    (1..=MAX_QUANTITY).contains(&units).then_some((units, period))
}

/// Numbers with their units, the largest unit first. Only the last number may have decimals.
fn span(text: &str) -> Option<Micros> {
    let (mut rest, mut larger, mut span) = (text, u64::MAX, 0_u64);
    while !rest.is_empty() {
        let (number, name) = rest.split_at_checked(rest.find(is_no_digit)?)?;
        let name = name.trim_start_matches(' ');
        let end = name.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(name.len());
        let (name, next) = name.split_at_checked(end)?;
        rest = next.trim_start_matches(' ');
        let unit = unit(name).filter(|unit| *unit < larger)?;
        let is_last = next.is_empty();
        let part = match number.split_once('.') {
            Some((count, decimals)) if is_last => decimal(count, decimals, unit)?,
            Some(_) => return None,
            None if rest.is_empty() && !is_last => return None, // a space at the end
            None => whole(number)?.checked_mul(unit)?,
        };
        (larger, span) = (unit, span.checked_add(part)?);
    }
    (1..=MAX_QUANTITY).contains(&span).then_some(Micros(span))
}

const fn is_no_digit(c: char) -> bool {
    !c.is_ascii_digit() && c != '.'
}

fn unit(name: &str) -> Option<u64> {
    UNITS.iter().find(|(unit, _)| *unit == name).map(|(_, micros)| *micros)
}

/// The microseconds of so many units, if they are a whole number.
fn decimal(count: &str, decimals: &str, unit: u64) -> Option<u64> {
    let scale = 10_u64.checked_pow(u32::try_from(decimals.len()).ok()?)?;
    let part = u128::from(whole(decimals)?).checked_mul(unit.into())?;
    let part = part.is_multiple_of(scale.into()).then(|| part.checked_div(scale.into()))??;
    whole(count)?.checked_mul(unit)?.checked_add(u64::try_from(part).ok()?)
}

/// Accepts digits alone: `u64::from_str` would also accept a plus sign.
pub(crate) fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
