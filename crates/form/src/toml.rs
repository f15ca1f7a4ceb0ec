//! TOML as a tree.

use alloc::borrow::{Cow, ToOwned};
use alloc::string::ToString;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

use crate::{Entry, Error, Node, Value};

/// Reads TOML.
///
/// # Errors
/// Fails with the parser's own words.
pub fn toml(text: &str) -> Result<Node<'_>, Error> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or_default().start;
        Error::plain(error.message().trim_end().to_owned()).at(at)
    })?;
    let at = table.span().start;
    Ok(Node { at, value: map(table.into_inner()) })
}

/// Recurses no deeper than the parser did.
fn node(value: Spanned<DeValue<'_>>) -> Node<'_> {
    let at = value.span().start;
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text),
        DeValue::Boolean(value) => Value::Bool(value),
        DeValue::Integer(number) => {
            Value::whole(number.as_str(), number.radix(), || Cow::Owned(number.to_string()))
        }
        DeValue::Float(number) => Value::Number(Cow::Owned(number.to_string())),
        DeValue::Datetime(_) => Value::Date,
        DeValue::Array(values) => Value::List(values.into_iter().map(node).collect()),
        DeValue::Table(table) => map(table),
    };
    Node { at, value }
}

fn map(table: DeTable<'_>) -> Value<'_> {
    let entries = table.into_iter().map(|(name, value)| {
        let name_at = name.span().start;
        Entry { name_at, name: name.into_inner(), node: node(value) }
    });
    Value::Map(entries.collect())
}
