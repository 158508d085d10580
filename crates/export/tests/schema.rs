//! Checks that the published JSON Schemas match the types. `STACKHOUND_WRITE_SCHEMAS=1` writes
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use stackhound_export::json::{VERSION, schemas};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema").join(VERSION.to_string())
}

/// Sorts keys, because their order depends on features that other crates enable.
fn sorted(schema: Value) -> Value {
    match schema {
        Value::Object(keywords) => {
            let keywords: BTreeMap<String, Value> = keywords.into_iter().collect();
            keywords.into_iter().map(|(keyword, value)| (keyword, sorted(value))).collect()
        }
        Value::Array(values) => values.into_iter().map(sorted).collect(),
        value => value,
    }
}

#[test]
fn published_schemas_match_the_types() {
    let is_written = std::env::var_os("STACKHOUND_WRITE_SCHEMAS").is_some();
    if is_written {
        std::fs::create_dir_all(folder()).expect("a folder");
    }
    let mut names = BTreeSet::new();
    for (name, schema) in schemas() {
        let path = folder().join(format!("{name}.json"));
        let schema = sorted(schema.to_value());
        if is_written {
            std::fs::write(&path, serde_json::to_string_pretty(&schema).expect("JSON") + "\n")
                .expect("written");
        }
        let published = std::fs::read(&path).expect("a published schema");
        let published: Value = serde_json::from_slice(&published).expect("JSON");
        assert!(published == schema, "{name}: run with STACKHOUND_WRITE_SCHEMAS=1");
        assert!(names.insert(format!("{name}.json")), "{name} occurs twice");
    }
    let published: BTreeSet<String> = std::fs::read_dir(folder())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    assert_eq!(published, names);
}
