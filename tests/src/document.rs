//! Reads the documents: their fenced blocks and their tables.

use std::fmt::Write as _;

/// A fenced block.
pub struct Block {
    /// The number of its first line, from 1.
    pub line: usize,
    /// The comment above the block; empty if the block has none.
    pub mark: String,
    pub text: String,
}

/// All fenced blocks of a document, in their order.
pub fn blocks(document: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut above, mut inside) = ("", false);
    for (number, line) in (1..).zip(document.lines()) {
        match (line.starts_with("```"), inside) {
            (true, false) => {
                let mark = above.strip_prefix("<!-- ").and_then(|mark| mark.strip_suffix(" -->"));
                let mark = mark.unwrap_or_default().to_owned();
                blocks.push(Block { line: number, mark, text: String::new() });
                inside = true;
            }
            (true, true) => inside = false,
            (false, true) => {
                let block = blocks.last_mut().expect("a block has begun");
                let _ = writeln!(block.text, "{line}");
            }
            (false, false) => {}
        }
        above = line;
    }
    assert!(!inside, "a fenced block is not closed");
    blocks
}

/// The cells of the table after a mark in a document, without the table's head and without backticks.
pub fn rows(document: &str, mark: &str) -> Vec<Vec<String>> {
    let (_, table) = document.split_once(mark).expect("a document with that mark");
    let lines = table.trim_start().lines().skip(2).take_while(|line| line.starts_with('|'));
    lines
        .map(|line| {
            let cells = line.trim_matches('|').split(" | ");
            cells.map(|cell| cell.trim().trim_matches('`').trim().to_owned()).collect()
        })
        .collect()
}
