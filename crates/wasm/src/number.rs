//! JavaScript's numbers and the gate's quantities. The only casts are here.

use tidegate_gate::MAX_QUANTITY;

/// The whole number from 0 to [`MAX_QUANTITY`] that this is, if it is one.
#[expect(clippy::as_conversions, reason = "no `try_from` for floats; the way back shows any loss")]
pub(crate) fn to_quantity(number: f64) -> Option<u64> {
    let whole = number as u64;
    (whole <= MAX_QUANTITY && whole as f64 == number).then_some(whole)
}

/// Exact up to [`MAX_QUANTITY`], which no quantity of the gate exceeds.
#[expect(clippy::as_conversions, reason = "no `from` for floats; exact up to 2^53")]
pub(crate) const fn from_quantity(quantity: u64) -> f64 {
    quantity as f64
}
