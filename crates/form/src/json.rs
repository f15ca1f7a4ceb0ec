//! JSON (RFC 8259) as a tree.
//!
//! A parser of its own, because serde_json gives no value its place in the text, and because its words for a wrong
//! text are not those of all other errors. The tests hold it against serde_json.

use alloc::borrow::{Cow, ToOwned};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::char;

use crate::error::Term;
use crate::{Entry, Error, Node, Value};

/// The most arrays and objects within each other, so that no text exhausts the stack.
const MAX_DEPTH: usize = 128;

/// Reads JSON. Anything after the value is an error.
///
/// # Errors
/// Fails if the text is not JSON.
pub fn json(text: &str) -> Result<Node<'_>, Error> {
    let mut reader = Reader { text, at: 0 };
    let node = reader.node(MAX_DEPTH)?;
    match reader.next_token() {
        None => Ok(node),
        Some(_) => Err(reader.expected("the end of the text")),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn node(&mut self, depth: usize) -> Result<Node<'t>, Error> {
        let first = self.next_token();
        let at = self.at;
        let value = match first {
            Some(b'{') => Value::Map(self.entries(depth)?),
            Some(b'[') => Value::List(self.values(depth)?),
            Some(b'"') => Value::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.literal()?,
        };
        Ok(Node { at, value })
    }

    fn literal(&mut self) -> Result<Value<'t>, Error> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let literals =
            [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))];
        let Some((word, value)) = literals.into_iter().find(|(word, _)| rest.starts_with(word))
        else {
            return Err(self.expected("a value"));
        };
        self.skip(word.len());
        Ok(value)
    }

    fn entries(&mut self, depth: usize) -> Result<Vec<Entry<'t>>, Error> {
        let depth = self.open(depth)?;
        let mut entries = Vec::new();
        if self.took(b'}') {
            return Ok(entries);
        }
        loop {
            if self.next_token() != Some(b'"') {
                return Err(self.expected("a name in quotes"));
            }
            let name_at = self.at;
            let name = self.string()?;
            if !self.took(b':') {
                return Err(self.expected("`:`"));
            }
            let node = self.node(depth).map_err(|error| error.in_field(&name))?;
            entries.push(Entry { name_at, name, node });
            if self.took(b'}') {
                return Ok(entries);
            }
            if !self.took(b',') {
                return Err(self.expected("`,` or `}`"));
            }
        }
    }

    fn values(&mut self, depth: usize) -> Result<Vec<Node<'t>>, Error> {
        let depth = self.open(depth)?;
        let mut values = Vec::new();
        if self.took(b']') {
            return Ok(values);
        }
        loop {
            values.push(self.node(depth).map_err(|error| error.in_place(values.len()))?);
            if self.took(b']') {
                return Ok(values);
            }
            if !self.took(b',') {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    /// Skips the bracket. Returns how many more may be open at once.
    fn open(&mut self, depth: usize) -> Result<usize, Error> {
        let Some(depth) = depth.checked_sub(1) else {
            let expected = format!("at most {MAX_DEPTH} arrays and objects within each other");
            return Err(Error::found(Term::Words(expected), Term::of("more")).at(self.at));
        };
        self.skip(1);
        Ok(depth)
    }

    fn number(&mut self) -> Result<Value<'t>, Error> {
        let start = self.at;
        let is_negative = self.took_here(b"-");
        if !self.took_here(b"0") {
            self.digits()?;
        }
        let end = self.at;
        if self.took_here(b".") {
            self.digits()?;
        }
        if self.took_here(b"eE") {
            self.took_here(b"+-");
            self.digits()?;
        }
        let written = self.text.get(start..self.at).unwrap_or_default();
        let is_whole = end == self.at && !(is_negative && written == "-0");
        Ok(match is_whole {
            true => Value::whole(written, 10, || written.into()),
            false => Value::Number(written.into()),
        })
    }

    fn digits(&mut self) -> Result<(), Error> {
        if !self.here().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.expected("a digit"));
        }
        while self.took_here(b"0123456789") {}
        Ok(())
    }

    /// Reads a string, of which the next byte is the first quote.
    fn string(&mut self) -> Result<Cow<'t, str>, Error> {
        self.skip(1);
        let mut unescaped = String::new();
        let mut start = self.at;
        loop {
            let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
            let is_plain = |byte: &&u8| **byte >= b' ' && !matches!(byte, b'"' | b'\\');
            self.skip(rest.iter().take_while(is_plain).count());
            let Some(byte) = self.here() else { return Err(self.expected("`\"`")) };
            if byte < b' ' {
                return Err(self.expected("an escape such as `\\n` for each control character"));
            }
            let read = self.text.get(start..self.at).unwrap_or_default();
            if byte == b'"' {
                self.skip(1);
                if unescaped.is_empty() {
                    return Ok(Cow::Borrowed(read));
                }
                unescaped.push_str(read);
                return Ok(Cow::Owned(unescaped));
            }
            unescaped.push_str(read);
            unescaped.push(self.escape()?);
            start = self.at;
        }
    }

    /// Reads an escape, of which the next byte is the backslash.
    fn escape(&mut self) -> Result<char, Error> {
        self.skip(1);
        let character = match self.here() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code_point(),
            _ => {
                return Err(self.expected("one of `\"`, `\\`, `/`, `b`, `f`, `n`, `r`, `t`, `u`"));
            }
        };
        self.skip(1);
        Ok(character)
    }

    /// Reads the code of an escape, of which the next byte is the `u`. A character beyond U+FFFF has two codes.
    fn code_point(&mut self) -> Result<char, Error> {
        let at = self.at;
        let high = self.code()?;
        let two = match high {
            0xd800..=0xdbff if self.took_here(b"\\") && self.here() == Some(b'u') => {
                [high, self.code()?]
            }
            _ => [high, 0],
        };
        match char::decode_utf16(two).next() {
            Some(Ok(character)) => Ok(character),
            _ => {
                let expected = Term::of("two surrogates for one character");
                Err(Error::found(expected, Term::of("one of them")).at(at))
            }
        }
    }

    fn code(&mut self) -> Result<u16, Error> {
        self.skip(1);
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.here().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else { return Err(self.expected("a hexadecimal digit")) };
            code = (code << 4) | u16::try_from(digit).unwrap_or_default(); // never: it is below 16
            self.skip(1);
        }
        Ok(code)
    }

    fn here(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    /// Skips the next byte if it is one of these.
    fn took_here(&mut self, any: &[u8]) -> bool {
        let took = self.here().is_some_and(|byte| any.contains(&byte));
        self.skip(took.into());
        took
    }

    /// The next byte that is not white space.
    fn next_token(&mut self) -> Option<u8> {
        while self.took_here(b" \n\r\t") {}
        self.here()
    }

    /// Skips white space, and the next byte if it is this one.
    fn took(&mut self, byte: u8) -> bool {
        let took = self.next_token() == Some(byte);
        self.skip(took.into());
        took
    }

    /// The error for the character at which the reader is.
    fn expected(&self, expected: &str) -> Error {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let found = match rest.chars().next() {
            Some(found) => format!("`{}`", found.escape_debug()),
            None => "the end of the text".to_owned(),
        };
        Error::found(Term::of(expected), Term::Words(found)).at(self.at)
    }
}
