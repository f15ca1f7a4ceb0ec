//! One client for every place that decides: a store of this process, Redis, or a server over HTTP, which may be another
//! Tidegate or the Worker.
//!
//! ```
//! use tidegate::client::{Call, Client};
//! use tidegate::{Policies, Store};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policies = Policies::parse(
//!     "[policies.login]
//!      limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]",
//! )?;
//! let store = Store::memory(&policies, 64 << 20)?; // at most 64 MiB
//! let client = Client::of_store(store, policies); // or: Client::of_server("https://limiter.example", options)?
//!
//! let call = Call::new("login", "user:42");
//! assert!(client.check(&call).await?.allowed);
//! let refused = client.check(&call).await?;
//! assert!(!refused.allowed && refused.retry_after().is_some());
//! # Ok(())
//! # }
//! ```
//!
//! The answers are those of the [HTTP API](https://github.com/tidegate/tidegate/blob/main/docs/http.md), whatever decides.

mod answer;
mod call;
mod error;
mod local;
mod message;
mod remote;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;
use tidegate_gate::Policies;

use crate::store::Store;
pub use answer::{Answer, LimitAnswer};
pub use call::Call;
pub use error::ClientError;
use local::Local;
use message::Sent;
pub use remote::ClientOptions;
use remote::Remote;

/// Asks a store or a server for decisions. A clone shares the connections.
#[derive(Clone, Debug)]
pub struct Client(Backend);

/// Where decisions are made.
#[derive(Clone, Debug)]
enum Backend {
    Store(Arc<Local>),
    Server(Arc<Remote>),
}

impl Client {
    /// A client that decides by these policies in a store.
    #[must_use]
    pub fn of_store(store: impl Into<Arc<Store>>, policies: impl Into<Arc<Policies>>) -> Self {
        Self(Backend::Store(Arc::new(Local::new(store.into(), policies.into()))))
    }

    /// A client of the server at this URL, such as `https://limiter.example`. It connects at the first call, and keeps
    /// connections open.
    ///
    /// # Errors
    /// Fails if the URL is none of HTTP or HTTPS, if a token cannot be sent, or if TLS finds no certificates of this machine.
    pub fn of_server(url: &str, options: ClientOptions) -> Result<Self, ClientError> {
        Ok(Self(Backend::Server(Arc::new(Remote::new(url, options)?))))
    }

    /// Decides on a request, which is then taken.
    ///
    /// If a server does not answer, `on_error` of the policy decides, and the answer has [`degraded`](Answer::degraded).
    ///
    /// # Errors
    /// Fails with [`ClientError::Refused`] if the call is wrong, for example because there is no such policy.
    pub async fn check(&self, call: &Call<'_>) -> Result<Answer, ClientError> {
        let sent = Sent::post("/v1/check", call, call.fields("lease"));
        self.decide(sent, call).await
    }

    /// Says whether a request would pass, and takes nothing. Without a cost it asks for a cost of 0.
    ///
    /// # Errors
    /// As of [`check`](Self::check).
    pub async fn peek(&self, call: &Call<'_>) -> Result<Answer, ClientError> {
        let target = format!("/v1/keys/{}{}", call.path(), call.query());
        let sent = Sent { method: "GET", target, body: String::new(), idempotency_key: None };
        self.decide(sent, call).await
    }

    /// Holds the cost of a request until [`commit`](Self::commit) says what it really was. The answer has the
    /// [`id`](Answer::id).
    ///
    /// # Errors
    /// As of [`check`](Self::check).
    pub async fn reserve(&self, call: &Call<'_>) -> Result<Answer, ClientError> {
        let sent = Sent::post("/v1/reservations", call, call.fields("id"));
        self.decide(sent, call).await
    }

    /// Ends the reservation of this [`id`](Call::id) at its true cost. The first commit counts, so it may be repeated.
    ///
    /// # Errors
    /// Fails with [`ClientError::Away`] if the server does not answer: the commit may be repeated. Otherwise as of
    /// [`check`](Self::check).
    pub async fn commit(&self, call: &Call<'_>, actual: u64) -> Result<Answer, ClientError> {
        let mut fields = call.place();
        fields.insert("actual".into(), actual.into());
        let target = format!("/v1/reservations/{}/commit", call.encoded_id()?);
        self.send(Sent::post(target, call, fields)).await
    }

    /// Ends the reservation of this [`id`](Call::id), and charges nothing.
    ///
    /// # Errors
    /// As of [`commit`](Self::commit).
    pub async fn cancel(&self, call: &Call<'_>) -> Result<Answer, ClientError> {
        let target = format!("/v1/reservations/{}/release", call.encoded_id()?);
        self.send(Sent::post(target, call, call.place())).await
    }

    /// Acquires a lease of this [`id`](Call::id), or of a random one that the answer has as [`lease`](Answer::lease).
    ///
    /// # Errors
    /// As of [`check`](Self::check).
    pub async fn acquire(&self, call: &Call<'_>) -> Result<Answer, ClientError> {
        let sent = Sent::post("/v1/leases", call, call.fields("lease"));
        self.decide(sent, call).await
    }

    /// Renews the lease of this [`id`](Call::id). [`live`](Answer::live) says whether there still was one.
    ///
    /// # Errors
    /// As of [`commit`](Self::commit).
    pub async fn renew(&self, call: &Call<'_>) -> Result<Answer, ClientError> {
        let target = format!("/v1/leases/{}", call.encoded_id()?);
        let body = Value::Object(call.place()).to_string();
        self.send(Sent { method: "PUT", target, body, idempotency_key: None }).await
    }

    /// Releases the lease of this [`id`](Call::id).
    ///
    /// # Errors
    /// As of [`commit`](Self::commit).
    pub async fn release(&self, call: &Call<'_>) -> Result<Answer, ClientError> {
        let id = call.encoded_id()?;
        let target = format!("/v1/leases/{id}?{}", call.place_in_query());
        let sent = Sent { method: "DELETE", target, body: String::new(), idempotency_key: None };
        self.send(sent).await
    }

    /// Sends a call that decides, so that `on_error` decides if nobody answers.
    async fn decide(&self, sent: Sent<'_>, call: &Call<'_>) -> Result<Answer, ClientError> {
        match (self.send(sent).await, &self.0) {
            (Err(ClientError::Away(why)), Backend::Server(remote)) => {
                Ok(Answer::degraded(call.policy(), remote.passes(call.policy()), why))
            }
            (answer, _) => answer,
        }
    }

    async fn send(&self, sent: Sent<'_>) -> Result<Answer, ClientError> {
        let reply = match &self.0 {
            Backend::Store(local) => local.send(&sent).await,
            Backend::Server(remote) => Remote::send(remote, &sent).await?,
        };
        reply.answer()
    }
}
