//! Division by a number that is known when the configuration is built.
//!
//! Each decision divides two or three times, always by the same divisors. Outside of WebAssembly the reciprocal is
//! computed once, and each division becomes a multiplication: Granlund and Montgomery, "Division
//! by Invariant Integers using Multiplication" (PLDI 1994), figure 4.1, N = 64. The quotient is
//! exact for every u64.

/// A divisor from 1 to 2^64 − 1 with its reciprocal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Divisor {
    value: u64,
    /// m' = ⌊2^64·(2^l − d) / d⌋ + 1 with l = ⌈log2 d⌉.
    magic: u64,
    /// sh1 = min(l, 1).
    shift_first: u8,
    /// sh2 = max(l − 1, 0).
    shift_last: u8,
}

impl Divisor {
    /// `value` must not be 0. A 0 is taken as 1, but no caller relies on that.
    #[expect(clippy::as_conversions, reason = "const fn; each fits, as said beside it")]
    #[expect(clippy::arithmetic_side_effects, reason = "const fn; bounds said beside each line")]
    pub(crate) const fn new(value: u64) -> Self {
        let value = if value == 0 { 1 } else { value };
        let log2_ceil = 64 - (value - 1).leading_zeros(); // 0 ..= 64
        let power = 1_u128 << log2_ceil; // at most 2^64
        let magic = ((power - value as u128) << 64) / value as u128 + 1; // 2^l − d < d, so < 2^64 + 1
        Self {
            value,
            magic: magic as u64, // 2^64 only if 2^l − d = d − 0, which 2^l < 2·d excludes
            shift_first: if log2_ceil > 1 { 1 } else { log2_ceil as u8 },
            shift_last: if log2_ceil > 1 { (log2_ceil - 1) as u8 } else { 0 },
        }
    }

    pub(crate) const fn value(self) -> u64 {
        self.value
    }

    /// ⌊n / d⌋
    #[inline]
    #[expect(clippy::as_conversions, reason = "the high word of a 128-bit product")]
    pub(crate) const fn floor(self, n: u64) -> u64 {
        if cfg!(target_family = "wasm") {
            // it has no product of 128 bits but calls a function for it
            return match n.checked_div(self.value) {
                Some(quotient) => quotient,
                None => 0, // never: the divisor is at least 1
            };
        }
        let high = ((n as u128).wrapping_mul(self.magic as u128) >> 64) as u64; // at most n
        let half = n.wrapping_sub(high) >> self.shift_first;
        high.wrapping_add(half) >> self.shift_last
    }

    /// n mod d
    #[inline]
    pub(crate) const fn rem(self, n: u64) -> u64 {
        n.wrapping_sub(self.floor(n).wrapping_mul(self.value))
    }

    /// ⌈n / d⌉
    #[inline]
    pub(crate) const fn ceil(self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.floor(n.wrapping_sub(1)).wrapping_add(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::Divisor;
    use proptest::prelude::*;

    fn check(n: u64, d: u64) {
        let divisor = Divisor::new(d);
        assert_eq!(divisor.floor(n), n / d, "{n} / {d}");
        assert_eq!(divisor.rem(n), n % d, "{n} % {d}");
        assert_eq!(divisor.ceil(n), n.div_ceil(d), "{n} / {d} rounded up");
    }

    #[test]
    fn divides_as_the_machine_does_at_the_boundaries() {
        let mut values = std::vec![1, 3, 7, 10, 1_000_000, 60_000_000, u64::MAX, u64::MAX - 1];
        for shift in 1..64 {
            values.extend([(1 << shift) - 1, 1 << shift, (1 << shift) + 1]);
        }
        for &d in &values {
            for &n in &values {
                check(n, d);
                check(n / d * d, d);
                check((n / d * d).wrapping_sub(1), d);
            }
            check(0, d);
        }
    }

    proptest! {
        #[test]
        fn divides_as_the_machine_does(n: u64, d in 1..=u64::MAX) {
            check(n, d);
        }
    }
}
