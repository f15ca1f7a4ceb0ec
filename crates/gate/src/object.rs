//! JSON objects and TOML tables, which serde both calls maps.

use alloc::string::String;
use core::fmt;
use core::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Deserializes only from a map; serde would also accept a sequence of the fields' values.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        object(deserializer, "an object", Ok).map(Self)
    }
}

/// Reads a map as `F` and makes a `T` of it while the map is visited, so that an error of `make`
/// knows the map's place. `expected` names the map in the error about any other value.
pub(crate) fn object<'de, F, T, D>(
    deserializer: D,
    expected: &'static str,
    make: impl FnOnce(F) -> Result<T, String>,
) -> Result<T, D::Error>
where
    F: Deserialize<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_map(ObjectVisitor { expected, make, form: PhantomData })
}

struct ObjectVisitor<F, M> {
    expected: &'static str,
    make: M,
    form: PhantomData<F>,
}

impl<'de, F, T, M> Visitor<'de> for ObjectVisitor<F, M>
where
    F: Deserialize<'de>,
    M: FnOnce(F) -> Result<T, String>,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let form = F::deserialize(MapAccessDeserializer::new(map))?;
        (self.make)(form).map_err(A::Error::custom)
    }
}
