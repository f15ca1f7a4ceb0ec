//! Spans of OpenTelemetry: one for each decision. Without the feature `otel` there are none.

#[cfg(feature = "otel")]
pub(super) use with_otel::Spans;
#[cfg(not(feature = "otel"))]
pub(super) use without_otel::Spans;

#[cfg(feature = "otel")]
mod with_otel {
    use std::time::SystemTime;

    use hyper::HeaderMap;
    use opentelemetry::propagation::Extractor;
    use opentelemetry::trace::{SpanBuilder, SpanKind, Tracer};
    use opentelemetry::{Array, Context, KeyValue, StringValue, Value, global};
    use tidegate_gate::OnError;
    use tidegate_http::{Check, Counted, Outcome};

    /// The spans of one request. Their parent is the span that the caller names in `traceparent`, if it names one.
    #[derive(Debug)]
    pub(in super::super) struct Spans(Context);

    /// When a decision began.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Began(SystemTime);

    impl Spans {
        pub(in super::super) fn of(headers: &HeaderMap) -> Self {
            Self(global::get_text_map_propagator(|own| own.extract(&Headers(headers))))
        }

        #[expect(clippy::unused_self, reason = "as without the feature")]
        pub(in super::super) fn begin(&self) -> Began {
            Began(SystemTime::now())
        }

        /// A check was decided.
        pub(in super::super) fn end(&self, Began(at): Began, check: &Check, outcome: &Outcome) {
            let Some(Counted { policy, outcome: word, cost, .. }) = Counted::of(check, outcome)
            else {
                return;
            };
            let rejected_by = Value::Array(Array::String(rejected_by(check, outcome)));
            let span = SpanBuilder::from_name("tidegate.decision")
                .with_kind(SpanKind::Internal)
                .with_start_time(at)
                .with_attributes([
                    KeyValue::new("tidegate.policy", policy.to_owned()),
                    KeyValue::new("tidegate.decision", word),
                    KeyValue::new("tidegate.cost", i64::try_from(cost).unwrap_or(i64::MAX)),
                    KeyValue::new("tidegate.rejected_by", rejected_by),
                    KeyValue::new("tidegate.fail_open", fails_open(check, outcome)),
                ]);
            drop(global::tracer("tidegate").build_with_context(span, &self.0)); // a span ends when it is dropped
        }
    }

    /// The names of the limits that refused; none for a key that is on `deny` or blocked.
    fn rejected_by(check: &Check, outcome: &Outcome) -> Vec<StringValue> {
        let (Outcome::Decided(verdict), Some(limits)) = (outcome, check.resolved().limits()) else {
            return Vec::new();
        };
        let refuse = limits.counting(verdict).filter(|(_, decision)| !decision.is_allowed());
        refuse.map(|(limit, _)| limit.name.clone().into()).collect()
    }

    /// Whether a request passes because the store did not answer.
    fn fails_open(check: &Check, outcome: &Outcome) -> bool {
        let policy = check.resolved().policy();
        matches!(outcome, Outcome::Unavailable(_) | Outcome::Unreadable(_))
            && (policy.on_error() == OnError::Open || policy.is_shadow())
    }

    struct Headers<'a>(&'a HeaderMap);

    impl Extractor for Headers<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.get(key)?.to_str().ok()
        }

        fn keys(&self) -> Vec<&str> {
            self.0.keys().map(hyper::header::HeaderName::as_str).collect()
        }
    }
}

#[cfg(not(feature = "otel"))]
mod without_otel {
    use hyper::HeaderMap;
    use tidegate_http::{Check, Outcome};

    #[derive(Debug)]
    pub(in super::super) struct Spans;

    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Began;

    #[expect(clippy::unused_self, reason = "as with the feature")]
    impl Spans {
        pub(in super::super) const fn of(_: &HeaderMap) -> Self {
            Self
        }

        pub(in super::super) const fn begin(&self) -> Began {
            Began
        }

        pub(in super::super) const fn end(&self, _: Began, _: &Check, _: &Outcome) {}
    }
}

#[cfg(test)]
#[cfg(feature = "otel")]
mod tests {
    use std::sync::{Arc, Mutex};

    use hyper::HeaderMap;
    use opentelemetry::global;
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
    use tidegate_gate::{Policies, Timestamp};
    use tidegate_http::{Access, Exchange, Head, Outcome, RevisionTag, Server, Step};

    use super::Spans;
    use crate::store::Store;

    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Kept {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().unwrap().extend(batch);
            Ok(())
        }
    }

    const POLICIES: &str = "
        [policies.api]
        on_error = 'open'
        limits = [
            { name = 'burst', algorithm = 'fixed_window', limit = 1, period = '1h' },
            { name = 'day', algorithm = 'fixed_window', limit = 9, period = '1d' },
        ]";

    #[tokio::test]
    async fn a_decision_is_a_span_that_names_the_limits_and_no_key() {
        let kept = Kept::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
        global::set_tracer_provider(provider);
        global::set_text_map_propagator(TraceContextPropagator::new());
        let policies = Arc::new(Policies::parse(POLICIES).unwrap());
        let store = Store::memory(&policies, 1 << 20).unwrap();
        let mut headers = HeaderMap::new();
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        headers.insert("traceparent", parent.parse().unwrap());
        let spans = Spans::of(&headers);
        for is_away in [false, false, true] {
            let head = Head { path: "/v1/gate", query: "policy=api&key=secret", ..Head::default() };
            let (access, revision, metrics) =
                (&Access::OPEN, &RevisionTag::default(), &String::new);
            let server = Server { policies: &policies, access, revision, metrics };
            let mut exchange = Exchange::of_api(&server, &head, &mut || None);
            let Step::Decide([check]) = exchange.step() else { panic!("one check") };
            let began = spans.begin();
            let outcome = if is_away {
                Outcome::Unavailable("away".to_owned())
            } else {
                let verdict = store.operate(check.resolved(), Timestamp(0), check.operation());
                Outcome::Decided(verdict.await.unwrap())
            };
            spans.end(began, check, &outcome);
        }
        let spans = kept.0.lock().unwrap();
        let shown = |span: &SpanData| {
            assert_eq!(span.name, "tidegate.decision");
            assert_eq!(span.parent_span_id.to_string(), "00f067aa0ba902b7");
            let of = |name: &str| {
                let own = span.attributes.iter().find(|own| own.key.as_str() == name).unwrap();
                own.value.to_string()
            };
            ["tidegate.decision", "tidegate.rejected_by", "tidegate.fail_open"].map(of)
        };
        let all: Vec<_> = spans.iter().map(shown).collect();
        assert_eq!(
            all,
            [
                ["allowed", "[]", "false"],
                ["refused", "[\"burst\"]", "false"],
                ["error", "[]", "true"]
            ]
        );
        assert!(!format!("{spans:?}").contains("secret"));
    }
}
