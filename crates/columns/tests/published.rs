//! Checks that the published description of the tables is that of the program.
//! `STACKHOUND_WRITE_SCHEMAS=1` writes it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use stackhound_columns::layout::{Storage, Table};
use stackhound_columns::tables::{TableId, VERSION};

fn described(tables: &[Table]) -> String {
    let mut text = format!(
        "# Tables, version {VERSION}\n\n\
         The tables that `stackhound convert -o DIR` writes: see [docs/convert.md](../../convert.md). Engines also read the\n\
         columns `date` and `host` from the names of the folders. Columns marked with `?` can be null. `time` is a timestamp\n\
         in nanoseconds and UTC. Columns marked with `*` have a Bloom filter.\n"
    );
    for table in tables {
        write!(
            text,
            "\n## `{}`\n\n{}\n\n| column | type | meaning |\n|---|---|---|\n",
            table.name(),
            table.doc()
        )
        .unwrap();
        for column in table.columns() {
            let (name, kind) = (column.name, column.r#type.name());
            let null = if column.is_optional { "?" } else { "" };
            let filter = if column.storage == Storage::LookUp { " *" } else { "" };
            let doc = column.doc.replace('|', "\\|");
            writeln!(text, "| `{name}` | {kind}{null}{filter} | {doc} |").unwrap();
        }
    }
    text
}

#[test]
fn the_published_description_is_that_of_the_tables() {
    let tables = TableId::ALL.map(TableId::table);
    for table in &tables {
        let names: BTreeSet<&str> = table.columns().iter().map(|column| column.name).collect();
        assert_eq!(names.len(), table.columns().len(), "{}: a name occurs twice", table.name());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/tables");
    let path = folder.join(format!("{VERSION}.md"));
    let expected = described(&tables);
    if std::env::var_os("STACKHOUND_WRITE_SCHEMAS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(published == expected, "run with STACKHOUND_WRITE_SCHEMAS=1");
}
