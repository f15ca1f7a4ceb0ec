//! What an answer says beside its decision.

use crate::decide::{Limits, Verdict};

/// What limits say of a verdict beside their decision: which of them are in shadow, and which warn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Softness {
    /// One bit for each limit, the lowest for the first of [`Limits::iter`].
    shadows: u16,
    warns: u16,
    would_refuse: bool,
}

impl Limits {
    /// Whether a limit is in shadow, [warns](crate::NamedLimit::warns) or pays, so that an answer says more than its decision.
    #[must_use]
    pub fn are_soft(&self) -> bool {
        self.have_payers() || self.shadow_or_warn()
    }

    /// What the limits say of a verdict beside their decision.
    #[must_use]
    #[inline(never)] // it is small, and asked for in many places
    pub fn softness(&self, verdict: &Verdict) -> Softness {
        let mut soft = Softness { shadows: self.shadows(), ..Softness::default() };
        if !self.shadow_or_warn() {
            return soft; // most limits
        }
        for ((named, said), bit) in self.iter().zip(&verdict.limits).zip(0..u16::BITS) {
            soft.warns |= u16::from(named.warns(said)) << bit;
            soft.would_refuse |= named.shadow && !said.is_allowed();
        }
        soft
    }
}

impl Softness {
    /// Whether a limit warns: the units used have reached its `warn_at`.
    #[must_use]
    pub const fn warns(self) -> bool {
        self.warns != 0
    }

    /// Whether the request would pass if no limit were in shadow, given the `decision`; `None` if no limit is in shadow.
    #[must_use]
    pub const fn would_allow(self, allowed: bool) -> Option<bool> {
        match self.shadows {
            0 => None,
            _ => Some(allowed && !self.would_refuse),
        }
    }

    /// Whether a limit in shadow refuses what the others let pass.
    #[must_use]
    pub const fn would_refuse(self) -> bool {
        self.would_refuse
    }

    /// For each limit whether it is in shadow, and whether it warns.
    pub fn each(self) -> impl Iterator<Item = (bool, bool)> {
        let is = |all: u16, bit| all >> bit & 1 == 1;
        (0..u16::BITS).map(move |bit| (is(self.shadows, bit), is(self.warns, bit)))
    }
}
