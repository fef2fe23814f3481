//! What a model file consists of.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize as De, Deserializer, MapAccess, SeqAccess, Visitor, value};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::dims::{Dims, Extent};
use crate::graph::{Operation, Params};

/// What a document expects of a group of operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The operations.
    pub ops: Vec<String>,
    /// `fuse` or `keep separate`, perhaps with a condition.
    pub decision: String,
    /// The score that the document gives.
    #[serde(default)]
    pub score: Option<f64>,
    /// The document.
    #[serde(default)]
    pub source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) dtype: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) outputs: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) dims: BTreeMap<String, Extent>,
    #[serde(default)]
    pub(super) inputs: BTreeMap<String, Spanned<Declared>>,
    #[serde(default)]
    pub(super) weights: BTreeMap<String, Spanned<Declared>>,
    #[serde(default)]
    pub(super) tensors: BTreeMap<String, Spanned<Declared>>,
    #[serde(default)]
    pub(super) op: Vec<Entry>,
    #[serde(default)]
    pub(super) document: Vec<Expectation>,
}

/// A shape, or a shape with a type.
pub(super) struct Declared {
    pub(super) shape: Vec<Extent>,
    pub(super) dtype: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    shape: Vec<Extent>,
    dtype: Option<String>,
}

impl<'de> De<'de> for Declared {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Declared, D::Error> {
        struct Reader<'de>(PhantomData<&'de ()>);

        impl<'de> Visitor<'de> for Reader<'de> {
            type Value = Declared;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a shape, such as [\"tokens\", 64], or { shape = [..], dtype = \"..\" }")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Declared, A::Error> {
                let shape = De::deserialize(value::SeqAccessDeserializer::new(list))?;
                Ok(Declared { shape, dtype: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Declared, A::Error> {
                let table = Table::deserialize(value::MapAccessDeserializer::new(map))?;
                Ok(Declared { shape: table.shape, dtype: table.dtype })
            }
        }

        deserializer.deserialize_any(Reader(PhantomData))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) name: Spanned<String>,
    pub(super) kind: String,
    #[serde(default)]
    pub(super) inputs: Vec<String>,
    #[serde(default)]
    pub(super) outputs: Vec<String>,
    pub(super) heads: Option<Extent>,
    pub(super) kv_heads: Option<Extent>,
    #[serde(default)]
    pub(super) causal: bool,
    pub(super) groups: Option<Extent>,
    pub(super) k: Option<Extent>,
    #[serde(default)]
    pub(super) sizes: Vec<Extent>,
    pub(super) dtype: Option<String>,
    #[serde(default)]
    pub(super) transposed: bool,
    #[serde(default)]
    pub(super) materialize: bool,
    #[serde(default)]
    pub(super) tf32: bool,
}

impl Entry {
    /// Its operation, or what its extents or type are not.
    pub(super) fn operation(&self, dims: &Dims) -> Result<Operation, String> {
        let value = |extent: &Option<Extent>| extent.as_ref().map(|extent| dims.value(extent)).transpose();
        let params = Params {
            heads: value(&self.heads)?,
            kv_heads: value(&self.kv_heads)?,
            causal: self.causal,
            groups: value(&self.groups)?,
            k: value(&self.k)?,
            sizes: self.sizes.iter().map(|extent| dims.value(extent)).collect::<Result<_, _>>()?,
            dtype: self.dtype.as_deref().map(str::parse).transpose()?,
            transposed: self.transposed,
            materialize: self.materialize,
            tf32: self.tf32,
        };
        let operation = Operation::new(self.name.get_ref(), &self.kind);
        Ok(operation.reads(&self.inputs).writes(&self.outputs).params(params))
    }
}
