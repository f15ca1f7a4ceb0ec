//! Asks the Durable Objects that the keys belong to.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use tidegate_gate::http::{Check, Outcome};
use worker::{Env, Method, Request, RequestInit};

use crate::keys::{Ask, Asked, Question};

/// Decides all checks. Each object gets one request and decides its checks in their order.
pub(crate) async fn decide(checks: &[Check], env: &Env) -> Vec<Outcome> {
    let honour_time = honours_caller_time(env);
    let mut groups: BTreeMap<String, Vec<(usize, &Check)>> = BTreeMap::new();
    for (place, check) in checks.iter().enumerate() {
        groups.entry(check.resolved().object_name()).or_default().push((place, check));
    }
    let answers = join_all(groups.into_iter().map(async |(object, group)| {
        let (places, checks): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        let policy = checks.first().map(|check| check.resolved().policy().name());
        let ask = Ask {
            policy: policy.unwrap_or_default().into(),
            questions: checks.iter().map(|check| question(check, honour_time)).collect(),
        };
        let answered = ask_object(env, &object, &ask).await;
        let outcomes = answered
            .unwrap_or_else(|error| vec![Err(format!("durable object: {error}")); places.len()]);
        (places, outcomes)
    }))
    .await;

    let unanswered = Outcome::Unavailable(
        "durable object: expected an answer to each check, found too few".into(),
    );
    let mut outcomes = vec![unanswered; checks.len()];
    for (places, answers) in answers {
        for (place, answer) in places.into_iter().zip(answers) {
            if let Some(outcome) = outcomes.get_mut(place) {
                *outcome = match answer {
                    Ok(verdict) => Outcome::Decided(verdict.into()),
                    Err(reason) => Outcome::Unavailable(reason),
                };
            }
        }
    }
    outcomes
}

/// Whether decisions use the times that callers give. Only a test environment may set this.
fn honours_caller_time(env: &Env) -> bool {
    env.var("TIDEGATE_TRUST_CALLER_TIME").is_ok_and(|value| value.to_string() == "true")
}

fn question(check: &Check, honour_time: bool) -> Question {
    Question {
        key: check.resolved().written_key().into(),
        operation: match honour_time {
            true => check.operation_with_draw().to_words(),
            false => check.operation().to_words(),
        },
        now_us: check.caller_time().filter(|_| honour_time).map(|now| now.0),
    }
}

async fn ask_object(env: &Env, object: &str, ask: &Ask) -> worker::Result<Vec<Asked>> {
    let stub = env.durable_object("KEYS")?.get_by_name(object)?;
    let mut init = RequestInit::new();
    init.with_method(Method::Post).with_body(Some(serde_json::to_string(ask)?.into()));
    let request = Request::new_with_init("http://keys/", &init)?;
    let text = stub.fetch_with_request(request).await?.text().await?;
    Ok(serde_json::from_str(&text)?)
}
