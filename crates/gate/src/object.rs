//! Objects of JSON and tables of TOML, which are the same to serde.

use alloc::string::String;
use core::fmt::{self, Write};
use core::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_path_to_error::{Path, Segment};

/// What stands for itself as an object and as nothing else: serde by itself would also take a list,
/// for the fields in their order.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        object(deserializer, "an object", Ok).map(Self)
    }
}

/// Reads an object in the form `F`, and makes something of it while it is being visited: an error
/// then still knows which object it was. `expected` is what else than an object is told.
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

/// Such as `policies.api.limits[0]`, as far as it is known: where a field or what follows it cannot be
/// read, that is where its object is.
pub(crate) fn known_path(path: &Path) -> String {
    let mut text = String::new();
    for segment in path.iter().take_while(|segment| !matches!(segment, Segment::Unknown)) {
        let dot = if text.is_empty() || matches!(segment, Segment::Seq { .. }) { "" } else { "." };
        let _ = write!(text, "{dot}{segment}"); // to a string it cannot fail
    }
    text
}
