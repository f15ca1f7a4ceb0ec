//! Why a request passes or not, in words.

use alloc::format;
use alloc::string::String;

use tidegate_core::{Decision, Micros, Timestamp};

use super::operate::split;
use super::{Effect, Limits, Verdict};
use crate::limit::{Kind, Limit, NamedLimit, OperationError, Request, wait};

/// Why a request passes or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The name of the limit that refuses longest, or by whose `limit` and `remaining` the answer goes; `None` if a list or a block
    /// decides.
    pub limit: Option<String>,
    /// The rate, the gap or the whole limit that decides, in words; empty if a list or a block decides.
    pub bound: String,
    /// A sentence.
    pub text: String,
}

impl Explanation {
    fn of_no_limit(text: String) -> Self {
        Self { limit: None, bound: String::new(), text }
    }

    /// Explains the answer to a request on a key that is on a list.
    pub(crate) fn listed(decision: Decision) -> Self {
        let (list, fate) = match decision.is_allowed() {
            true => ("allow", "pass"),
            false => ("deny", "are refused"),
        };
        Self::of_no_limit(format!(
            "The key is on the list `{list}`, so its requests {fate} and are not counted."
        ))
    }

    /// Explains why a request passes all the same: what refuses it is in shadow.
    pub(crate) fn in_shadow(mut self, what: &str) -> Self {
        self.text = format!(
            "The request passes, because {what} is in shadow. Otherwise it would be refused: {}",
            self.text
        );
        self
    }
}

impl Limits {
    /// Looks at a request, and says which limit is full, or what holds the request up.
    pub(super) fn look_why(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Verdict, OperationError> {
        let verdict = self.looked_at(words, now, request)?;
        let effect = match verdict.decision.is_allowed() {
            true => {
                let by = verdict.effect.payer().and_then(|by| u8::try_from(by).ok());
                self.full(words, now, None).map(|limit| Effect::Full { limit, by })
            }
            false => self.held_by(words, &verdict, request.cost),
        };
        Ok(Verdict { effect: effect.unwrap_or(verdict.effect), ..verdict })
    }

    /// The part of the deciding limit that holds a refused request back; `None` if it is the whole limit.
    fn held_by(&self, words: &[u64], verdict: &Verdict, cost: u64) -> Option<Effect> {
        let (deciding, _) = self.deciding(verdict)?;
        let mut each = self.iter().zip(split(self, words));
        let (_, (each, words)) = each.find(|(named, _)| named.name == deciding.name)?;
        each.limit.held_by(words, verdict.at, cost).map(|part| Effect::Bound { part })
    }

    /// The limit that explains the verdict, and its answer. Of limits that refuse, that is the one that refuses longest, or one in
    /// shadow if the others let the request pass; a limit that decides by chance comes last. Otherwise it is the one whose numbers
    /// [`Together`](super::together::Together) answers, or a penalty that leaves nothing.
    fn deciding<'a>(&'a self, verdict: &'a Verdict) -> Option<(&'a NamedLimit, &'a Decision)> {
        let passes = verdict.decision.is_allowed();
        let in_shadow = self
            .iter()
            .zip(&verdict.limits)
            .filter(move |(named, said)| passes && named.shadow && !said.is_allowed());
        self.counting(verdict).chain(in_shadow).min_by_key(
            |(NamedLimit { limit, payer, .. }, said)| {
                let (left, punishes) = (said.remaining(), limit.punishes_refusals());
                match said.is_allowed() {
                    false if is_by_chance(limit) => (false, Kind::Shed, 0, false),
                    false => {
                        (false, Kind::Rate, u64::MAX.saturating_sub(said.retry_after().0), false)
                    }
                    true if punishes && left == 0 => (true, Kind::Rate, 0, true),
                    true => (true, limit.kind(), left, payer.is_some()),
                }
            },
        )
    }

    /// Explains the verdict on an [`Operation::Explain`](crate::Operation::Explain); `None` if it is that of other limits.
    pub(crate) fn explain(&self, verdict: &Verdict, cost: u64) -> Option<Explanation> {
        if let Effect::Blocked { left } = verdict.effect {
            let text = format!("The key is blocked for another {}.", wait(left));
            return Some(Explanation::of_no_limit(text));
        }
        let (named, said) = self.deciding(verdict)?;
        let (name, kind) = (&named.name, named.limit.kind());
        let left = format!("{} of {}", said.remaining(), said.limit());
        let part = match verdict.effect {
            Effect::Bound { part } => named.limit.describe_part(part),
            _ => None,
        };
        let bound = part.unwrap_or_else(|| named.limit.describe());
        let text = if said.is_allowed() {
            let payer = self.paid_by(verdict);
            let pays = payer.map(|payer| format!(" and `{}` pays", payer.name)).unwrap_or_default();
            let left = match kind {
                Kind::Shed => String::new(), // it counts no units that are left
                _ => format!(" After it `{name}` has the least left ({bound}): {left}."),
            };
            format!("The request passes{pays}.{left}")
        } else if is_by_chance(&named.limit) {
            format!("`{name}` may refuse ({bound}); chance decides.")
        } else {
            let left = match kind {
                Kind::Rate => format!(": {left} are left and the request costs {cost}"),
                Kind::Lease => format!(": {left} places are left"),
                _ => String::new(), // a penalty, whatever the cost
            };
            let when = match said.retry_after() {
                Micros::MAX => "it never passes".into(),
                after => format!("it passes in {}{}", wait(after), self.unless(verdict, kind)),
            };
            format!("`{name}` refuses ({bound}){left}; {when}.")
        };
        let why = Explanation { limit: Some(name.clone()), bound, text };
        let in_shadow = named.shadow && !said.is_allowed();
        let mut why = if in_shadow { why.in_shadow(&format!("`{name}`")) } else { why };
        why.text.extend(self.no_place(verdict));
        Some(why)
    }

    /// Says that a reservation would be refused although the request passes.
    fn no_place(&self, verdict: &Verdict) -> Option<String> {
        let Effect::Full { limit, .. } = verdict.effect else { return None };
        let NamedLimit { name, limit, .. } = self.iter().nth(limit.into())?;
        let most = limit.most_held()?;
        Some(format!(" A reservation would find no place: all {most} of `{name}` are taken."))
    }

    /// What may change the wait for a limit of this kind, which refuses longest.
    fn unless(&self, verdict: &Verdict, kind: Kind) -> &'static str {
        let is_rough = |limit: &Limit| limit.kind() == Kind::Lease || is_by_chance(limit);
        let mut all = self.counting(verdict);
        match kind {
            Kind::Lease => ", unless places are released or renewed",
            _ if all.any(|(named, said)| !said.is_allowed() && is_rough(&named.limit)) => {
                " at the earliest"
            }
            _ => "",
        }
    }
}

/// Whether the limit lets a part of the requests pass that it refuses. A penalty refuses all of them.
fn is_by_chance(limit: &Limit) -> bool {
    limit.kind() == Kind::Shed && !limit.punishes_refusals()
}
