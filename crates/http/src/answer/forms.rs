//! The JSON of answers.

use alloc::string::String;
use core::ops::Range;

use tidegate_gate::Probability;
use tidegate_gate::{Decision, Effect};

use super::json::{Object, Plain, object};
use super::{CheckResult, Outcome, renew_every};
use tidegate_gate::Limits;

pub(crate) fn single(result: &CheckResult<'_>) -> String {
    object(|it| {
        write(result, it);
        if let Outcome::Decided(verdict) = result.outcome
            && let Some(why) = result.asked.explain(verdict)
        {
            it.some("limit_name", why.limit.as_deref());
            it.field("bound", why.bound.as_str());
            it.field("text", why.text.as_str());
        }
    })
}

/// The answer to a request for a lease.
pub(crate) fn lease(result: &CheckResult<'_>) -> String {
    object(|it| {
        write(result, it);
        let renew_every = match result.outcome {
            Outcome::Decided(verdict) => renew_every(result.asked, verdict),
            Outcome::Unavailable(_) | Outcome::Unreadable(_) => None,
        };
        it.some("renew_every_us", renew_every.map(|span| span.0));
    })
}

pub(crate) fn batch<'r>(results: impl Iterator<Item = CheckResult<'r>>) -> String {
    object(|it| it.objects("decisions", results, |result, it| write(&result, it)))
}

/// Checks that were decided one after another. `returned` says of each check before the refused one whether what it granted came
/// back; `None` if all passed.
pub(crate) fn all_or_nothing(results: &[CheckResult<'_>], returned: Option<&[bool]>) -> String {
    object(|it| {
        it.field("allowed", returned.is_none());
        let returned = returned.unwrap_or_default().iter().copied().map(Some);
        let all = results.iter().zip(returned.chain(core::iter::repeat(None)));
        it.objects("decisions", all, |(result, returned), it| {
            write(result, it);
            it.some("returned", returned);
        });
    })
}

fn write(result: &CheckResult<'_>, it: &mut Object<'_>) {
    let (resolved, allowed) = (result.asked.resolved(), result.passes());
    let policy = resolved.policy();
    it.field("policy", Plain(policy.name()));
    let verdict = match result.outcome {
        Outcome::Decided(verdict) => verdict,
        Outcome::Unavailable(reason) | Outcome::Unreadable(reason) => {
            it.field("allowed", allowed);
            // why the store did not answer, so that the policy's `on_error` decided
            it.field("degraded", reason.as_str());
            return;
        }
    };
    let shadow = policy.is_shadow();
    let factor = verdict.factor.map(Probability::units); // the fraction to refuse, in units of 2^-32
    let of_all = decided(it, allowed, &verdict.decision);
    it.some("denied", resolved.is_denied().then_some(true)); // no wait helps
    it.field("at_us", verdict.at.0);
    it.some("degraded", verdict.degraded.then_some(BY_SHARE));
    // the lease or the reservation that the operation concerns
    it.some(if result.asked.names_reservation() { "id" } else { "lease" }, result.asked.lease());
    it.some("live", verdict.effect.live()); // whether it was live when it was renewed or released
    it.some("factor", factor.map(|units| if shadow { 0 } else { units }));
    it.some("would_factor", factor.filter(|_| shadow)); // `factor` without shadow mode
    let payer = resolved.limits().and_then(|limits| limits.paid_by(verdict));
    it.some("paid_by", payer.map(|payer| payer.name.as_str())); // the limit that was charged, of those that pay
    match result.asked.effect(verdict) {
        Effect::Reserved { units, until, .. } => {
            it.field("reserved", units);
            it.some("expires_at_us", (units > 0).then_some(until.0));
        }
        Effect::Committed { charged, late, .. } => {
            it.field("charged", charged);
            it.field("late", late);
        }
        Effect::Budget { allowance, .. } => it.object("budget", |it| {
            it.field("granted", allowance.left);
            it.field("granted_at_us", allowance.granted_at.0);
            it.field("expires_at_us", allowance.expires_at.0); // the units must not be spent from then on
        }),
        _ => {} // the decision says all, or `live` does
    }
    let (soft, allows) = (result.softness(verdict), verdict.decision.is_allowed());
    // without shadow: that of the policy, or else that of limits
    it.some("would_allow", if shadow { Some(allows) } else { soft.would_allow(allows) });
    it.some("warned", soft.warns().then_some(true)); // a limit is used as far as its `warn_at`
    let limits = resolved.limits().into_iter().flat_map(Limits::iter);
    let limits = limits.zip(&verdict.limits).zip(soft.each());
    it.objects("limits", limits, |((limit, decision), (shadow, warns)), it| {
        it.field("name", Plain(&limit.name));
        it.some("shadow", shadow.then_some(true)); // its refusal does not count
        if *decision == verdict.decision && allows == allowed {
            it.again(of_all.clone()); // an only limit says what all say
        } else {
            decided(it, decision.is_allowed(), decision);
        }
        it.some("warned", warns.then_some(true));
        it.some("zone_data", limit.limit.zone_version());
    });
}

/// Why a node has decided by itself.
pub(crate) const BY_SHARE: &str =
    "the store is unavailable, so this node decided by its share of the limits";

/// Returns the places of the fields that it writes.
fn decided(it: &mut Object<'_>, allowed: bool, decision: &Decision) -> Range<usize> {
    let start = it.next();
    it.field("allowed", allowed);
    it.field("limit", decision.limit());
    it.field("remaining", decision.remaining());
    it.field("retry_after_us", decision.retry_after().0);
    it.field("reset_after_us", decision.reset_after().0);
    start..it.end()
}
