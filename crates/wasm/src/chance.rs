//! What is left to chance.

use tidegate_gate::Draw;

/// Random numbers that nobody can guess: they may become the names of leases. Drawn by the block,
/// for to ask the runtime takes longer than a decision.
#[derive(Debug, Default)]
pub(crate) struct Chance {
    drawn: Vec<u64>,
}

impl Chance {
    /// `None` where the runtime has none to give.
    pub(crate) fn number(&mut self) -> Option<u64> {
        if self.drawn.is_empty() {
            let mut block = [0; 512];
            getrandom::fill(&mut block).ok()?;
            let (words, _) = block.as_chunks();
            self.drawn.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
        }
        self.drawn.pop()
    }

    /// Without any to be had: the draw that is shed with any probability above 0.
    pub(crate) fn draw(&mut self) -> Draw {
        let number = self.number().map_or(0, |number| number >> 32);
        Draw(u32::try_from(number).unwrap_or_default()) // 32 bits
    }
}
