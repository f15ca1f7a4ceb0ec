//! What JavaScript calls for a limiter on Durable Objects alone, and what the Worker's crate does, which sends its questions.

use tidegate_gate::Micros;
use tidegate_tier::wire::Outbox;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::tier::Tier;
use crate::chance::Chance;
use crate::far::Authority;
use crate::input::{parsed, quantity};

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
        let read = parsed(text, written, name.as_deref())?;
        let deadline = Micros(quantity("options.deadline", "INVALID_OPTION", deadline_us)?);
        let tier = Tier::new((text, name.as_deref()), prefix, deadline);
        Ok(Self::of(read, deadline, Chance::default(), tier))
    }
}

impl Authority {
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
