//! What JavaScript gives, read and checked.

use std::sync::Arc;

use tidegate_gate::{
    Ask, AskedSpan, Bounded, CheckForm, Gateway, MAX_QUANTITY, Policy, ReserveForm, Timestamp,
};

use crate::failure::Failure;
use crate::number::to_quantity;
use crate::policy;

pub(crate) fn parsed(
    text: &str,
    written: bool,
    name: Option<&str>,
) -> Result<(Arc<Policy>, Gateway), Failure> {
    let read = policy::read(text, name);
    read.map_err(|failure| if written { failure } else { failure.without_line() })
}

pub(crate) fn timestamp(now: f64) -> Result<Timestamp, Failure> {
    quantity("now", "INVALID_NOW", now).map(Timestamp)
}

#[inline]
pub(crate) fn quantity(
    field: &'static str,
    code: &'static str,
    found: f64,
) -> Result<u64, Failure> {
    // made only when needed, because each decision comes here twice
    let number = || Failure::Number { field, code, found, least: 0, most: MAX_QUANTITY };
    to_quantity(found).ok_or_else(number)
}

pub(crate) fn form(
    cost: f64,
    class: Option<String>,
    lease: Option<String>,
    signal_ppm: Option<f64>,
    draw: Option<f64>,
) -> Result<CheckForm, Failure> {
    Ok(CheckForm {
        cost: Bounded::new(quantity("cost", "INVALID_COST", cost)?),
        class,
        lease,
        signal_ppm: optional("signalPpm", signal_ppm)?,
        draw: optional("draw", draw)?,
    })
}

/// What `reserve` asks, whose other fields are those of a check.
pub(crate) fn reserve_form(
    check: Result<CheckForm, Failure>,
    id: Option<String>,
    time_to_live: Option<f64>,
) -> Result<Ask, Failure> {
    let CheckForm { cost, class, signal_ppm, draw, .. } = check?;
    let time_to_live = optional("timeToLive", time_to_live)?.map(AskedSpan::from);
    Ok(Ask::Reserve(ReserveForm { cost, class, id, signal_ppm, draw, time_to_live }))
}

pub(crate) fn optional<const LEAST: u64, const MOST: u64>(
    field: &'static str,
    found: Option<f64>,
) -> Result<Option<Bounded<LEAST, MOST>>, Failure> {
    found.map(|found| whole(field, found)).transpose()
}

pub(crate) fn whole<const LEAST: u64, const MOST: u64>(
    field: &'static str,
    found: f64,
) -> Result<Bounded<LEAST, MOST>, Failure> {
    let number =
        || Failure::Number { field, code: "INVALID_REQUEST", found, least: LEAST, most: MOST };
    to_quantity(found).and_then(Bounded::new).ok_or_else(number)
}
