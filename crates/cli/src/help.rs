//! The help of the program: its verbs in groups by task.
//!
//! The help of each verb is the parser's own. The parser has no groups of verbs, so that the list is
//! written here, from the same definition.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::{Command, Error};

use crate::output::{terminal_width, wrapped};

/// The tasks, and their verbs in the order of the list. A test fails if a verb is in no group.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Look at a trace", &["summary", "info", "events", "stacks"]),
    ("Analyze time and resources", &["top", "callers", "callees", "diff", "kstack"]),
    ("Hunt for attacks", &["hunt", "explain", "rules", "images"]),
    ("Explore calls", &["threads", "tree", "stack", "backtrace", "ranges", "events-of", "calls"]),
    ("Record", &["record", "demo"]),
    ("Convert", &["convert", "query", "profile"]),
    ("Maintain", &["symbols", "providers", "config", "completions", "man"]),
];

/// The widest help, as in the definition of the arguments.
const WIDTH_MAX: usize = 110;

/// The width without a terminal, as the parser assumes.
const WIDTH: usize = 100;

/// Shows the help or version that the parser found. The help of the program gets the groups.
pub fn show(error: &Error, command: &Command, words: &[OsString]) -> ExitCode {
    let code = u8::try_from(error.exit_code()).unwrap_or(crate::outcome::USAGE_OR_IO);
    // The usage line states whose help it is.
    if !error.to_string().contains(&command.clone().render_usage().to_string()) {
        // The reader of the output may have closed the pipe.
        _ = error.print();
        return ExitCode::from(code);
    }
    let is_long = words.iter().any(|word| word == "--help" || word == "help");
    let help = grouped(command.clone(), is_long);
    if error.use_stderr() {
        anstream::eprint!("{}", help.ansi());
    } else {
        use std::io::Write as _;
        _ = write!(anstream::stdout(), "{}", help.ansi());
    }
    ExitCode::from(code)
}

/// The help of the program.
fn grouped(command: Command, is_long: bool) -> StyledStr {
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {}\n\n{}\n{{all-args}}{{after-help}}",
        "stackhound [OPTIONS] <VERB> | <FILE>...",
        list(&command)
    );
    let mut command =
        command.help_template(template).disable_help_subcommand(true).mut_subcommands(|verb| verb.hide(true));
    if is_long { command.render_long_help() } else { command.render_help() }
}

/// The groups of verbs.
fn list(command: &Command) -> String {
    let styles = command.get_styles();
    let (heading, literal) = (styles.get_header(), styles.get_literal());
    let left = command.get_subcommands().map(|verb| verb.get_name().len()).max().unwrap_or(0) + 4;
    let width = terminal_width().unwrap_or(WIDTH).min(WIDTH_MAX).saturating_sub(left).max(20);
    let mut text = String::new();
    for (title, verbs) in GROUPS {
        _ = writeln!(text, "{heading}{title}:{heading:#}");
        for verb in verbs.iter().filter_map(|name| command.find_subcommand(name)) {
            let name = verb.get_name();
            _ = write!(text, "  {literal}{name}{literal:#}{:1$}", "", left - 2 - name.len());
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            _ = writeln!(text, "{}", wrapped(&about, width).join(&format!("\n{:left$}", "")));
        }
        text.push('\n');
    }
    text + "`stackhound VERB --help` explains a verb, and `stackhound FILE` means `stackhound summary FILE`.\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::args::Arguments;

    #[test]
    fn every_verb_is_in_one_group() {
        let command = Arguments::command();
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let verbs: BTreeSet<&str> = verbs.map(Command::get_name).collect();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        assert_eq!(listed.len(), listed.iter().collect::<BTreeSet<_>>().len(), "a verb is listed twice");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), verbs);
    }

    #[test]
    fn help_contains_the_groups_and_the_options_once() {
        for is_long in [false, true] {
            let help = grouped(Arguments::command(), is_long).to_string();
            for (title, _) in GROUPS {
                assert_eq!(help.matches(&format!("{title}:\n")).count(), 1, "{help}");
            }
            assert!(help.contains("--no-progress") && help.contains("Examples:"), "{help}");
            assert!(!help.contains("Commands:"), "{help}");
        }
    }
}
