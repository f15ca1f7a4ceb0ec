//! What an exchange waits for beside its checks: the verification of a token, a copy of the body, or an answer of the object of
//! the revisions.

use js_sys::Date;
use tidegate_http::NoKeys;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use web_sys::Request;
use worker::Env;

use crate::body::copied;
use crate::exchanges::{NextStep, Running, Waits};
use crate::isolate::{Isolate, random};
use crate::node::with;
use crate::{revisions, token};

#[wasm_bindgen]
impl Isolate {
    /// Awaits what an exchange waits for, and goes on with it. Returns the same as `begin`.
    ///
    /// # Errors
    /// Throws what the object throws.
    pub async fn proceed(exchange: u32, request: Request, env: Env) -> Result<u32, JsValue> {
        let waits = with(Date::now(), |node, _, _| node.exchanges.get(exchange)?.waits());
        match waits {
            None => {
                revisions::change(exchange, &env).await?;
                Ok(NextStep::Finish.of(exchange))
            }
            Some(Waits::Token(token)) => {
                let is_verified = token::is_verified(&token, &env).await;
                Ok(go_on(exchange, |running| {
                    running.exchange.verified(is_verified.ok_or(NoKeys), &mut random);
                }))
            }
            Some(Waits::Copy) => {
                let body = copied(&request).await;
                Ok(go_on(exchange, |running| running.exchange.body(body, &mut random)))
            }
            Some(Waits::Lists(what, clear)) => {
                let lists = match with(Date::now(), |node, _, _| node.hands_over()) {
                    true => Some(revisions::ask(&env, true).await),
                    false => None,
                };
                with(Date::now(), |node, now, _| node.watched(exchange, (what, clear), lists, now));
                Ok(go_on(exchange, |_| {}))
            }
        }
    }
}

fn go_on(exchange: u32, hand_in: impl FnOnce(&mut Running)) -> u32 {
    with(Date::now(), |node, now, at| {
        if let Some(running) = node.exchanges.get(exchange) {
            hand_in(running);
        }
        node.step(exchange, now, at).of(exchange)
    })
}
