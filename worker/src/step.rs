//! What JavaScript does with an exchange, and how it learns of it: a number and a step in 32 bits.

use wasm_bindgen::prelude::wasm_bindgen;

/// What JavaScript must do next with an exchange.
#[wasm_bindgen]
#[derive(Clone, Copy, Debug)]
pub enum NextStep {
    /// Finish it.
    Finish = 0,
    /// Send the questions that are due, and finish it meanwhile: the node itself asks them.
    Send = 1,
    /// Send the questions that are due, and finish it when the replies have come.
    Wait = 2,
    /// Read the body, and begin again with it.
    Body = 3,
    /// Let WebAssembly await what it waits for, by `proceed`.
    Await = 4,
}

impl NextStep {
    /// How many bits a step takes.
    pub(crate) const BITS: u32 = 3;

    /// The number of the exchange, and this behind it.
    pub(crate) const fn of(self, exchange: u32) -> u32 {
        let next = match self {
            Self::Finish => 0,
            Self::Send => 1,
            Self::Wait => 2,
            Self::Body => 3,
            Self::Await => 4,
        };
        exchange << Self::BITS | next
    }
}
