//! What the bindings of the Worker say: its secrets, its variables, and the classes of its objects.

use tidegate_gate::Micros;
use tidegate_http::Tokens;
use worker::Env;

use crate::in_force::Telemetry;
use crate::variables::{found, is_true, millis, trusts_caller_time, value};

/// How long an isolate goes by the policies that it knows before it asks for those in force.
const POLICIES_DELAY: Micros = Micros(5_000_000);

/// The bindings that an isolate reads at its first request.
pub(crate) struct Bindings {
    pub(crate) tokens: Tokens,
    pub(crate) log_secret: Option<String>,
    pub(crate) telemetry: Telemetry,
    pub(crate) trusts_caller_time: bool,
    pub(crate) policies_delay: Micros,
}

impl Bindings {
    /// Reads all of them.
    ///
    /// # Errors
    /// Returns what is wrong with a binding. No policy opens for want of one.
    pub(crate) fn read(env: &Env) -> Result<Self, String> {
        let [decisions, administration, log_secret] =
            ["TIDEGATE_TOKEN", "TIDEGATE_ADMIN_TOKEN", "TIDEGATE_LOG_SECRET"];
        let tokens = Tokens {
            decisions: secret(env, decisions)?,
            administration: secret(env, administration)?,
        };
        let log_secret = secret(env, log_secret)?;
        for objects in ["KEYS", "POLICIES"] {
            if value(env, objects).is_undefined() {
                return Err(format!(
                    "{objects}: expected the binding of the Durable Objects, found none"
                ));
            }
        }
        Ok(Self {
            tokens,
            log_secret,
            telemetry: Telemetry {
                events: !value(env, EVENTS).is_undefined(),
                timing: is_true(env, "TIDEGATE_SERVER_TIMING"),
            },
            trusts_caller_time: trusts_caller_time(env),
            policies_delay: millis(env, "TIDEGATE_POLICIES_DELAY_MS")?
                .map_or(POLICIES_DELAY, |millis| Micros(millis.saturating_mul(1_000))),
        })
    }
}

/// The dataset of Analytics Engine.
pub(crate) const EVENTS: &str = "TIDEGATE_EVENTS";

/// A secret. Any other value than a text would have a text that everybody knows, such as `[object Object]`.
fn secret(env: &Env, name: &str) -> Result<Option<String>, String> {
    let value = value(env, name);
    match value.as_string() {
        None if !value.is_undefined() => {
            Err(format!("{name}: expected a text, found {}", found(&value)))
        }
        text => Ok(text),
    }
}
