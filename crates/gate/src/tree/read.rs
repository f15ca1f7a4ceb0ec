//! Forms out of a tree.

use alloc::format;
use core::{iter, slice};

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::{Term, expected, found};
use super::{Entry, Error, Node, Value};
use crate::quote::{Quoted, without_middle};

impl Node<'_> {
    /// Reads a form.
    ///
    /// # Errors
    /// Fails if the value is not of the form. The error has the place of the innermost value that it is about.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        T::deserialize(self).map_err(|error| error.at(self.at))
    }

    /// The error for a value of another kind than expected.
    fn refused(&self, by: &dyn Expected) -> Error {
        let found = match &self.value {
            Value::Null => found(Unexpected::Unit),
            Value::Bool(value) => found(Unexpected::Bool(*value)),
            Value::Natural(number) => found(Unexpected::Unsigned(*number)),
            Value::Negative(number) => found(Unexpected::Signed(*number)),
            Value::Number(written) => {
                Term::Words(without_middle(format!("the number `{written}`")))
            }
            Value::Date => Term::of("a date or a time"),
            Value::Text(text) => found(Unexpected::Str(text)),
            Value::List(_) => found(Unexpected::Seq),
            Value::Map(_) => found(Unexpected::Map),
        };
        Error::found(expected(by), found)
    }
}

/// Only `deserialize_any` accepts several kinds of values, so forms have the code of the kinds that they accept.
impl<'de> Deserializer<'de> for &Node<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Natural(number) => visitor.visit_u64(*number),
            Value::Negative(number) => visitor.visit_i64(*number),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(_) => self.deserialize_seq(visitor),
            Value::Map(_) => self.deserialize_map(visitor),
            Value::Number(_) | Value::Date => Err(self.refused(&visitor)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Bool(value) => visitor.visit_bool(value),
            _ => Err(self.refused(&visitor)),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Natural(number) => visitor.visit_u64(number),
            Value::Negative(number) => visitor.visit_i64(number),
            _ => Err(self.refused(&visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Text(text) => visitor.visit_str(text),
            _ => Err(self.refused(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::List(values) => visitor.visit_seq(Values(values.iter().enumerate())),
            _ => Err(self.refused(&visitor)),
        }
    }

    /// Refuses fields that the visitor leaves.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Value::Map(entries) = &self.value else {
            return Err(self.refused(&visitor));
        };
        let mut entries = Entries { rest: entries.iter(), read: None };
        let value = visitor.visit_map(&mut entries)?;
        entries.end().map(|()| value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    /// A variant without fields.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.value {
            Value::Text(text) => visitor.visit_enum(name(text)),
            _ => Err(self.refused(&visitor)),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct
        ignored_any
    }
}

fn name(text: &str) -> StrDeserializer<'_, Error> {
    text.into_deserializer()
}

struct Values<'n, 't>(iter::Enumerate<slice::Iter<'n, Node<'t>>>);

impl<'de> SeqAccess<'de> for Values<'_, '_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some((place, node)) = self.0.next() else { return Ok(None) };
        seed.deserialize(node).map(Some).map_err(|error| error.at(node.at).in_place(place))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Entries<'n, 't> {
    rest: slice::Iter<'n, Entry<'t>>,
    /// The entry of which the name was read.
    read: Option<&'n Entry<'t>>,
}

impl Entries<'_, '_> {
    fn end(mut self) -> Result<(), Error> {
        self.rest.next().map_or(Ok(()), |entry| {
            let found = Term::Words(format!("the field {}", Quoted(&entry.name)));
            let error = Error::found(Term::of("no other field"), found);
            Err(error.at(entry.name_at).in_field(&entry.name))
        })
    }
}

impl<'de> MapAccess<'de> for &mut Entries<'_, '_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        self.read = self.rest.next();
        let Some(entry) = self.read else { return Ok(None) };
        let key = seed.deserialize(name(&entry.name));
        key.map(Some).map_err(|error| error.at(entry.name_at).in_field(&entry.name))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Some(entry) = self.read else {
            return Err(Error::found(Term::of("a field"), Term::of("the end")));
        };
        let node = &entry.node;
        seed.deserialize(node).map_err(|error| error.at(node.at).in_field(&entry.name))
    }
}
