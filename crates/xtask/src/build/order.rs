//! Puts the functions of a module into an order that compresses better.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;

use anyhow::Result;
use wasm_encoder::reencode::{Error, Reencode};
use wasm_encoder::{CodeSection, FunctionSection, Module};
use wasmparser::{CodeSectionReader, FunctionSectionReader, Parser, Payload, TypeRef};

/// The bytes of a piece by which functions are compared.
const PIECE: usize = 6;
/// A piece in more functions than these says nothing.
const COMMON: usize = 20;
/// How many bytes of functions the next one is compared with: what gzip finds again lies at most so far back.
const RECENT: usize = 32 * 1_024;

/// Moves each function behind those that it has most in common with.
pub(super) fn by_likeness(module: &[u8]) -> Result<Vec<u8>> {
    let (mut imported, mut bodies) = (0, Vec::new());
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    imported += u32::from(matches!(import?.ty, TypeRef::Func(_)));
                }
            }
            Payload::CodeSectionEntry(body) => bodies.push(body.as_bytes()),
            _ => {}
        }
    }
    let order = order(&bodies);
    let mut places = vec![0; order.len()];
    for (place, function) in (0..).zip(&order) {
        places[*function] = place;
    }
    let mut ordered = Module::new();
    Reordered { imported, order, places }.parse_core_module(
        &mut ordered,
        Parser::new(0),
        module,
    )?;
    Ok(ordered.finish())
}

/// The old places of the functions in their new order.
fn order(bodies: &[&[u8]]) -> Vec<usize> {
    let pieces: Vec<BTreeSet<&[u8]>> =
        bodies.iter().map(|body| body.windows(PIECE).collect()).collect();
    let mut holders: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    for (function, pieces) in pieces.iter().enumerate() {
        for piece in pieces {
            holders.entry(piece).or_default().push(function);
        }
    }
    holders.retain(|_, functions| functions.len() <= COMMON);

    // how many pieces each function has in common with the recent ones
    let mut alike = vec![0_usize; bodies.len()];
    let (mut recent, mut length) = (VecDeque::<usize>::new(), 0);
    let mut order = Vec::with_capacity(bodies.len());
    let mut left: BTreeSet<usize> = (0..bodies.len()).collect();
    let of = |function: usize| pieces[function].iter().filter_map(|piece| holders.get(piece));
    // a long function has pieces in common with many
    while let Some(next) = left.iter().copied().max_by_key(|function| {
        alike[*function] * alike[*function] * 1_000 / bodies[*function].len().max(1)
    }) {
        left.remove(&next);
        order.push(next);
        of(next).flatten().for_each(|function| alike[*function] += 1);
        recent.push_back(next);
        length += bodies[next].len();
        while length > RECENT
            && let Some(old) = recent.pop_front()
        {
            length -= bodies[old].len();
            of(old).flatten().for_each(|function| alike[*function] -= 1);
        }
    }
    order
}

struct Reordered {
    /// The number of imported functions, which come first.
    imported: u32,
    order: Vec<usize>,
    /// The new place of each function.
    places: Vec<u32>,
}

impl Reencode for Reordered {
    type Error = Infallible;

    fn function_index(&mut self, function: u32) -> Result<u32, Error> {
        let own = function.checked_sub(self.imported).and_then(|own| usize::try_from(own).ok());
        Ok(own.map_or(function, |own| self.imported + self.places[own]))
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Result<(), Error> {
        let types = section.into_iter().collect::<Result<Vec<_>, _>>()?;
        for old in &self.order {
            functions.function(types[*old]);
        }
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: CodeSectionReader<'_>,
    ) -> Result<(), Error> {
        let bodies = section.into_iter().collect::<Result<Vec<_>, _>>()?;
        for old in self.order.clone() {
            self.parse_function_body(code, bodies[old].clone())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_follows_those_that_it_has_most_in_common_with() {
        let bodies = ["0123456789", "abcdefghij", "x0123456", "xabcdefgh"].map(str::as_bytes);
        assert_eq!(order(&bodies), [3, 1, 2, 0]);
    }
}
