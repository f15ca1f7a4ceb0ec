//! A form says what a value of a tree must be, and makes a Rust value of it.
//!
//! [`form!`] makes a form of a struct whose fields are those of a map. serde would derive the
//! same, but the code that it derives was a fifth of the npm package: it has a copy of all checks for each form. Here
//! the checks exist once.

use alloc::borrow::Cow;
use alloc::collections::BinaryHeap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::error::{Term, one_of};
use crate::quote::{Quoted, without_middle};
use crate::{Entry, Error, Node, Value};

/// What is read from a value.
pub trait Form: Sized {
    /// # Errors
    /// Fails if the value is not of the form.
    fn read(node: &Node<'_>) -> Result<Self, Error>;
}

/// Declares a struct that is read from a map with these fields, in their order. A field without a default value is
/// required.
#[macro_export]
macro_rules! form {
    (
        $(#[$about:meta])*
        $seen:vis struct $form:ident {
            $($(#[$says:meta])* $shown:vis $field:ident: $type:ty $(= $default:expr)?,)*
        }
    ) => {
        $(#[$about])*
        $seen struct $form {
            $($(#[$says])* $shown $field: $type,)*
        }

        impl $crate::Form for $form {
            fn read(node: &$crate::Node<'_>) -> Result<Self, $crate::Error> {
                $crate::fields!(node, Self { $($field $(= $default)?),* })
            }
        }
    };
}

/// Reads a struct, or a variant of an enum, from a map with these fields, in their order.
#[macro_export]
macro_rules! fields {
    // in place, because moving the values of many fields takes a lot of code
    ($node:ident, Self { $($field:ident = $default:expr),* }) => {{
        let fields = $node.fields(const { &[$($crate::name_of(stringify!($field))),*] })?;
        let mut form = Self { $($field: $default),* };
        $(fields.fill(const { $crate::name_of(stringify!($field)) }, &mut form.$field)?;)*
        Ok(form)
    }};
    ($node:ident, $($form:ident)::+ { $($field:ident $(= $default:expr)?),* }) => {{
        let _fields = $node.fields(const { &[$($crate::name_of(stringify!($field))),*] })?;
        $(let $field = $crate::fields!(@_fields $field $($default)?);)*
        Ok($($form)::+ { $($field),* })
    }};
    (@$fields:ident $field:ident) => {
        $fields.get(const { $crate::name_of(stringify!($field)) })?
    };
    (@$fields:ident $field:ident $default:expr) => {{
        let mut value = $default;
        $fields.fill(const { $crate::name_of(stringify!($field)) }, &mut value)?;
        value
    }};
}

/// The name of a field, which Rust may write as `r#match`.
pub const fn name_of(field: &str) -> &str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}

/// Reads the value of a field.
pub type Read<T> = fn(&Node<'_>) -> Result<T, Error>;

impl<'t> Node<'t> {
    /// Reads a form.
    ///
    /// # Errors
    /// Fails if the value is not of the form. The error has the place of the innermost value that it is about.
    pub fn read<T: Form>(&self) -> Result<T, Error> {
        T::read(self).map_err(|error| error.at(self.at))
    }

    /// # Errors
    /// Fails if the value is not a text.
    pub fn text(&self) -> Result<&str, Error> {
        match &self.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.refused("a string")),
        }
    }

    /// Reads what a text stands for.
    ///
    /// # Errors
    /// Fails if the value is not a text, or with the message of `parse`.
    pub fn parse<T>(&self, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, Error> {
        parse(self.text()?).map_err(Error::plain)
    }

    /// # Errors
    /// Fails if the value is not a whole number within these bounds.
    pub fn whole(&self, least: u64, most: u64) -> Result<u64, Error> {
        match self.value {
            Value::Natural(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(self.refused(&format!("a whole number from {least} to {most}"))),
        }
    }

    /// What one of these names stands for.
    ///
    /// # Errors
    /// Fails if the value is not one of the names.
    pub fn one_of<T: Copy>(&self, names: &[(&str, T)]) -> Result<T, Error> {
        let found = self.text()?;
        let known = names.iter().find(|(name, _)| *name == found).map(|(_, meaning)| *meaning);
        known.ok_or_else(|| unknown_name(found, &mut names.iter().map(|(name, _)| *name)))
    }

    /// What the only field of a map stands for: `names` says how the value of each field is read.
    ///
    /// # Errors
    /// Fails if the value is not a map with one field that has one of the names, or if that field cannot be read.
    pub fn only_field<T>(&self, names: &[(&str, Read<T>)]) -> Result<T, Error> {
        let (only, others) = self.map()?.split_first().ok_or_else(|| self.refused("one field"))?;
        let Some((_, read)) = names.iter().find(|(name, _)| only.name == *name) else {
            return Err(
                only.misnamed(unknown_name(&only.name, &mut names.iter().map(|(name, _)| *name)))
            );
        };
        let read = read(&only.node).map_err(|error| only.wrong(error))?;
        match others.first() {
            None => Ok(read),
            Some(other) => Err(other.unknown("no other field")),
        }
    }

    /// The fields of a map that has no other fields than these, and each at most once.
    ///
    /// # Errors
    /// Fails if the value is anything else.
    pub fn fields<'n>(&'n self, names: &[&str]) -> Result<Fields<'n, 't>, Error> {
        let entries = self.map()?;
        for (place, entry) in entries.iter().enumerate() {
            if !names.contains(&&*entry.name) {
                return Err(entry.unknown(&one_of(names)));
            }
            if entries.iter().take(place).any(|before| before.name == entry.name) {
                let name = &entry.name;
                return Err(Error::plain(format!(
                    "expected the field `{name}` once, found it twice"
                )));
            }
        }
        Ok(Fields(entries))
    }

    /// # Errors
    /// Fails if the value is not a map, or if a field that is not null has none of these names.
    pub fn has_only(&self, names: &[&str]) -> Result<(), Error> {
        let mut given = self.map()?.iter().filter(|entry| !matches!(entry.node.value, Value::Null));
        match given.find(|entry| !names.contains(&&*entry.name)) {
            Some(entry) => Err(entry.unknown(&one_of(names))),
            None => Ok(()),
        }
    }

    /// The values of a map with any names, sorted by what `parse` makes of the names. TOML refuses a second field of
    /// the same name by itself; in JSON, and for two spellings of one name, this does.
    ///
    /// # Errors
    /// Fails if the value is not a map, if a name or a value cannot be read, or if two names are equal.
    pub fn sorted<K: Ord + fmt::Display, V: Form>(
        &self,
        parse: fn(&str) -> Result<K, String>,
    ) -> Result<Vec<(K, V)>, Error> {
        let entries = self.map()?;
        let mut names = Vec::with_capacity(entries.len());
        for (place, entry) in entries.iter().enumerate() {
            let name = parse(&entry.name).map_err(|message| entry.misnamed(Error::plain(message)));
            names.push((name?, place));
        }
        // a heap takes less code than `sort_unstable`
        let names = BinaryHeap::from(names).into_sorted_vec();
        let is_repeated =
            |pair: &&[(K, usize)]| matches!(pair, [(one, _), (next, _)] if one == next);
        if let Some([(name, _), ..]) = names.windows(2).find(is_repeated) {
            return Err(Error::plain(format!("expected each name once, found {name} twice")));
        }
        let mut values = Vec::new();
        for (name, place) in names {
            if let Some(entry) = entries.get(place) {
                values.push((name, entry.read()?));
            }
        }
        Ok(values)
    }

    /// # Errors
    /// Fails if the value is not a map; `expected` says what it should be.
    pub fn must_be_map(&self, expected: &str) -> Result<(), Error> {
        match self.value {
            Value::Map(_) => Ok(()),
            _ => Err(self.refused(expected)),
        }
    }

    fn map(&self) -> Result<&[Entry<'t>], Error> {
        match &self.value {
            Value::Map(entries) => Ok(entries),
            _ => Err(Error::found(Term::Map, self.named())),
        }
    }

    /// The error for a value of another kind than expected.
    pub fn refused(&self, expected: &str) -> Error {
        Error::found(Term::of(expected), self.named())
    }

    /// The value as errors name it.
    fn named(&self) -> Term {
        Term::Words(match &self.value {
            Value::Map(_) => return Term::Map,
            Value::Null => "null".into(),
            Value::Bool(value) => format!("the boolean `{value}`"),
            Value::Natural(number) => format!("the integer `{number}`"),
            Value::Negative(number) => format!("the integer `{number}`"),
            Value::Number(written) => without_middle(format!("the number `{written}`")),
            Value::Date => "a date or a time".into(),
            Value::Text(text) => format!("the string {}", Quoted(text)),
            Value::List(_) => "an array".into(),
        })
    }
}

/// The first value that an earlier one equals. For short lists.
pub fn repeated<T: PartialEq>(all: &[T]) -> Option<&T> {
    let mut places = all.iter().enumerate();
    places.find_map(|(place, one)| all.iter().take(place).find(|before| *before == one))
}

fn unknown_name(found: &str, names: &mut dyn Iterator<Item = &str>) -> Error {
    let names: Vec<_> = names.collect();
    Error::found(Term::Words(one_of(&names)), Term::of(Quoted(found)))
}

impl Entry<'_> {
    fn read<T: Form>(&self) -> Result<T, Error> {
        T::read(&self.node).map_err(|error| self.wrong(error))
    }

    /// An error about the value.
    #[inline(never)]
    fn wrong(&self, error: Error) -> Error {
        error.at(self.node.at).in_field(&self.name)
    }

    /// An error about the name.
    fn misnamed(&self, error: Error) -> Error {
        error.at(self.name_at).in_field(&self.name)
    }

    fn unknown(&self, expected: &str) -> Error {
        let found = format!("the field {}", Quoted(&self.name));
        self.misnamed(Error::found(Term::of(expected), Term::Words(found)))
    }
}

/// The fields of a map, of which the names were checked.
pub struct Fields<'n, 't>(&'n [Entry<'t>]);

impl<'t> Fields<'_, 't> {
    /// The text of a required field. It is copied only if it has escapes.
    ///
    /// # Errors
    /// Fails if the field is absent, or if it is no text.
    pub fn text(&self, name: &str) -> Result<Cow<'t, str>, Error> {
        let entry = self.entry(name).ok_or_else(|| missing(name))?;
        match &entry.node.value {
            Value::Text(text) => Ok(text.clone()),
            _ => Err(entry.wrong(entry.node.refused("a string"))),
        }
    }

    /// Reads a required field.
    ///
    /// # Errors
    /// Fails if the field is absent, or if it cannot be read.
    #[inline(never)]
    pub fn get<T: Form>(&self, name: &str) -> Result<T, Error> {
        match self.entry(name) {
            Some(entry) => entry.read(),
            None => Err(missing(name)),
        }
    }

    /// Reads a field; `None` if it is absent, or null.
    ///
    /// # Errors
    /// Fails if the field cannot be read.
    pub fn optional<T: Form>(&self, name: &str) -> Result<Option<T>, Error> {
        let mut value = None;
        self.fill(name, &mut value)?;
        Ok(value)
    }

    /// Whether the field has a value. Null is none.
    pub fn has(&self, name: &str) -> bool {
        self.entry(name).is_some_and(|entry| !matches!(entry.node.value, Value::Null))
    }

    /// Replaces a default value, unless the field is absent.
    ///
    /// # Errors
    /// Fails if the field cannot be read.
    // where it is inlined, most names differ by their lengths, which are constants
    #[cfg_attr(target_arch = "wasm32", inline(never))]
    #[cfg_attr(not(target_arch = "wasm32"), inline(always))]
    pub fn fill<T: Form>(&self, name: &str, value: &mut T) -> Result<(), Error> {
        if let Some(entry) = self.entry(name) {
            *value = entry.read()?;
        }
        Ok(())
    }

    fn entry(&self, name: &str) -> Option<&Entry<'t>> {
        self.0.iter().find(|entry| entry.name == name)
    }
}

fn missing(name: &str) -> Error {
    Error::plain(format!("missing field `{name}`"))
}

/// The largest whole number that every reader of JSON holds exactly (RFC 8259 §6): 2^53 − 1.
pub const MAX_EXACT: u64 = (1 << 53) - 1;

/// A whole number from `LEAST` to `MOST`; `MOST` is 2^53 − 1 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded<const LEAST: u64, const MOST: u64 = MAX_EXACT>(u64);

impl<const LEAST: u64, const MOST: u64> Bounded<LEAST, MOST> {
    /// This number; `None` if it is less than `LEAST` or more than `MOST`.
    ///
    /// ```
    /// use tidegate_form::Bounded;
    /// assert_eq!(Bounded::<1, 5>::new(5).map(Bounded::get), Some(5));
    /// assert_eq!(Bounded::<1, 5>::new(6), None);
    /// ```
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if LEAST <= number && number <= MOST { Some(Self(number)) } else { None }
    }

    /// This number, or the bound that it is beyond.
    #[must_use]
    pub fn clamped(number: u64) -> Self {
        Self(number.clamp(LEAST, MOST))
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl<const LEAST: u64> From<Bounded<LEAST, 0xFFFF_FFFF>> for u32 {
    fn from(bounded: Bounded<LEAST, 0xFFFF_FFFF>) -> Self {
        Self::try_from(bounded.0).unwrap_or(Self::MAX) // never: it has at most 32 bits
    }
}

impl<const LEAST: u64, const MOST: u64> Form for Bounded<LEAST, MOST> {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.whole(LEAST, MOST).map(Self)
    }
}

impl Form for bool {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        match node.value {
            Value::Bool(value) => Ok(value),
            _ => Err(node.refused("a boolean")),
        }
    }
}

impl Form for String {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.text().map(Self::from)
    }
}

/// JSON's null stands for no value.
impl<T: Form> Form for Option<T> {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        match node.value {
            Value::Null => Ok(None),
            _ => T::read(node).map(Some),
        }
    }
}

impl<T: Form> Form for Vec<T> {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let Value::List(nodes) = &node.value else { return Err(node.refused("an array")) };
        let mut values = Self::new(); // a wrong value is found before there is room for all
        for (place, node) in nodes.iter().enumerate() {
            values.push(node.read().map_err(|error| error.in_place(place))?);
        }
        Ok(values)
    }
}
