//! Limits that pay: of these, one has to have room for a request.

use alloc::format;
use alloc::string::String;

use crate::decide::{Limits, in_order_of};
use crate::limit::{Kind, NamedLimit};

/// Checks the limits that pay, and gives each its place in the order of the file.
///
/// # Errors
/// The message says what was expected of them, and what was found.
pub(super) fn check(limits: &mut [NamedLimit]) -> Result<(), String> {
    let payers = limits.iter_mut().filter(|limit| limit.payer.is_some());
    // limits of a file all have the same, and stay in its order
    let mut payers = in_order_of(payers, |limit| limit.payer);
    for (limit, place) in payers.iter_mut().zip(0..) {
        is_fit(limit)?;
        limit.payer = Some(place);
    }
    if let [only] = payers.as_slice() {
        return Err(format!(
            "`payer`: expected two limits that pay, or more, or none; found only one, `{}`",
            match &*only.name {
                "" => only.limit.algorithm(),
                name => name,
            }
        ));
    }
    let pays = !payers.is_empty();
    let lends = limits.iter().find(|limit| limit.limit.kind() == Kind::Budget);
    match lends.filter(|_| pays) {
        None => Ok(()),
        Some(budget) => Err(format!(
            "`payer`: expected no budget beside it, because the holder of a budget does not know who pays; found `{}`",
            budget.name
        )),
    }
}

fn is_fit(NamedLimit { name, limit, shadow, .. }: &NamedLimit) -> Result<(), String> {
    let algorithm = limit.algorithm();
    if limit.kind() != Kind::Rate {
        return Err(format!(
            "`payer`: expected a limit on units over time, found `{name}`, a `{algorithm}`"
        ));
    }
    if *shadow {
        return Err(format!(
            "`payer`: expected a limit that is not in shadow, because a payer charges what no other limit does; found \
             `{name}`, which has both"
        ));
    }
    if limit.remembers_refusals() {
        return Err(format!(
            "`payer`: expected a limit that counts no refusals, because a request that another payer takes is not \
             refused; found `{name}` with `count_denied`"
        ));
    }
    Ok(())
}

/// Checks that no limit pays whose state would be ahead of its grants.
///
/// # Errors
/// The message names the first payer.
pub(super) fn check_ahead(limits: &Limits) -> Result<(), String> {
    match limits.iter().find(|limit| limit.payer.is_some()) {
        None => Ok(()),
        Some(payer) => Err(format!(
            "`persist_ahead`: expected no `payer`, because after a crash another limit would pay than before; found `{}`",
            payer.name
        )),
    }
}
