//! Fields of JSON, found while its bytes pass.
//!
//! A [`Seeker`] keeps no text and no stack: of the values that are open it knows how many there are, and of each path how many of
//! its objects are open. So it takes 4 bytes for each path and 16 for each term, whatever passes, and any bytes at all are
//! accepted. What is no JSON is read as if it were: nothing is found in it, or something that its writer put there.
//!
//! - A number counts once the byte after it has come. So one that breaks off does not count.
//! - Only whole numbers count, and not negative ones. Numbers above 2^53 − 1 count as that.
//! - The largest number of all paths of a term counts, also of several values after each other: of two fields with one name a
//!   server may read either.

use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_gate::{FieldPath, MAX_QUANTITY, Sum, Summed, Term, TermSource};

/// Finds the fields of the terms of a sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seeker {
    sum: Arc<Sum>,
    seeks: Vec<Seek>,
    /// The number of each term, and then the number that multiplies each term.
    pub(super) found: Vec<Option<u64>>,
    /// Whether a field has another value than a whole number or null, which some servers read as a number.
    pub(super) is_odd: bool,
    /// How many objects and arrays are open.
    depth: u64,
    state: JsonState,
    after: After,
}

/// How far the search for one path is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seek {
    /// Where the number goes in [`Seeker::found`].
    slot: u8,
    path: u8,
    /// How many of the objects around the field are open, beside the outermost.
    open: u8,
    /// How many bytes of the last name are as wanted.
    same: u8,
}

/// In [`Seek::same`]: the last name is another one.
const OTHER: u8 = u8::MAX;

/// Where the last byte was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonState {
    /// Between texts and numbers.
    Between,
    Text,
    /// After a backslash.
    Escape,
    /// Within the digits of an escape.
    Unicode {
        digits: u8,
        unit: u16,
    },
    /// In a number that is whole so far.
    Number(u64),
}

/// What came last between texts and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Other,
    /// A text that may be a name.
    Name,
    /// A name and its colon.
    Colon,
    /// The first half of a character, within a text that may be a name.
    Surrogate(u16),
}

impl Seeker {
    pub(crate) fn new(sum: &Arc<Sum>) -> Self {
        let mut seeks = Vec::new();
        let terms = sum.terms().iter();
        for (slot, paths) in
            (0..).zip(terms.clone().map(Term::fields).chain(terms.map(Term::times)))
        {
            seeks.extend((0..).zip(paths).map(|(path, _)| Seek { slot, path, ..Seek::default() }));
        }
        Self {
            sum: Arc::clone(sum),
            seeks,
            found: alloc::vec![None; sum.terms().len().saturating_mul(2)],
            is_odd: false,
            depth: 0,
            state: JsonState::Between,
            after: After::Other,
        }
    }

    /// The sum of what was found.
    pub(crate) fn summed(&self) -> Summed {
        self.sum.of(&self.found)
    }

    /// Sets the number of each term that is not a field.
    pub(crate) fn set(&mut self, number: impl Fn(&TermSource) -> Option<u64>) {
        for (term, found) in self.sum.terms().iter().zip(&mut self.found) {
            if !matches!(term.source(), TermSource::Field(_)) {
                *found = number(term.source());
            }
        }
    }

    /// Sets the number of bytes.
    pub(crate) fn count(&mut self, bytes: u64) {
        for (term, found) in self.sum.terms().iter().zip(&mut self.found) {
            if matches!(term.source(), TermSource::Bytes(_)) {
                *found = Some(bytes);
            }
        }
    }

    pub(super) fn counts_bytes(&self) -> bool {
        self.sum.terms().iter().any(|term| matches!(term.source(), TermSource::Bytes(_)))
    }

    /// How many bytes it has beside its own.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        let seeks = self.seeks.capacity().saturating_mul(size_of::<Seek>());
        seeks.saturating_add(self.found.capacity().saturating_mul(size_of::<Option<u64>>()))
    }

    /// Whether a field is sought.
    pub(crate) const fn seeks(&self) -> bool {
        !self.seeks.is_empty()
    }

    /// Whether a value is open, so that its end is missing.
    pub(super) fn is_open(&self) -> bool {
        self.depth > 0 || !matches!(self.state, JsonState::Between | JsonState::Number(_))
    }

    /// Begins with another text. What was found stays.
    pub(super) fn restart(&mut self) {
        (self.depth, self.state, self.after) = (0, JsonState::Between, After::Other);
        self.seeks.iter_mut().for_each(|seek| seek.open = 0);
    }

    /// Takes the next bytes of the text.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.take(*byte));
    }

    pub(super) fn take(&mut self, byte: u8) {
        match self.state {
            JsonState::Between => self.between(byte),
            JsonState::Text => match byte {
                b'"' => self.end_text(),
                b'\\' => self.state = JsonState::Escape,
                _ => self.compare(byte),
            },
            JsonState::Escape => self.escape(byte),
            JsonState::Unicode { digits, unit } => self.unicode(byte, digits, unit),
            JsonState::Number(number) => self.number(byte, number),
        }
    }

    fn between(&mut self, byte: u8) {
        let after = core::mem::replace(&mut self.after, After::Other);
        if after == After::Colon && !b" \t\n\r0123456789n".contains(&byte) {
            let mut is_odd = false;
            self.each_named(|_, is_last, _| is_odd |= is_last);
            self.is_odd |= is_odd;
        }
        match (byte, after) {
            (b' ' | b'\t' | b'\n' | b'\r', _) => self.after = after,
            (b'"', _) => {
                let is_value = after == After::Colon;
                let depth = self.depth;
                for seek in &mut self.seeks {
                    // the names of an object whose names up to here are as wanted
                    let is_sought = !is_value && depth == u64::from(seek.open).saturating_add(1);
                    seek.same = if is_sought { 0 } else { OTHER };
                }
                self.state = JsonState::Text;
            }
            (b':', After::Name) => self.after = After::Colon,
            (b'{', After::Colon) => {
                self.each_named(|seek, is_last, _| {
                    seek.open = seek.open.saturating_add((!is_last).into())
                });
                self.depth = self.depth.saturating_add(1);
            }
            (b'{' | b'[', _) => self.depth = self.depth.saturating_add(1),
            (b'}' | b']', _) => {
                self.depth = self.depth.saturating_sub(1);
                let most = u8::try_from(self.depth.saturating_sub(1)).unwrap_or(u8::MAX);
                self.seeks.iter_mut().for_each(|seek| seek.open = seek.open.min(most));
            }
            (b'0'..=b'9', After::Colon) => self.state = JsonState::Number((byte & 15).into()),
            _ => {}
        }
    }

    fn number(&mut self, byte: u8, number: u64) {
        match byte {
            b'0'..=b'9' => {
                let longer = number.saturating_mul(10).saturating_add((byte & 15).into());
                self.state = JsonState::Number(longer.min(MAX_QUANTITY));
            }
            _ => {
                // a number that goes on otherwise is no whole number
                let is_whole = b" \t\n\r,}]".contains(&byte);
                let mut is_odd = false;
                self.each_named(|seek, is_last, found| {
                    match found.get_mut(usize::from(seek.slot)).filter(|_| is_last) {
                        Some(found) if is_whole => *found = (*found).max(Some(number)),
                        found => is_odd |= found.is_some(),
                    }
                });
                self.is_odd |= is_odd;
                self.state = JsonState::Between;
                self.between(byte);
            }
        }
    }

    /// Goes through the paths whose next name is the last name that came, and says whether the name is that of the field.
    fn each_named(&mut self, mut call: impl FnMut(&mut Seek, bool, &mut [Option<u64>])) {
        let Self { sum, seeks, found, .. } = self;
        for seek in seeks {
            let Some(path) = path(sum, seek) else { continue };
            let open = usize::from(seek.open);
            if path.name(open).is_some_and(|name| name.len() == usize::from(seek.same)) {
                call(seek, path.name(open.saturating_add(1)).is_none(), found);
            }
        }
    }

    /// Compares the next byte of a text with the names that are sought.
    fn compare(&mut self, byte: u8) {
        if let After::Surrogate(_) = self.after {
            self.differs(); // half a character is in no name
        }
        let Self { sum, seeks, .. } = self;
        for seek in seeks.iter_mut().filter(|seek| seek.same != OTHER) {
            let name = path(sum, seek).and_then(|path| path.name(seek.open.into()));
            let wanted = name.and_then(|name| name.as_bytes().get(usize::from(seek.same)));
            seek.same = if wanted == Some(&byte) { seek.same.saturating_add(1) } else { OTHER };
        }
    }

    fn differs(&mut self) {
        self.after = After::Other;
        self.seeks.iter_mut().for_each(|seek| seek.same = OTHER);
    }

    fn end_text(&mut self) {
        if let After::Surrogate(_) = self.after {
            self.differs();
        }
        (self.state, self.after) = (JsonState::Between, After::Name);
    }

    fn escape(&mut self, byte: u8) {
        self.state = JsonState::Text;
        let meant = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.state = JsonState::Unicode { digits: 0, unit: 0 };
                return;
            }
            _ => return self.differs(),
        };
        self.compare(meant);
    }

    fn unicode(&mut self, byte: u8, digits: u8, unit: u16) {
        let Some(digit) = char::from(byte).to_digit(16).and_then(|digit| u16::try_from(digit).ok())
        else {
            self.state = JsonState::Text;
            self.differs();
            return self.take(byte);
        };
        let unit = unit.wrapping_shl(4) | digit;
        if digits < 3 {
            self.state = JsonState::Unicode { digits: digits.saturating_add(1), unit };
            return;
        }
        self.state = JsonState::Text;
        let units = match self.after {
            After::Surrogate(high) => [high, unit],
            _ => [unit, 0],
        };
        match char::decode_utf16(units).next() {
            Some(Ok(char)) => {
                self.after = After::Other;
                let mut bytes = [0; 4];
                let bytes = char.encode_utf8(&mut bytes);
                bytes.bytes().for_each(|byte| self.compare(byte));
            }
            _ if matches!(self.after, After::Surrogate(_)) => self.differs(),
            _ => self.after = After::Surrogate(unit),
        }
    }
}

fn path<'s>(sum: &'s Sum, seek: &Seek) -> Option<&'s FieldPath> {
    let (terms, slot) = (sum.terms(), usize::from(seek.slot));
    let paths = match terms.get(slot) {
        Some(term) => term.fields(),
        None => terms.get(slot.checked_sub(terms.len())?)?.times(),
    };
    paths.get(usize::from(seek.path))
}
