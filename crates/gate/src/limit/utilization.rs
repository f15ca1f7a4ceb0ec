//! `utilization`: sheds by a measured signal. Whatever a request costs, it is of one class and is
//! shed or not: 1 of 1. `retry_after` is a hint.

use tidegate_core::shed::utilization::{Config, State, Verdict};
use tidegate_core::{Decision, Limiter, Micros, Timestamp, WordsMut};

use super::Kind;
use super::algorithm::{Algorithm, Answer, looked};
use crate::request::{OperationError, Request};

impl Algorithm for Config {
    const KIND: Kind = Kind::Shed;

    fn ask(&self, state: &mut State<&mut [u64]>, now: Timestamp, request: &Request) -> Answer {
        if request.cost == 0 {
            return look_at(self, state.words(), now, request);
        }
        Ok(decide(self, state, now, request))
    }

    fn look(&self, state: &State<&[u64]>, now: Timestamp, request: &Request) -> Answer {
        look_at(self, state.words(), now, request)
    }

    fn remembers_refusals(&self) -> bool {
        true
    }

    /// The signal counts, whoever refused.
    fn note_refusal(
        &self,
        state: &mut State<&mut [u64]>,
        now: Timestamp,
        request: &Request,
    ) -> Micros {
        let _ = decide(self, state, now, request);
        Micros::ZERO
    }
}

fn look_at(config: &Config, words: &[u64], now: Timestamp, request: &Request) -> Answer {
    let words = words.as_array().ok_or(OperationError::InvalidState)?;
    let decision = decide(config, &mut State::from(*words), now, request);
    Ok(if request.cost == 0 { looked(decision) } else { decision })
}

fn decide(
    config: &Config,
    state: &mut State<impl WordsMut>,
    now: Timestamp,
    request: &Request,
) -> Decision {
    let verdict = config.decide(state, now, request.signal, request.class, request.draw);
    let (limit, reset_after) = (1, config.reset_after(state));
    match verdict {
        Verdict::Admitted => Decision::Allow { limit, remaining: 1, reset_after },
        Verdict::Shed { retry_after } => {
            Decision::Deny { limit, remaining: 0, retry_after, reset_after }
        }
    }
}
