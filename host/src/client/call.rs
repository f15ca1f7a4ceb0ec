//! What a caller asks.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use super::error::ClientError;

/// What is asked about one key of one policy.
///
/// ```
/// use tidegate::client::Call;
/// let call = Call::new("api", "user:42").cost(5).idempotency_key("8e03978e-40d5");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a call asks nothing until a client sends it"]
pub struct Call<'c> {
    policy: &'c str,
    key: &'c str,
    cost: Option<u64>,
    class: Option<&'c str>,
    signal_ppm: Option<u32>,
    id: Option<&'c str>,
    pub(super) idempotency_key: Option<&'c str>,
}

impl<'c> Call<'c> {
    /// A call about this key.
    pub const fn new(policy: &'c str, key: &'c str) -> Self {
        let (class, id, idempotency_key) = (None, None, None);
        Self { policy, key, cost: None, class, signal_ppm: None, id, idempotency_key }
    }

    /// Asks for this cost, in place of the policy's.
    pub const fn cost(self, cost: u64) -> Self {
        Self { cost: Some(cost), ..self }
    }

    /// Says how important the request is.
    pub const fn class(self, class: &'c str) -> Self {
        Self { class: Some(class), ..self }
    }

    /// Tells the signal of a limit `utilization`, in parts per million.
    pub const fn signal_ppm(self, signal: u32) -> Self {
        Self { signal_ppm: Some(signal), ..self }
    }

    /// Names the lease or the reservation. Without a name it gets one that nobody can guess.
    pub const fn id(self, id: &'c str) -> Self {
        Self { id: Some(id), ..self }
    }

    /// Makes repeats of the call known, so that it is taken once. The policy must have `idempotency`. A client that lost the
    /// answer of a server sends such a call a second time.
    pub const fn idempotency_key(self, key: &'c str) -> Self {
        Self { idempotency_key: Some(key), ..self }
    }

    pub(super) const fn policy(&self) -> &str {
        self.policy
    }

    /// The policy and the key.
    pub(super) fn place(&self) -> Map<String, Value> {
        Map::from_iter([
            ("policy".to_owned(), self.policy.into()),
            ("key".to_owned(), self.key.into()),
        ])
    }

    /// All fields of a body. `id` is the field that has the name of the lease or reservation.
    pub(super) fn fields(&self, id: &str) -> Map<String, Value> {
        let mut fields = self.place();
        let mut add = |name: &str, value: Option<Value>| {
            fields.extend(value.map(|value| (name.to_owned(), value)));
        };
        add("cost", self.cost.map(Value::from));
        add("class", self.class.map(Value::from));
        add("signal_ppm", self.signal_ppm.map(Value::from));
        add(id, self.id.map(Value::from));
        fields
    }

    /// The policy and the key in a path.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", encoded(self.policy), encoded(self.key))
    }

    pub(super) fn place_in_query(&self) -> String {
        format!("policy={}&key={}", encoded(self.policy), encoded(self.key))
    }

    /// The query of a peek.
    pub(super) fn query(&self) -> String {
        let class = self.class.map_or(String::new(), |class| format!("&class={}", encoded(class)));
        format!("?cost={}{class}", self.cost.unwrap_or(0))
    }

    pub(super) fn encoded_id(&self) -> Result<String, ClientError> {
        self.id.map(encoded).ok_or(ClientError::NoId)
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
