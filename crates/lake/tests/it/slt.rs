//! The files `tests/slt/*.slt`, whose format is that of sqllogictest. Each statement is one run of
//! the program over the tables of the demo trace.

use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use sqllogictest::{DB, DBOutput, DefaultColumnType, Runner};

use crate::program::{demo, lake};

struct Program;

#[derive(Debug)]
struct Failed(String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

/// The values of an object, in their order.
struct Row(Vec<Value>);

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Row, D::Error> {
        struct Values;

        impl<'de> Visitor<'de> for Values {
            type Value = Row;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
                let mut values = Vec::new();
                while let Some((_, value)) = map.next_entry::<String, Value>()? {
                    values.push(value);
                }
                Ok(Row(values))
            }
        }

        deserializer.deserialize_map(Values)
    }
}

impl DB for Program {
    type Error = Failed;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Failed> {
        let output = lake(&["query", sql, &demo().tables(), "--format", "ndjson"]);
        if !output.status.success() {
            return Err(Failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let text = String::from_utf8(output.stdout).map_err(|error| Failed(error.to_string()))?;
        let rows: Vec<Row> =
            text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        let cell = |value: &Value| match value {
            Value::Null => "NULL".to_owned(),
            Value::String(text) if text.is_empty() => "(empty)".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let types = vec![DefaultColumnType::Any; rows.first().map_or(0, |row| row.0.len())];
        Ok(DBOutput::Rows { types, rows: rows.iter().map(|row| row.0.iter().map(cell).collect()).collect() })
    }
}

#[test]
fn files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(paths.len() >= 4, "{paths:?}");
    for path in paths {
        let mut runner = Runner::new(|| async { Ok(Program) });
        if let Err(error) = runner.run_file(&path) {
            panic!("{error}");
        }
    }
}
