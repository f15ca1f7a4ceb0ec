//! A call of the HTTP API and what comes back, wherever it is answered.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::answer::Answer;
use super::call::Call;
use super::error::ClientError;

/// One call of the HTTP API.
#[derive(Debug)]
pub(super) struct Sent<'c> {
    pub(super) method: &'static str,
    /// The path, and the query if there is one.
    pub(super) target: String,
    pub(super) body: String,
    pub(super) idempotency_key: Option<&'c str>,
}

/// What came back.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl<'c> Sent<'c> {
    pub(super) fn post(
        target: impl Into<String>,
        call: &Call<'c>,
        fields: Map<String, Value>,
    ) -> Self {
        let (target, body) = (target.into(), Value::Object(fields).to_string());
        Self { method: "POST", target, body, idempotency_key: call.idempotency_key }
    }
}

impl Reply {
    pub(super) fn answer(self) -> Result<Answer, ClientError> {
        let Self { status, body } = self;
        match status {
            200 => {
                // an array of field values is no answer
                let fields = serde_json::from_slice::<Map<String, Value>>(&body);
                let answer = fields.and_then(|fields| Answer::deserialize(Value::Object(fields)));
                answer.map_err(|error| {
                    ClientError::Away(format!(
                        "expected an answer of the API, found another: {error}"
                    ))
                })
            }
            400..500 => Err(ClientError::refused(status, &body)),
            _ => Err(ClientError::Away(format!("the server answered with status {status}"))),
        }
    }
}
