//! `penalty`: refuses everything for a time after so many refusals by the other limits. Whatever a
//! request costs, a penalty lets it through or not.

use tidegate_core::shed::penalty::{Config, State};
use tidegate_core::{Micros, Timestamp};

use super::Kind;
use super::algorithm::{Algorithm, Answer, looked};
use crate::request::Request;

impl Algorithm for Config {
    const KIND: Kind = Kind::Shed;

    fn ask(&self, state: &mut State<&mut [u64]>, now: Timestamp, request: &Request) -> Answer {
        if request.cost == 0 {
            return Ok(looked(self.peek(state, now)));
        }
        Ok(self.decide(state, now))
    }

    fn look(&self, state: &State<&[u64]>, now: Timestamp, request: &Request) -> Answer {
        let decision = self.peek(state, now);
        Ok(if request.cost == 0 { looked(decision) } else { decision })
    }

    fn remembers_refusals(&self) -> bool {
        true
    }

    fn note_refusal(&self, state: &mut State<&mut [u64]>, now: Timestamp, _: &Request) -> Micros {
        self.refused(state, now);
        self.peek(state, now).retry_after()
    }
}
