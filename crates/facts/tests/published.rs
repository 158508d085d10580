//! The published page of facts, `docs/facts.md`, is that of the catalogue.

use std::fmt::Write;
use std::path::Path;

use stackhound_facts::{EventFact, FactId, FactType, ProcessFact, ThreadFact};

const HEAD: &str = "# Facts

What can be known about the process and the thread of an event, about those that it acts on, and about its objects. A
fact has the same name in filters ([filters.md](filters.md)) and in JSON documents, where the parts of its path are nested
objects: of events ([events.md](events.md)), findings and alerts ([findings.md](findings.md)). The columns of CSV have
these names too. Unknown facts are null; an object of which nothing is known is null.

`process` and `thread` are those of the event, `target.process` and `target.thread` those that it acts on, with the same
facts. `process.user` in filters is the name and the security identifier.

The other columns have the names elsewhere: in tables ([tables](schema/tables/1.md)), in documents of ECS and OCSF, below
the process or the thread there, in rules of Fibratus, and in Sysmon's data, which are those of Sigma. Documents have facts without such a name
below `stackhound` (ECS) and `unmapped` (OCSF). For processes of Windows logs, the facts with names in Sysmon's data are
known.
";

fn objects(page: &mut String) {
    let _ = writeln!(page, "\n## Objects of events\n\n| fact | type | meaning |\n|---|---|---|");
    for row in EventFact::ALL.iter().map(|fact| fact.row()) {
        let _ = writeln!(page, "| `{}` | {} | {} |", row.path, name(row.r#type), row.doc);
    }
}

fn name(r#type: FactType) -> &'static str {
    match r#type {
        FactType::Text => "text",
        FactType::Number => "number",
        FactType::Hex => "`0x…`",
        FactType::Time => "time",
    }
}

fn section<F: FactId>(page: &mut String, title: &str, prefix: &str) {
    let _ = writeln!(page, "\n## {title}\n");
    let _ = writeln!(page, "| fact | type | meaning | table | ECS | OCSF | Fibratus | Sysmon, Sigma |");
    let _ = writeln!(page, "|---|---|---|---|---|---|---|---|");
    for fact in F::ALL {
        let row = fact.row();
        let code = |name: &str| format!("`{name}`");
        let optional = |name: Option<&str>| name.map(code).unwrap_or_default();
        let sigma: Vec<String> = row.sigma.iter().map(|name| code(name)).collect();
        let _ = writeln!(
            page,
            "| `{prefix}{}` | {} | {} | `{}` | {} | {} | {} | {} |",
            row.path,
            name(row.r#type),
            row.doc,
            row.column,
            optional(row.ecs),
            optional(row.ocsf),
            row.fibratus.map(|name| format!("`ps.{name}`")).unwrap_or_default(),
            sigma.join(", "),
        );
    }
}

#[test]
fn the_published_page_is_that_of_the_catalogue() {
    let mut page = HEAD.to_owned();
    section::<ProcessFact>(&mut page, "Processes", "process.");
    section::<ThreadFact>(&mut page, "Threads", "thread.");
    objects(&mut page);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/facts.md");
    if std::env::var_os("STACKHOUND_WRITE_SCHEMAS").is_some() {
        std::fs::write(&path, &page).expect("the page is written");
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(published == page, "run with STACKHOUND_WRITE_SCHEMAS=1");
}
