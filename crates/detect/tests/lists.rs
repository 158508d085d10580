//! `docs/hunt.md` documents exactly the keys of the lists.

use std::collections::BTreeSet;
use std::path::Path;

use stackhound_frames::lists::BUILT_IN;

/// Sections with one key per name, which are too many to document separately.
const MAPS: [&str; 3] = ["services", "causes", "aliases"];

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hunt.md");
    std::fs::read_to_string(path).expect("docs/hunt.md")
}

#[test]
fn the_page_documents_exactly_the_existing_keys() {
    let lists: toml::Table = toml::from_str(BUILT_IN).expect("the built-in lists");
    let mut keys = BTreeSet::new();
    for (section, value) in &lists {
        match value {
            toml::Value::Table(_) if MAPS.contains(&section.as_str()) => {
                keys.insert(format!("[{section}]"));
            }
            toml::Value::Table(table) => keys.extend(table.keys().map(|key| format!("[{section}] {key}"))),
            toml::Value::Array(tables) => {
                let tables = tables.iter().filter_map(toml::Value::as_table);
                keys.extend(tables.flat_map(toml::Table::keys).map(|key| format!("[[{section}]] {key}")));
            }
            other => panic!("{section} is {other:?}"),
        }
    }
    let page = page();
    let documented: Vec<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `["))
        .filter_map(|line| line.split_once('`'))
        .map(|(key, _)| format!("[{key}"))
        .collect();
    let unique: BTreeSet<String> = documented.iter().cloned().collect();
    assert_eq!(unique, keys);
    assert_eq!(unique.len(), documented.len(), "a key is documented twice");
}

#[test]
fn the_page_documents_every_detection_and_input() {
    let page = page();
    for id in stackhound_detect::DetectionId::all() {
        let row = format!("| {} | {} |", id.name(), id.detection().title);
        assert!(page.contains(&row), "{row}");
    }
    for input in stackhound_detect::Input::ALL {
        assert!(page.contains(&format!("`{}`", input.name())), "{}", input.name());
    }
}

#[test]
fn the_example_of_custom_lists_is_valid() {
    let page = page();
    let (_, rest) = page.split_once("```toml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let lists = stackhound_frames::Lists::with(example).expect("lists");
    assert_eq!(lists.alert_window(), 300 * 10_000_000);
}
