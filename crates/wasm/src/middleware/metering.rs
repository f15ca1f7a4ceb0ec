//! The true cost of a request, read from its response for middleware.

use std::sync::Arc;

use js_sys::Function;
use tidegate_gate::{Metering, Policy, PolicyError};
use tidegate_http::{AnswerEnd, Meter};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::failure::Failure;
use crate::number::{from_quantity, to_quantity};

/// What middleware says of costs that only the response tells.
#[wasm_bindgen]
#[derive(Debug)]
pub struct NativeMetering(Arc<Metering>);

/// What is known of the true cost of one request. It takes less than 1 KB until it is freed.
#[wasm_bindgen]
#[derive(Debug)]
pub struct NativeMeter(Meter);

impl NativeMetering {
    pub(crate) fn of(text: &str, policy: &Policy) -> Result<Self, Failure> {
        let metering = Self::read(text)?;
        if policy.reservations().is_none() {
            let name = policy.name();
            let message = format!(
                "`options`: expected a policy with `reservations` beside `actual` and `countIf`, found {name:?}, \
                 which has none"
            );
            return Err(Failure::Option(message));
        }
        Ok(metering)
    }

    fn read(text: &str) -> Result<Self, Failure> {
        let metering = Metering::parse(text).map_err(|error| {
            let PolicyError { path, message, .. } = error;
            // as JavaScript writes the names
            let path = path.replace("count_if", "countIf").replace("if_unknown", "ifUnknown");
            let dot = if path.is_empty() { "" } else { "." };
            Failure::Option(format!("`options{dot}{path}`: {message}"))
        })?;
        Ok(Self(Arc::new(metering.unwrap_or_default())))
    }
}

#[wasm_bindgen]
impl NativeMetering {
    /// What middleware says of costs, in JSON, for a policy that only a server knows.
    ///
    /// # Errors
    /// Throws the error of the text.
    #[wasm_bindgen(constructor)]
    pub fn new(text: &str) -> Result<Self, JsValue> {
        Ok(Self::read(text)?)
    }

    /// Begins with a request that has reserved these units.
    #[must_use]
    pub fn begin(&self, units: f64) -> NativeMeter {
        NativeMeter(Meter::new(&self.0, to_quantity(units).unwrap_or_default()))
    }
}

#[wasm_bindgen]
impl NativeMeter {
    /// Takes the head of the response, and returns whether the meter reads the body. `header` returns the value of a header, or no
    /// text.
    pub fn answered(&mut self, status: u16, header: &Function) -> bool {
        let value = |name: &str| header.call1(&JsValue::UNDEFINED, &name.into()).ok()?.as_string();
        self.0.answered(status, &value);
        self.0.reads()
    }

    /// Takes the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// The units to commit. `end` is 0 if the response came whole, 1 if it broke off, and 2 if there was none.
    #[must_use]
    pub fn finish(&self, end: u8) -> f64 {
        from_quantity(self.0.clone().finish(match end {
            0 => AnswerEnd::Whole,
            1 => AnswerEnd::CutOff,
            _ => AnswerEnd::Failed,
        }))
    }
}
