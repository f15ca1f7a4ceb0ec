#![doc = include_str!("../README.md")]
//!
//! # How a text is read
//!
//! [`json`] or [`toml`] makes a tree of [`Node`]s of a text, and a [`Form`] is read from the tree alone. So the code of a form
//! exists once for both formats. [`form!`] makes a form of a struct.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::string_slice)
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod as_json;
mod error;
mod form;
mod json;
mod quote;
#[cfg(test)]
mod tests;
#[cfg(feature = "toml")]
mod toml;

use alloc::borrow::Cow;
use alloc::vec::Vec;

pub use as_json::Translation;
pub use error::Error;
#[doc(hidden)]
pub use form::name_of;
pub use form::{Bounded, Fields, Form, MAX_EXACT, Read, repeated};
pub use json::json;
pub use quote::Quoted;
#[cfg(feature = "toml")]
pub use toml::toml;

/// Reads no TOML: the feature `toml` is off.
///
/// # Errors
/// Always fails, and says that JSON is expected.
#[cfg(not(feature = "toml"))]
pub fn toml(_: &str) -> Result<Node<'_>, Error> {
    Err(Error::plain("expected JSON, found another text; this build reads no TOML".into()).at(0))
}

/// A value, and the byte of the text at which it begins.
#[derive(Debug)]
pub struct Node<'t> {
    at: usize,
    /// The value.
    pub value: Value<'t>,
}

/// A value of JSON or TOML.
#[derive(Debug)]
pub enum Value<'t> {
    /// JSON's `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number that is not negative.
    Natural(u64),
    /// A negative whole number.
    Negative(i64),
    /// Any other number as written. No field accepts one, so it is only ever quoted in an error.
    Number(Cow<'t, str>),
    /// A date, a time, or both.
    Date,
    /// A string.
    Text(Cow<'t, str>),
    /// An array.
    List(Vec<Node<'t>>),
    /// An object or a table, in the order in which the entries were read. Names may repeat; forms refuse that.
    Map(Vec<Entry<'t>>),
}

/// A field of a [map](Value::Map).
#[derive(Debug)]
pub struct Entry<'t> {
    name_at: usize,
    name: Cow<'t, str>,
    node: Node<'t>,
}

impl<'t> Node<'t> {
    /// The value of a field of a map; `None` if the map has no such field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|entry| entry.name == name).map(|entry| &entry.node)
    }

    /// The value of a field of a map, to change it; `None` if the map has no such field.
    pub fn field_mut(&mut self, name: &str) -> Option<&mut Self> {
        let Value::Map(entries) = &mut self.value else { return None };
        entries.iter_mut().find(|entry| entry.name == name).map(|entry| &mut entry.node)
    }

    /// Removes a field of a map.
    pub fn remove(&mut self, name: &str) -> Option<Self> {
        let Value::Map(entries) = &mut self.value else { return None };
        let place = entries.iter().position(|entry| entry.name == name)?;
        Some(entries.remove(place).node)
    }

    /// Puts a field into a map, in place of one of the same name. Does nothing to another value.
    pub fn put(&mut self, name: impl Into<Cow<'t, str>>, node: Self) {
        let name = name.into();
        self.remove(&name);
        if let Value::Map(entries) = &mut self.value {
            entries.push(Entry { name_at: node.at, name, node });
        }
    }
}

impl Node<'_> {
    /// The byte of the text at which the value begins.
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// The entries of a map, by name; none of any other value.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Self)> {
        let entries = match &self.value {
            Value::Map(entries) => entries.as_slice(),
            _ => &[],
        };
        entries.iter().map(|entry| (&*entry.name, &entry.node))
    }
}

impl<'t> Value<'t> {
    /// The whole number that `digits` stand for; the number as written if it does not fit.
    fn whole(digits: &str, radix: u32, written: impl FnOnce() -> Cow<'t, str>) -> Self {
        if let Ok(number) = u64::from_str_radix(digits, radix) {
            return Self::Natural(number);
        }
        match i64::from_str_radix(digits, radix) {
            Ok(0) => Self::Natural(0),
            Ok(number) => Self::Negative(number),
            Err(_) => Self::Number(written()),
        }
    }
}
