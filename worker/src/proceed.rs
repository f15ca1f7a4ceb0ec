//! What an exchange waits for beside its checks: the verification of a token, or the answer of the object of the revisions.

use js_sys::Date;
use tidegate_http::NoKeys;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use worker::Env;

use crate::exchange::random;
use crate::isolate::Isolate;
use crate::node::with;
use crate::step::NextStep;
use crate::{revisions, token};

#[wasm_bindgen]
impl Isolate {
    /// Awaits what an exchange waits for, and goes on with it. Returns the same as `begin`.
    ///
    /// # Errors
    /// Throws what the object throws.
    pub async fn proceed(exchange: u32, env: Env) -> Result<u32, JsValue> {
        let token =
            with(Date::now(), |node, _, _| node.exchanges.get_mut(&exchange)?.token().cloned());
        let Some(token) = token else {
            revisions::change(exchange, &env).await?;
            return Ok(NextStep::Finish.of(exchange));
        };
        let is_verified = token::is_verified(&token, &env).await;
        Ok(with(Date::now(), |node, now, at| {
            if let Some(running) = node.exchanges.get_mut(&exchange) {
                running.exchange.verified(is_verified.ok_or(NoKeys), &mut random);
            }
            node.step(exchange, now, at).of(exchange)
        }))
    }
}
