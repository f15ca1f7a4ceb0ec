//! A tree as JSON, whose places lead back to the text that the tree was read from.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::error::line_and_column;
use crate::{Error, Node, Value};

/// One line of JSON with the meaning of a text in another format.
///
/// A program that reads only JSON can so read the other format, and its errors still name the lines of the first text.
#[derive(Debug, Default)]
pub struct Translation {
    /// The JSON.
    pub json: String,
    /// The byte at which each name and value begins, in the JSON and in the other text. They are in the order of the JSON.
    places: Vec<(usize, usize)>,
}

impl Node<'_> {
    /// Writes the tree as JSON.
    ///
    /// # Errors
    /// Fails with [`Error`] if the tree has a date, or a number that JSON cannot write. No [form](crate::Form) accepts them.
    pub fn as_json(&self) -> Result<Translation, Error> {
        let mut translation = Translation::default();
        translation.add(self).map_err(|error| error.at(self.at))?;
        Ok(translation)
    }
}

impl Translation {
    /// The place in the other text that corresponds to a column of the JSON: a line and a column. Lines and columns count from 1, columns
    /// in characters.
    #[must_use]
    pub fn place(&self, column: usize, text: &str) -> (usize, usize) {
        let at = self.json.char_indices().nth(column.saturating_sub(1)).map_or(0, |(at, _)| at);
        let next = self.places.partition_point(|(begins, _)| *begins <= at);
        let begun = next.checked_sub(1).and_then(|place| self.places.get(place));
        line_and_column(begun.map_or(0, |(_, at)| *at), text)
    }

    fn add(&mut self, node: &Node<'_>) -> Result<(), Error> {
        self.places.push((self.json.len(), node.at));
        match &node.value {
            Value::Null => self.json.push_str("null"),
            Value::Bool(value) => self.shown(value),
            Value::Natural(number) => self.shown(number),
            Value::Negative(number) => self.shown(number),
            Value::Number(written) if is_of_json(written) => self.shown(written),
            Value::Number(_) | Value::Date => {
                let expected = "a string, a whole number, a boolean, an array or a table";
                return Err(node.refused(expected));
            }
            Value::Text(text) => self.string(text),
            Value::List(nodes) => {
                self.json.push('[');
                for (place, node) in nodes.iter().enumerate() {
                    self.comma(place);
                    self.add(node).map_err(|error| error.at(node.at).in_place(place))?;
                }
                self.json.push(']');
            }
            Value::Map(entries) => {
                self.json.push('{');
                for (place, entry) in entries.iter().enumerate() {
                    self.comma(place);
                    self.places.push((self.json.len(), entry.name_at));
                    self.string(&entry.name);
                    self.json.push(':');
                    let node = &entry.node;
                    self.add(node).map_err(|error| error.at(node.at).in_field(&entry.name))?;
                }
                self.json.push('}');
            }
        }
        Ok(())
    }

    fn shown(&mut self, value: impl core::fmt::Display) {
        let _ = write!(self.json, "{value}"); // writing to a string cannot fail
    }

    fn comma(&mut self, place: usize) {
        if place > 0 {
            self.json.push(',');
        }
    }

    fn string(&mut self, text: &str) {
        self.json.push('"');
        for character in text.chars() {
            match character {
                '"' | '\\' => self.json.extend(['\\', character]),
                '\0'..='\x1f' => self.shown(format_args!("\\u{:04x}", u32::from(character))),
                _ => self.json.push(character),
            }
        }
        self.json.push('"');
    }
}

/// Whether JSON writes this number of TOML in the same way: it has no sign `+`, no radix, and is finite.
fn is_of_json(number: &str) -> bool {
    number.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
        && !number.starts_with('+')
}
