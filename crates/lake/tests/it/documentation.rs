//! Runs the questions in `docs/query.md`, and compares the answers with those of the page.

use std::process::Command;

use crate::program::{demo, text};

/// The words of a command, in which only double quotes group.
fn words(command: &str) -> Vec<String> {
    let parts = command.split('"').enumerate();
    parts
        .flat_map(|(number, part)| match number % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![part.to_owned()],
        })
        .collect()
}

#[test]
fn documented_questions_have_the_documented_answers() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/query.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut count = 0;
    for block in page.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for shown in block.split("$ ").skip(1) {
            let (command, documented) = shown.split_once('\n').unwrap();
            let Some(arguments) = command.strip_prefix("stackhound query ") else { continue };
            let arguments = words(arguments).into_iter().map(|word| match &*word {
                "lake" => demo().tables(),
                "trace.etl" => demo().trace(),
                _ => word,
            });
            let mut program = Command::new(env!("CARGO_BIN_EXE_stackhound-lake"));
            let answer = text(program.arg("query").args(arguments).output().unwrap());
            // An omitted line stands for any.
            assert_eq!(answer.lines().count(), documented.lines().count(), "{command}\n{answer}");
            for (line, expected) in answer.lines().zip(documented.lines()) {
                assert!(expected == "…" || line == expected, "{command}\n{answer}");
            }
            count += 1;
        }
    }
    assert_eq!(count, 6);
}
