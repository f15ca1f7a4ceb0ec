//! Which limits pay, and in which order.

use alloc::vec::Vec;

use crate::limit::NamedLimit;

/// Which limits pay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Payers {
    /// One bit for each payer, the lowest for the first of [`Limits::iter`].
    bits: u16,
    /// Their places in [`Limits::iter`], in the order in which they pay.
    order: Vec<u8>,
}

impl Payers {
    pub(super) fn of(limits: &[NamedLimit]) -> Self {
        let places = limits.iter().zip(0_u8..).filter(|(limit, _)| limit.payer.is_some());
        let places = places.map(|(limit, place)| (place, limit.payer));
        let places = in_order_of(places, |(_, payer)| *payer);
        let order: Vec<u8> = places.into_iter().map(|(place, _)| place).collect();
        let bit = |place: &u8| 1_u16.checked_shl((*place).into()).unwrap_or(0);
        Self { bits: order.iter().map(bit).fold(0, |all, bit| all | bit), order }
    }

    #[inline]
    pub(super) const fn bits(&self) -> u16 {
        self.bits
    }

    /// Their places in [`Limits::iter`], in the order in which they pay.
    pub(super) fn in_order(&self) -> impl DoubleEndedIterator<Item = u8> {
        self.order.iter().copied()
    }
}

/// A few items in the order of what each says; those that say the same stay in their order. A sort would take 12 KB of code.
pub(crate) fn in_order_of<T>(
    items: impl Iterator<Item = T>,
    says: impl Fn(&T) -> Option<u8>,
) -> Vec<T> {
    let mut ordered = Vec::new();
    for item in items {
        let at = ordered.partition_point(|other| says(other) <= says(&item));
        ordered.insert(at, item);
    }
    ordered
}
