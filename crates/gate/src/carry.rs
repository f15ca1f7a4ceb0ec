//! What becomes of a state when its limits are edited.
//!
//! The rule is the policy's: nothing of the old state (`reset`, which needs none of this), what was
//! used in units (`keep`), or what was used as a share of the capacity (`proportional`). What was
//! used counts as used at the newest time. So over an edit no more is granted than the more lenient of
//! the two would have granted alone. While some nodes still run the old file, each state that goes
//! from one kind of node to the other is carried over, and what exceeds the smaller capacity is
//! forgotten on the way.

#[cfg(test)]
mod tests;

use alloc::vec;
use alloc::vec::Vec;

use tidegate_core::Timestamp;
use tidegate_core::lease::budget::Refundable;

use crate::limit::{Kind, Limit};
use crate::limits::Part;
use crate::policy::OnChange;
use crate::request::Request;

/// The words under the limits of `part` of a state that was written under those of `old`, limit by
/// limit in their order.
pub(crate) fn carry(part: &Part, old: &Part, words: &[u64], rule: OnChange) -> Vec<u64> {
    let newest = old.split(words).map(|(limit, words)| limit.newest_and_reset(words).0).max();
    let newest = newest.unwrap_or_default();
    let mut olds = old.split(words);
    let mut carried = Vec::with_capacity(part.words());
    for named in part.limits() {
        let mut own = vec![0; named.limit.words()];
        match olds.next() {
            Some((old, words)) if *old == named.limit => own.copy_from_slice(words),
            Some((old, words)) => adopt(&named.limit, &mut own, (old, words), newest, rule),
            None => {}
        }
        named.limit.advance(&mut own, newest);
        carried.extend(own);
    }
    carried
}

fn adopt(
    limit: &Limit,
    own: &mut [u64],
    (old, words): (&Limit, &[u64]),
    newest: Timestamp,
    rule: OnChange,
) {
    if limit.adopts(own, old, words) || (limit.kind(), old.kind()) != (Kind::Rate, Kind::Rate) {
        return;
    }
    let (capacity, was) = (limit.capacity(), old.capacity());
    let used = was.saturating_sub(remaining(old, words, newest));
    let used = match rule {
        OnChange::Proportional => share(used, capacity, was),
        OnChange::Keep | OnChange::Reset => used.min(capacity),
    };
    limit.advance(own, newest);
    let counted = capacity.saturating_sub(remaining(limit, own, newest)); // all, if it starts empty
    if let Some(more) = used.checked_sub(counted) {
        limit.charge(own, newest, more);
    } else {
        let units = counted.saturating_sub(used);
        let after = tidegate_core::Micros::ZERO;
        limit.refund(own, newest, &Refundable { units, granted: units, granted_at: newest, after });
    }
}

fn remaining(limit: &Limit, words: &[u64], now: Timestamp) -> u64 {
    limit.peek(words, now, &Request::of(0)).map_or(0, |looked| looked.remaining())
}

/// used / was of the capacity, up: a started unit is used.
fn share(used: u64, capacity: u64, was: u64) -> u64 {
    let product = u128::from(used).saturating_mul(capacity.into());
    let up = product.saturating_add(u128::from(was).saturating_sub(1));
    u64::try_from(up.checked_div(was.into()).unwrap_or(0)).unwrap_or(u64::MAX).min(capacity)
}
