//! What JavaScript calls for a limiter on Redis alone.

use js_sys::Function;
use tidegate_gate::Micros;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::slot::Masters;
use super::tier::Tier;
use crate::chance::Chance;
use crate::far::Authority;
use crate::input::{parsed, quantity};

#[wasm_bindgen(js_class = NativeAuthority)]
impl Authority {
    /// An authority with the policy in `text`, or with the policy `name` of the file in `text`. `written` says whether the caller
    /// wrote this text, so that errors name its lines. In a Cluster `master_of` says which master has a slot: a number, or 0 if nobody knows.
    /// `texts` says whether the client carries no other bytes than those of texts.
    ///
    /// # Errors
    /// Throws a text that `errors.js` reads, as all calls do.
    #[wasm_bindgen(constructor)]
    pub fn new(
        text: &str,
        written: bool,
        name: Option<String>,
        prefix: String,
        deadline_us: f64,
        master_of: Option<Function>,
        texts: bool,
    ) -> Result<Self, JsValue> {
        let (policy, gateway) = parsed(text, written, name.as_deref())?;
        let deadline = Micros(quantity("options.deadline", "INVALID_OPTION", deadline_us)?);
        let mut chance = Chance::default();
        let tier = Tier::new((prefix, Masters(master_of), texts), &policy, deadline, &mut chance)?;
        Ok(Self::of((policy, gateway), deadline, chance, tier))
    }

    /// Begins a call if one is due, or if operations wait and not too many calls are under way. Returns its number.
    #[wasm_bindgen(js_name = beginCall)]
    pub fn begin_call(&mut self, now: f64, at: f64) -> Option<usize> {
        self.tier.begin_call(now, at)
    }

    /// When [`begin_call`](Self::begin_call) is next of use without a new operation.
    #[wasm_bindgen(js_name = dueUs)]
    pub fn due_us(&mut self) -> Option<f64> {
        self.tier.due_us()
    }

    /// Whether [`begin_call`](Self::begin_call) is of use at another time than [`due_us`](Self::due_us) has said.
    #[wasm_bindgen(js_name = isDueOtherwise)]
    #[must_use]
    pub fn is_due_otherwise(&self) -> bool {
        self.tier.is_due_otherwise()
    }

    /// The words of the command that a call sends next, one after another; `undefined` if the call has ended.
    #[must_use]
    pub fn command(&self, call: usize) -> Option<Vec<u8>> {
        self.tier.command(call).map(|command| command.bytes().to_vec())
    }

    /// Where each word of [`command`](Self::command) ends; below zero if it is of ASCII.
    #[must_use]
    pub fn ends(&self, call: usize) -> Option<Vec<i32>> {
        self.tier.command(call).map(|command| command.ends().to_vec())
    }

    /// The slot of a Cluster that a call is about; `undefined` if the call has ended.
    #[must_use]
    pub fn slot(&self, call: usize) -> Option<u16> {
        self.tier.slot(call)
    }

    /// Takes the reply to the command of a call: what the client returned, or the `Error` that it threw.
    pub fn reply(&mut self, call: usize, reply: &JsValue, now: f64, at: f64) {
        self.tier.reply(call, reply, now, at);
    }

    /// Ends a call that gets no reply, for this reason.
    #[wasm_bindgen(js_name = giveUp)]
    pub fn give_up(&mut self, call: usize, why: String, now: f64, at: f64) {
        self.tier.give_up(call, why, now, at);
    }

    /// Asks Redis to take back the units that this process holds, and ends what it asks by itself.
    #[wasm_bindgen(js_name = giveBack)]
    pub fn give_back(&mut self, now: f64, at: f64) {
        self.tier.give_back(now, at);
    }
}
