//! The facts of the catalogue in documents of other schemas.

use serde_json::{Value, json};
use stackhound_facts::{FactId, FactRow, FactSet, FactValue};

use crate::json::facts;

/// A schema of documents.
#[derive(Clone, Copy)]
pub(super) struct Schema {
    /// The field of a fact, if the schema has one.
    pub field: fn(&FactRow) -> Option<&'static str>,
    /// The value, as the schema spells it.
    pub value: fn(&FactRow, &FactValue<'_>) -> Value,
}

/// Adds the known facts to the object that represents their subject. Returns those without a field of the schema, by
/// their own paths.
pub(super) fn add<F: FactId>(object: &mut Value, facts: &FactSet<'_, F>, schema: Schema) -> Value {
    let mut others = json!({});
    for (fact, value) in facts.known() {
        let row = fact.row();
        match (schema.field)(row) {
            Some(path) => put(object, path, (schema.value)(row, value)),
            None => put(&mut others, row.path, plain(value)),
        }
    }
    others
}

/// Sets a value at a path of keys. Objects on the way are created.
pub(super) fn put(object: &mut Value, path: &str, value: Value) {
    *path.split('.').fold(object, |object, key| &mut object[key]) = value;
}

/// A value as in our own documents.
pub(super) fn plain(value: &FactValue<'_>) -> Value {
    json!(facts::Value(value))
}
