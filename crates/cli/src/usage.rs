//! Errors in arguments, each as one sentence that names the argument and the expected value.
//!
//! The parser of arguments finds the errors. Errors in the content of files are reported by the verbs.

use std::error::Error as _;
use std::ffi::OsString;
use std::num::ParseIntError;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use crate::help;
use crate::outcome::USAGE_OR_IO;
use crate::output;

/// Ends a run whose arguments were not accepted: shows the help or the version, or an error.
pub fn end(error: &Error, command: &Command, words: &[OsString]) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::DisplayVersion => help::show(error, command, words),
        _ => {
            output::error(format_args!("{}", sentence(error, command, words)));
            ExitCode::from(USAGE_OR_IO)
        }
    }
}

/// The error as one sentence.
fn sentence(error: &Error, command: &Command, words: &[OsString]) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.as_str()],
        Some(ContextValue::Strings(texts)) => texts.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let first = |kind| text(kind).first().copied().unwrap_or_default();
    let (argument, value) = (first(ContextKind::InvalidArg), first(ContextKind::InvalidValue));
    let name = name(argument);
    let verb = verb(command, words);
    let found = if value.is_empty() { "nothing".to_owned() } else { format!("`{value}`") };
    match error.kind() {
        ErrorKind::InvalidValue => {
            let values = text(ContextKind::ValidValue);
            let expected = match values.is_empty() {
                true => expected_value(argument).to_owned(),
                false => any_of(&values, "", ""),
            };
            let nearest = suggestion(&text(ContextKind::SuggestedValue));
            format!("{name}: expected {expected}, found {found}{nearest}")
        }
        ErrorKind::ValueValidation => match error.source() {
            Some(source) if source.is::<ParseIntError>() => {
                format!("{name}: expected a whole number, found {found}")
            }
            Some(source) => match range(&source.to_string()) {
                Some((least, most)) => {
                    format!("{name}: expected a whole number from {least} to {most}, found {found}")
                }
                None => format!("{name}: {source}"),
            },
            None => format!("{name}: expected another value, found {found}"),
        },
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            let nearest = text(ContextKind::SuggestedArg);
            let nearest: Vec<&str> = nearest.into_iter().map(self::name).collect();
            let rest = match nearest.is_empty() {
                true => format!("; `{verb} --help` lists the options"),
                false => suggestion(&nearest),
            };
            format!("`{verb}` has no option `{argument}`{rest}")
        }
        ErrorKind::UnknownArgument => {
            format!("`{verb}` expects no further argument, found `{argument}`")
        }
        ErrorKind::InvalidSubcommand => {
            let unknown = first(ContextKind::InvalidSubcommand);
            let nearest = text(ContextKind::SuggestedSubcommand);
            // The most similar verb is the last one.
            let rest = match nearest.last() {
                None => format!("; `{verb} --help` lists the verbs"),
                Some(nearest) => suggestion(&[nearest]),
            };
            format!("`{verb}` has no verb `{unknown}`{rest}")
        }
        ErrorKind::MissingSubcommand => format!("`{verb}` expects a verb; `{verb} --help` lists the verbs"),
        ErrorKind::MissingRequiredArgument => {
            let missing = any_of(&text(ContextKind::InvalidArg), "", " and ");
            format!("`{verb}` expects {missing}; `{verb} --help` explains the arguments")
        }
        ErrorKind::ArgumentConflict => {
            let others: Vec<&str> = text(ContextKind::PriorArg).into_iter().map(self::name).collect();
            match others[..] {
                [other] if other == name => format!("{name}: expected once, found several times"),
                [] => format!("{name} cannot be used with the other arguments"),
                _ => format!("{name} cannot be used with {}", any_of(&others, "", " and ")),
            }
        }
        ErrorKind::TooManyValues => format!("{name}: expected no value, found {found}"),
        ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
            format!("{name}: expected another number of values")
        }
        ErrorKind::InvalidUtf8 => "expected arguments in UTF-8, found other bytes".to_owned(),
        _ => {
            let text = error.to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
    }
}

/// The name of an argument in a synopsis such as `--pid <ID>` or `<FILE>...`.
fn name(synopsis: &str) -> &str {
    match synopsis.starts_with('-') {
        true => synopsis.split([' ', '=', '[']).next().unwrap_or(synopsis),
        false => synopsis.trim_end_matches('.').trim_matches(['<', '>', '[', ']']),
    }
}

/// The value in a synopsis such as `--pid <ID>`.
fn expected_value(synopsis: &str) -> &str {
    let value = synopsis.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    value.map_or("a value", |(value, _)| value)
}

/// Names as alternatives, or joined with another word before the last one.
fn any_of(names: &[&str], quote: &str, word: &str) -> String {
    let word = if word.is_empty() { " or " } else { word };
    let quoted: Vec<String> = names.iter().map(|name| format!("{quote}{name}{quote}")).collect();
    match &quoted[..] {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{}{word}{last}", rest.join(", ")),
    }
}

/// The question at the end of the sentence.
pub fn suggestion(nearest: &[&str]) -> String {
    match nearest.is_empty() {
        true => String::new(),
        false => format!("; did you mean {}?", any_of(nearest, "`", "")),
    }
}

/// The bounds in the message `5 is not in 0..=4` of the parsers of numbers.
fn range(message: &str) -> Option<(&str, &str)> {
    let (_, bounds) = message.split_once(" is not in ")?;
    bounds.split_once("..=")
}

/// The program and the verbs among the words, as they were written.
fn verb(command: &Command, words: &[OsString]) -> String {
    let name = words.first().map(|word| Path::new(word).file_stem().unwrap_or(word).to_string_lossy());
    let mut path = vec![name.filter(|name| !name.is_empty()).unwrap_or("stackhound".into()).into_owned()];
    let mut current = command;
    for word in words.iter().skip(1) {
        let Some(verb) = current.get_subcommands().find(|verb| verb.get_name() == word) else { continue };
        path.push(verb.get_name().to_owned());
        current = verb;
    }
    path.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::{Arg, CommandFactory};

    use super::*;
    use crate::args::Arguments;

    /// Every verb without verbs of its own, as the words that select it.
    fn verbs(command: &Command, path: &[&str], found: &mut Vec<(Vec<String>, Command)>) {
        for verb in command.get_subcommands() {
            let path = [path, &[verb.get_name()]].concat();
            if verb.has_subcommands() {
                verbs(verb, &path, found);
            } else {
                found.push((path.iter().map(|&word| word.to_owned()).collect(), verb.clone()));
            }
        }
    }

    fn refusal(words: &[String]) -> Option<(ErrorKind, String)> {
        let words: Vec<OsString> =
            std::iter::once("stackhound".into()).chain(words.iter().map(OsString::from)).collect();
        let command = Arguments::command();
        let error = command.clone().try_get_matches_from(&words).err()?;
        Some((error.kind(), sentence(&error, &command, &words)))
    }

    /// What every sentence has in common.
    fn check(words: &[String], sentence: &str) {
        assert!(!sentence.contains('\n') && !sentence.contains("Usage"), "{words:?}: {sentence}");
        assert!(!sentence.contains(". ") && !sentence.ends_with('.'), "{words:?}: {sentence}");
        assert!(sentence.contains("expect") || sentence.contains('`'), "{words:?}: {sentence}");
    }

    #[test]
    fn every_option_of_every_verb_names_itself_and_what_it_expects() {
        let mut command = Arguments::command();
        command.build();
        let mut leaves = Vec::new();
        verbs(&command, &[], &mut leaves);
        assert!(leaves.len() > 40, "{}", leaves.len());
        let (mut bad_values, mut missing_values) = (0, 0);
        // `query` has the options of another program.
        let passes_on = |verb: &Command| verb.get_arguments().any(Arg::is_trailing_var_arg_set);
        leaves.retain(|(path, verb)| !path.contains(&"help".to_owned()) && !passes_on(verb));
        for (path, verb) in &leaves {
            let of = |more: &[&str]| -> Vec<String> {
                path.iter().cloned().chain(more.iter().map(|&word| word.to_owned())).collect()
            };
            let words = of(&["--no-such-option"]);
            let (_, sentence) = refusal(&words).unwrap();
            check(&words, &sentence);
            assert!(sentence.contains("has no option `--no-such-option`"), "{sentence}");
            assert!(sentence.starts_with(&format!("`stackhound {}`", path.join(" "))), "{sentence}");
            for option in verb.get_arguments() {
                let Some(long) = option.get_long().filter(|_| option.get_action().takes_values()) else {
                    continue;
                };
                let long = format!("--{long}");
                let words = of(&[&long]);
                if option.get_num_args().is_some_and(|count| count.min_values() == 0) {
                    continue;
                }
                let (kind, sentence) = refusal(&words).unwrap();
                check(&words, &sentence);
                assert_eq!(kind, ErrorKind::InvalidValue, "{words:?}: {sentence}");
                assert!(sentence.starts_with(&format!("{long}: expected ")), "{sentence}");
                missing_values += 1;
                let words = of(&[&long, "\u{1}?"]);
                if let Some((kind @ (ErrorKind::InvalidValue | ErrorKind::ValueValidation), sentence)) =
                    refusal(&words)
                {
                    check(&words, &sentence);
                    assert!(sentence.starts_with(&format!("{long}: ")), "{kind:?} {sentence}");
                    bad_values += 1;
                }
            }
        }
        assert!(missing_values > 400 && bad_values > 150, "{missing_values} {bad_values}");
    }

    /// Otherwise the format would not be that of the file name.
    #[test]
    fn formats_have_no_default_if_there_is_a_file_name() {
        let mut command = Arguments::command();
        command.build();
        let mut leaves = Vec::new();
        verbs(&command, &[], &mut leaves);
        let mut found = 0;
        for (path, verb) in &leaves {
            let of = |id: &str| verb.get_arguments().find(|argument| argument.get_id() == id);
            if let (Some(format), Some(_)) = (of("format"), of("output")) {
                assert!(format.get_default_values().is_empty(), "{path:?}");
                assert!(format.get_help().unwrap().to_string().contains("the file name of -o"), "{path:?}");
                found += 1;
            }
        }
        assert!(found > 30, "{found}");
    }

    #[test]
    fn synopses_are_names_and_values() {
        for (synopsis, expected, value) in [
            ("--pid <ID>", "--pid", "ID"),
            ("<FILE>...", "FILE", "FILE"),
            ("[FILE]...", "FILE", "a value"),
            ("--quiet", "--quiet", "a value"),
        ] {
            assert_eq!((name(synopsis), expected_value(synopsis)), (expected, value), "{synopsis}");
        }
        assert_eq!(range("5 is not in 0..=4"), Some(("0", "4")));
        assert_eq!(any_of(&["a", "b", "c"], "`", ""), "`a`, `b` or `c`");
    }
}
