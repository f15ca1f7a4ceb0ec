//! What a limiter on Durable Objects has in place of `driver.rs`: its operations wait for objects, whose questions the Worker's crate
//! sends.

use slab::Slab;
use tidegate_gate::{Micros, Timestamp};
use tidegate_tier::wire::Outbox;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::operate::Begun;
use super::{Authority, Caller, Said, Waiting};
use crate::answer::NO_NUMBERS;
use crate::chance::Chance;
use crate::limiter::{parsed, quantity};
use crate::objects::Tier;

#[wasm_bindgen(js_class = NativeAuthority)]
impl Authority {
    /// A limiter with the policy in `text`, or with the policy `name` of the file in `text`. `written` says whether the caller
    /// wrote this text, so that errors name its lines.
    ///
    /// # Errors
    /// Throws a text that `errors.js` reads, as all calls do.
    #[wasm_bindgen(constructor)]
    pub fn new(
        text: &str,
        written: bool,
        name: Option<String>,
        prefix: &str,
        deadline_us: f64,
    ) -> Result<Self, JsValue> {
        let (policy, gateway) = parsed(text, written, name.as_deref())?;
        let deadline = Micros(quantity("options.deadline", "INVALID_OPTION", deadline_us)?);
        Ok(Self {
            policy,
            gateway,
            tier: Tier::new((text, name.as_deref()), prefix, deadline),
            waiting: Slab::new(),
            timed: 0,
            begun: Begun::default(),
            deadline,
            chance: Chance::default(),
            numbers: Box::new(NO_NUMBERS),
            said: Said::default(),
        })
    }

    /// The token of the next answer, which then is the last answer.
    #[wasm_bindgen(js_name = pollAnswer)]
    pub fn poll_answer(&mut self, _at: f64) -> Option<usize> {
        let (token, answer) = self.tier.poll_answer()?;
        if let Some(Waiting::Caller(caller)) = self.waiting.try_remove(token) {
            self.said = self.say(caller, answer);
        }
        Some(token)
    }
}

impl Authority {
    pub(super) fn queue(&mut self, caller: Caller, now: Timestamp) -> usize {
        let Caller { operation, is_timed, at, .. } = caller;
        let resolved = caller.resolved.clone();
        let token = self.waiting.insert(Waiting::Caller(caller));
        self.tier.ask(resolved, operation, (now, is_timed, at), token);
        token
    }

    /// Why no object can be asked.
    #[expect(clippy::unused_self, reason = "Redis has several reasons")]
    pub(super) const fn cause(&self) -> &'static str {
        "no reply came"
    }

    /// The questions to send, and their replies.
    pub const fn outbox(&mut self) -> &mut Outbox<Option<usize>> {
        self.tier.outbox()
    }

    /// The policy, for [`policy_of`](crate::policy_of) in an object that does not know it.
    #[must_use]
    pub fn policy(&self) -> &str {
        self.tier.policy()
    }

    /// What the name of each object begins with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.tier.prefix()
    }
}
