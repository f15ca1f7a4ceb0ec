//! Random numbers.

/// Random numbers that nobody can guess, because they may become the names of leases. They are drawn in
/// blocks, because a call to the runtime takes longer than a decision.
#[derive(Debug, Default)]
pub(crate) struct Chance {
    drawn: Vec<u64>,
}

impl Chance {
    /// A random number; `None` if the runtime has no random numbers.
    pub(crate) fn number(&mut self) -> Option<u64> {
        if self.drawn.is_empty() {
            let mut block = [0; 512];
            getrandom::fill(&mut block).ok()?;
            let (words, _) = block.as_chunks();
            self.drawn.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
        }
        self.drawn.pop()
    }

    /// A random draw. Without random numbers it is the draw that is shed at any probability above 0.
    #[cfg(not(feature = "objects"))]
    pub(crate) fn draw(&mut self) -> tidegate_gate::Draw {
        let number = self.number().map_or(0, |number| number >> 32);
        tidegate_gate::Draw(u32::try_from(number).unwrap_or_default()) // never: it has 32 bits
    }
}
