//! Which limits take part in a request, and what each of them says.

use alloc::borrow::Cow;

use tidegate_core::{CostExceedsCapacity, Decision, Micros, Timestamp};

use super::limits::{LimitFacts, Limits, MAX_LIMITS};
use super::operate::split;
use super::verdict::for_ever;
use crate::limit::{KnownFor, Limit, OperationError, Request};

/// Which limits grant a request. It fits into registers; an array would be copied through memory, which
/// costs 5 ns.
#[derive(Clone, Copy)]
pub(super) struct Grants {
    /// One bit for each limit, the lowest for the first of [`Limits::iter`].
    refuses: u16,
    /// The limits whose refusals do not count, in the same order.
    shadows: u16,
    /// The limits of which one has to grant, in the same order.
    payers: u16,
    /// The place of the limit that pays, or [`NOBODY`].
    payer: u8,
    /// For how long no payer may take the request, because the id of its reservation is not forgotten.
    blocked_for: Micros,
}

const _: () = assert!(MAX_LIMITS <= 16, "a limit has no bit");

const NOBODY: u8 = u8::MAX;

/// The part of a limit in a request.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// Whether the limit grants the request by itself.
    pub(super) grants: bool,
    role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The request passes only if the limit grants it.
    Enforced,
    /// The limit refuses nothing.
    Shadow,
    /// The limit is the payer that is charged if the request passes.
    Pays,
    /// The limit is another payer.
    StandsAside,
}

impl Limits {
    /// Which limits would grant the request.
    #[inline] // a call would move the answer in memory
    pub(super) fn grants(
        &self,
        words: &[u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Grants, OperationError> {
        let (shadows, payers) = (self.shadows(), self.payers().bits());
        let refuses = self.refusals(words, now, request, shadows | payers)?;
        let (refuses, payer, blocked_for) = match payers {
            0 => (refuses, NOBODY, Micros::ZERO),
            _ => self.with_payer(refuses, words, now, request)?,
        };
        Ok(Grants { refuses, shadows, payers, payer, blocked_for })
    }

    /// One bit for each limit that would refuse the request, the lowest for the first of [`iter`](Self::iter). That a limit can never
    /// grant the cost is an error, unless the limit is one of the `lenient` ones.
    #[inline(never)]
    fn refusals(
        &self,
        words: &[u64],
        now: Timestamp,
        request: &Request,
        lenient: u16,
    ) -> Result<u16, OperationError> {
        let mut refuses = 0;
        for ((LimitFacts { limit, .. }, words), bit) in split(self, words).zip(0..16) {
            let grants = match limit.grants(words, now, request) {
                Err(OperationError::Cost(_)) if has(lenient, bit) => false,
                grants => grants?,
            };
            refuses |= u16::from(!grants) << bit;
        }
        Ok(refuses)
    }

    /// Chooses the payer: the first one with room for the cost. A reservation that is repeated stays with the payer that knows its id.
    /// Returns which limits then refuse, the payer, and for how long no payer may take the request.
    #[cold]
    #[inline(never)]
    fn with_payer(
        &self,
        refuses: u16,
        words: &[u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<(u16, u8, Micros), OperationError> {
        let id = request.lease.filter(|_| request.reserves());
        let known = id.and_then(|id| self.payer_of(words, now, id));
        if let Some((payer, KnownFor::Live)) = known {
            return Ok((refuses & !bit_of(payer), payer, Micros::ZERO)); // nothing more is taken
        }
        let cost = request.cost;
        if let Some(capacity) = self.payers_capacity().filter(|most| cost > *most) {
            return Err(CostExceedsCapacity { cost, capacity }.into());
        }
        if let Some((_, KnownFor::Ended(blocked_for))) = known {
            return Ok((refuses, NOBODY, blocked_for));
        }
        let has_room = |place: &u8| refuses & bit_of(*place) == 0;
        let payer = self.payers().in_order().find(has_room).unwrap_or(NOBODY);
        Ok((refuses, payer, Micros::ZERO))
    }
}

#[inline]
const fn has(bits: u16, place: u8) -> bool {
    bits >> place & 1 == 1
}

fn bit_of(place: u8) -> u16 {
    1_u16.checked_shl(place.into()).unwrap_or(0)
}

impl Grants {
    /// Whether the request passes.
    pub(super) const fn pass(self) -> bool {
        let is_paid = self.payers == 0 || self.payer != NOBODY;
        self.refuses & !(self.shadows | self.payers) == 0 && is_paid
    }

    /// For how long no payer may take the request, because the id of its reservation is not forgotten.
    pub(super) const fn blocked_for(self) -> Micros {
        self.blocked_for
    }

    /// The part of each limit, in the order of [`Limits::iter`].
    #[inline]
    pub(super) fn parts(self) -> impl Iterator<Item = Part> {
        (0_u8..16).map(move |place| self.part(place))
    }

    /// The part of the limit at this place.
    #[inline]
    pub(super) const fn part(self, place: u8) -> Part {
        let role = match place {
            _ if !has(self.shadows | self.payers, place) => Role::Enforced,
            _ if has(self.shadows, place) => Role::Shadow,
            _ if place == self.payer => Role::Pays,
            _ => Role::StandsAside,
        };
        Part { grants: !has(self.refuses, place), role }
    }

    /// Whether the limit at this place is the payer that is charged if the request passes.
    #[inline]
    pub(super) const fn pays(self, place: u8) -> bool {
        self.payer == place
    }
}

impl Part {
    /// Whether the limit takes the cost if the request passes.
    #[inline]
    pub(super) fn takes(self) -> bool {
        self.grants && self.role != Role::StandsAside
    }

    /// Whether the limit is the payer that is charged if the request passes.
    pub(super) fn pays(self) -> bool {
        self.role == Role::Pays
    }

    fn is_payer(self) -> bool {
        matches!(self.role, Role::Pays | Role::StandsAside)
    }

    /// The request as the limit takes it. A reservation that is repeated at a higher cost is none that its payer can never grant.
    #[inline]
    pub(super) fn asked<'a>(self, limit: &Limit, request: &'a Request) -> Cow<'a, Request> {
        match self.role {
            Role::Pays => {
                Cow::Owned(Request { cost: request.cost.min(limit.capacity()), ..*request })
            }
            _ => Cow::Borrowed(request), // a copy would be moved in memory
        }
    }

    /// Takes the cost of a request that passes, or lets a limit that takes nothing record its refusal. Returns what the limit says.
    #[cold]
    #[inline(never)]
    pub(super) fn take_softly(
        self,
        limit: &Limit,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, OperationError> {
        match self.takes() {
            true => limit.decide(words, now, &self.asked(limit, request)), // grants
            false => Ok(self.refuse_softly(limit, words, now, request, Micros::ZERO)?.0),
        }
    }

    /// Lets a limit record a refusal, its own or that of another limit. Returns what the limit says of the request, and how long the
    /// request has to wait because of it.
    #[inline]
    pub(super) fn refuse(
        self,
        limit: &Limit,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
        blocked_for: Micros,
    ) -> Result<(Decision, Micros), OperationError> {
        match self.role {
            Role::Enforced => limit.refuse(words, now, request, self.grants),
            _ => self.refuse_softly(limit, words, now, request, blocked_for),
        }
    }

    #[cold]
    #[inline(never)]
    fn refuse_softly(
        self,
        limit: &Limit,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
        blocked_for: Micros,
    ) -> Result<(Decision, Micros), OperationError> {
        let request = &self.asked(limit, request);
        if self.is_blocked(blocked_for) || self.is_too_much(limit, request) {
            limit.advance(words, now);
            let said = self.look(limit, words, now, request, blocked_for)?;
            return Ok((said, said.retry_after()));
        }
        limit.refuse(words, now, request, self.grants)
    }

    /// What a limit says of a request, and changes nothing. For a limit whose refusal alone refuses nothing, a cost that it can never
    /// grant is no error, but a refusal for ever.
    pub(super) fn look(
        self,
        limit: &Limit,
        words: &[u64],
        now: Timestamp,
        request: &Request,
        blocked_for: Micros,
    ) -> Result<Decision, OperationError> {
        let untaken = || limit.peek(words, now, &request.peek());
        let said = match self.is_too_much(limit, request) {
            true => for_ever(untaken()?),
            false => limit.peek(words, now, request)?,
        };
        if !self.is_blocked(blocked_for) {
            return Ok(said);
        }
        // refused until the id is forgotten, and then the payer must have room
        let retry_after = said.retry_after().max(blocked_for);
        let untaken = untaken()?;
        let (limit, remaining) = (untaken.limit(), untaken.remaining());
        Ok(Decision::Deny { limit, remaining, retry_after, reset_after: untaken.reset_after() })
    }

    fn is_too_much(self, limit: &Limit, request: &Request) -> bool {
        self.role != Role::Enforced && request.cost > limit.capacity()
    }

    fn is_blocked(self, blocked_for: Micros) -> bool {
        self.is_payer() && blocked_for > Micros::ZERO
    }
}

/// How long a refused request has to wait: until all enforced limits grant it, and one payer does.
#[derive(Clone, Copy, Default)]
pub(super) struct Waits {
    enforced: Micros,
    payers: Option<Micros>,
}

impl Waits {
    /// Adds the wait of the next limit. A limit in shadow makes nobody wait.
    #[inline]
    pub(super) fn add(&mut self, part: Part, wait: Micros) {
        match part.role {
            Role::Shadow => {}
            Role::Enforced => self.enforced = self.enforced.max(wait),
            Role::Pays | Role::StandsAside => {
                self.payers = Some(self.payers.map_or(wait, |least| least.min(wait)));
            }
        }
    }

    pub(super) fn all(self) -> Micros {
        self.enforced.max(self.payers.unwrap_or_default())
    }
}
