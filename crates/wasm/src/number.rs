//! Conversions between JavaScript's numbers and the gate's quantities, with the only casts of the crate.

use tidegate_gate::MAX_QUANTITY;

/// Converts a whole number from 0 to [`MAX_QUANTITY`]; `None` for any other number.
#[expect(clippy::as_conversions, reason = "no `try_from` for floats; the way back shows any loss")]
pub(crate) fn to_quantity(number: f64) -> Option<u64> {
    let whole = number as u64;
    (whole <= MAX_QUANTITY && whole as f64 == number).then_some(whole)
}

/// Converts a quantity, exactly up to [`MAX_QUANTITY`], which no quantity of the gate exceeds.
#[expect(clippy::as_conversions, reason = "no `from` for floats; exact up to 2^53")]
pub(crate) const fn from_quantity(quantity: u64) -> f64 {
    quantity as f64
}
