//! Prints a generated trace for the policies of tests/parity: `trace [LINES [SEED]]`.

use tidegate_gate::Policies;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (lines, seed) = (next(100_000)?, next(1)?);
    let policies = Policies::parse(tidegate_tests::POLICIES)?;
    print!("{}", tidegate_tests::generate(&policies, usize::try_from(lines)?, seed));
    Ok(())
}
