//! The answer to `GET /v1/status`: what a page about the server shows.

use alloc::string::String;
use alloc::vec::Vec;

use tidegate_gate::{Policies, Timestamp, describe, describe_without_keys};

use super::json::object;
use crate::api::policies::RevisionTag;
use crate::limited::{KeysAs, Limited};
use crate::metrics::Metrics;

/// What a server knows of itself.
#[derive(Clone, Copy, Debug)]
pub struct Status<'s> {
    /// The policies in force.
    pub policies: &'s Policies,
    /// Their revision.
    pub revision: &'s RevisionTag,
    /// The counters.
    pub metrics: &'s Metrics,
    /// The word for the store, such as `redis`.
    pub store: &'static str,
    /// The kinds of answers that the server gave without asking its store, with their numbers.
    pub local: &'s [(&'static str, u64)],
}

impl Limited {
    /// Returns the answer to `GET /v1/status` at a time. If `shown` is `None`, the answer does not say who is limited.
    #[must_use]
    pub fn status(
        &mut self,
        now: Timestamp,
        status: &Status<'_>,
        shown: Option<KeysAs<'_>>,
    ) -> String {
        self.go_on(now);
        let Status { policies, revision, metrics, store, local } = *status;
        let clear = matches!(shown, Some(KeysAs::Clear));
        object(|it| {
            it.field("at_us", now.0);
            revision.write(it);
            it.object("store", |it| {
                it.field("name", store);
                it.field("answers", metrics.store_answers());
                if let Some((at, why)) = self.failure(clear) {
                    it.field("last_error", why);
                    it.field("last_error_us", at.0);
                }
            });
            it.object("local_answers", |it| {
                local.iter().for_each(|(kind, count)| it.field(kind, *count))
            });
            it.objects("policies", policies.all(), |policy, it| {
                it.field("name", policy.name());
                it.field("description", policy.description());
                it.object("decisions", |it| {
                    metrics
                        .outcomes(policy.name())
                        .for_each(|(outcome, count)| it.field(outcome, count));
                });
                match metrics.reservations(policy.name()) {
                    Some(counts) => it.object("reservations", |it| {
                        counts.iter().for_each(|(name, count)| it.field(name, *count));
                    }),
                    None => it.field("reservations", None::<&str>),
                }
                let words = if clear { describe(policy) } else { describe_without_keys(policy) };
                let words: Vec<&str> = words.lines().map(str::trim).collect();
                it.field("words", &words[..]);
            });
            match shown {
                Some(shown) => self.write(it, shown),
                None => it.field("top", None::<&str>),
            }
        })
    }
}
