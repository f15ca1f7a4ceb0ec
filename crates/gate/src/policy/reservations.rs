//! What a policy says of reservations: costs that are known only afterwards.

use alloc::format;
use alloc::string::String;

use tidegate_core::Micros;
use tidegate_core::hold::{MAX_HOLDS, OnExpiry, Terms};
use tidegate_core::shed::Share;

use crate::limit::build::text;
use crate::limit::{Limit, NamedLimit, span};
use crate::units::{Percent, Span};
use tidegate_form::{Bounded, Error, Form, Node, form};

form! {
    pub(super) struct ReservationsForm {
        most: Bounded<1, MAX_HOLDS> = Bounded::clamped(100),
        time_to_live: Span = Span(Micros(300_000_000)),
        remember: Span = Span(Micros(10_000_000)),
        on_expiry: Expiry = Expiry(OnExpiry::Release),
        largest_share: Option<AboveZero> = None,
    }
}

#[derive(Clone, Copy)]
struct Expiry(OnExpiry);

impl Form for Expiry {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.one_of(&[("release", Self(OnExpiry::Release)), ("charge", Self(OnExpiry::Charge))])
    }
}

/// A share of which something is left.
#[derive(Clone, Copy)]
struct AboveZero(Share);

impl Form for AboveZero {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let Percent(share) = Percent::read(node)?;
        match share.ppm() {
            0 => Err(node.refused("a share above \"0%\"")),
            _ => Ok(Self(share)),
        }
    }
}

/// What a policy says of reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservations {
    terms: Terms,
    largest_share: Option<Share>,
}

impl Reservations {
    pub(super) fn new(form: &ReservationsForm) -> Self {
        let terms = Terms {
            most: form.most.get(),
            longest: form.time_to_live.0,
            remember: form.remember.0,
            on_expiry: form.on_expiry.0,
        };
        Self { terms, largest_share: form.largest_share.map(|share| share.0) }
    }

    /// How many reservations a limit has room for, for how long, and what becomes of those that nobody commits.
    #[must_use]
    pub const fn terms(&self) -> Terms {
        self.terms
    }

    /// The units that a reservation of `cost` takes under limits of this capacity: an estimate above the largest share is cut.
    #[must_use]
    pub fn cut(&self, cost: u64, capacity: u64) -> u64 {
        let Some(share) = self.largest_share else { return cost };
        let most = u128::from(capacity).saturating_mul(share.ppm().into()).div_euclid(1_000_000);
        cost.min(u64::try_from(most).unwrap_or(u64::MAX).max(1))
    }

    /// What becomes of reservations, in words.
    pub(super) fn describe(&self) -> String {
        let Terms { most, longest, remember, on_expiry } = self.terms;
        let (longest, remember) = (span(longest), span(remember));
        let ends = match on_expiry {
            OnExpiry::Release => "its units come back",
            OnExpiry::Charge => "its units stay charged",
        };
        let share = self
            .largest_share
            .map(|share| format!("; an estimate above {} of a limit is cut to it", Percent(share)));
        format!(
            "each limit has room for {most} reservations of the keys that it counts together, each for up to {longest}; if nobody commits one, {ends}; a commit is \
             remembered for {remember}, and takes a place until then{}",
            share.unwrap_or_default()
        )
    }

    /// Makes the limits on units over time hold on these terms.
    pub(super) fn add_to(&self, limits: &mut [NamedLimit]) -> Result<(), String> {
        let mut found = false;
        for NamedLimit { limit, shadow, .. } in limits {
            let holding = limit.holding(self.terms);
            if let Some(holding) =
                holding.map_err(|error| format!("`reservations`: {}", text(error)))?
            {
                *limit = Limit::Holding(holding);
                found |= !*shadow;
            }
        }
        match found {
            true => Ok(()),
            false => {
                Err("`reservations`: expected a limit on units over time beside it, found none"
                    .into())
            }
        }
    }
}
