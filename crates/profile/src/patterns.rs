//! Patterns that group, fold and select the frames of stacks, in the language of PerfView.
//!
//! A pattern is searched anywhere in the full name of a frame, without regard to case. `*` is any
//! text, `%` a run of letters, digits, `_`, `.` and `?`, `^` the start, `|` separates alternatives,
//! and `{}` captures. Everything else stands for itself. A pattern that starts with `@` is a
//! regular expression of the crate `regex`, whose time is linear in the text. Patterns are
//! separated by `;`. Text in brackets before a pattern is a comment.
//!
//! The full name of a frame is `path!function`; `path!?` if the function has no name. A `!` in a
//! pattern also matches after the extension of an image file, so that `ntdll!Rtl` finds
//! `C:\Windows\System32\ntdll.dll!RtlAllocateHeap`.
//!
//! This module reads patterns. [`regroup`](crate::Patterns::regroup) applies them.

use regex::{Captures, Regex, RegexBuilder};

/// Maximum number of patterns of one kind. Sets of patterns are the bits of a number.
pub const PATTERNS_MAX: usize = 64;
/// Maximum length of a pattern in bytes.
pub const PATTERN_LENGTH_MAX: usize = 1024;
/// Maximum size of a compiled pattern in bytes.
const COMPILED_SIZE_MAX: usize = 1 << 20;

/// A pattern that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PatternError {
    /// It has no text.
    #[error("the pattern `{0}` is empty, and would match every frame; `*` does that")]
    Empty(String),
    /// It is not a group.
    #[error("expected PATTERN->NAME or PATTERN=>NAME, found `{0}`")]
    NoArrow(String),
    /// Braces do not match.
    #[error("the braces of the pattern `{0}` do not match")]
    Braces(String),
    /// The name of a group refers to a capture that the pattern does not have.
    #[error("the name `{name}` refers to ${number}, but the pattern has {captures} captures in braces")]
    Capture {
        /// The name.
        name: String,
        /// The number of the capture.
        number: usize,
        /// The number of captures.
        captures: usize,
    },
    /// It is too long.
    #[error("a pattern has {0} bytes; at most {PATTERN_LENGTH_MAX} are allowed")]
    TooLong(usize),
    /// It is too large when compiled.
    #[error("the pattern `{0}` is too large")]
    TooLarge(String),
    /// There are too many patterns of one kind.
    #[error("there are more than {PATTERNS_MAX} patterns of one kind")]
    TooMany,
    /// It is not a regular expression.
    #[error("the pattern `{pattern}` is not a regular expression: {reason}")]
    Syntax {
        /// The pattern.
        pattern: String,
        /// What the reader of regular expressions says, on one line.
        reason: String,
    },
}

/// A usual way to group frames. All presets fold the helper that is on every stack of a system
/// call.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name on the command line.
    pub name: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Patterns, and the names of their groups.
    groups: &'static [(&'static str, &'static str)],
    /// Whether only the entry points of groups remain.
    is_entry: bool,
    is_own_code: bool,
}

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "just-my-code",
        help: "Keep the code in the directories of the programs; of other code, only the functions that it calls",
        groups: &[],
        is_entry: true,
        is_own_code: true,
    },
    Preset {
        name: "modules",
        help: "One frame for each module",
        groups: &[MODULE],
        is_entry: false,
        is_own_code: false,
    },
    Preset {
        name: "module-entries",
        help: "Of each module, keep only the functions that other modules call",
        groups: &[MODULE],
        is_entry: true,
        is_own_code: false,
    },
    Preset {
        name: "path-entries",
        help: "The same, with the full paths of modules",
        groups: &[("^{*}!", "module $1")],
        is_entry: true,
        is_own_code: false,
    },
    Preset {
        name: "classes",
        help: "One frame for each class",
        groups: CLASSES,
        is_entry: false,
        is_own_code: false,
    },
    Preset {
        name: "class-entries",
        help: "Of each class, keep only the functions that other code calls",
        groups: CLASSES,
        is_entry: true,
        is_own_code: false,
    },
    Preset {
        name: "system-entries",
        help: "Of Windows, of .NET and of each other module, keep only the functions that other code calls",
        groups: &[
            (
                r"@(?:^|\\)(?:coreclr|clr|clrjit|mscorjit|mscorwks|mscoree\w*|hostfxr|hostpolicy)\.dll!",
                ".NET runtime",
            ),
            (r"@\\dotnet\\shared\\|\\microsoft\.net\\|\\nativeimages_", ".NET libraries"),
            (r"@^jit:\w+!(?:system|microsoft|internal)\.", ".NET libraries"),
            (r"@\\(?:windows|systemroot)\\", "Windows"),
            MODULE,
        ],
        is_entry: true,
        is_own_code: false,
    },
];

const MODULE: (&str, &str) = ("{%}!", "module $1");

/// Classes of .NET methods, `module!Namespace.Type.Method`, also of constructors, `Type..ctor`; and
/// of C++ functions, `module!namespace::Type::function`.
const CLASSES: &[(&str, &str)] = &[(r"@([^\\:!]+![^:]+?)\.+[^.:]+$", "class $1"), ("{%!*}::", "class $1")];

/// The helper on every stack of a system call.
const SERVICE_HELPER: &str = "ntoskrnl!%ServiceCopyEnd";

/// The preset with this name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Reads one pattern, in which `;` has no meaning.
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        if text.len() > PATTERN_LENGTH_MAX {
            return Err(PatternError::TooLong(text.len()));
        }
        let pattern = text.trim();
        let expression = match pattern.strip_prefix('@') {
            Some("") => return Err(PatternError::Empty(pattern.to_owned())),
            Some(expression) => expression.to_owned(),
            None => translated(pattern)?,
        };
        let compiled = RegexBuilder::new(&expression)
            .case_insensitive(true)
            .size_limit(COMPILED_SIZE_MAX)
            .dfa_size_limit(COMPILED_SIZE_MAX)
            .build();
        let compiled = compiled.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => PatternError::TooLarge(pattern.to_owned()),
            error => PatternError::Syntax {
                pattern: pattern.to_owned(),
                // The message shows the expression on several lines; the last one has the reason.
                reason: error
                    .to_string()
                    .lines()
                    .last()
                    .unwrap_or_default()
                    .trim_start_matches("error: ")
                    .to_owned(),
            },
        })?;
        Ok(Pattern(compiled))
    }

    /// Whether it occurs in a name.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

/// A pattern as a regular expression.
fn translated(pattern: &str) -> Result<String, PatternError> {
    let mut expression = String::new();
    let mut open = 0_usize;
    let mut buffer = [0; 4];
    for character in pattern.chars() {
        match character {
            '*' => expression += ".*",
            '%' => expression += r"[\w.?]*",
            '^' | '|' => expression.push(character),
            '{' => {
                open += 1;
                expression.push('(');
            }
            '}' => {
                open = open.checked_sub(1).ok_or_else(|| PatternError::Braces(pattern.to_owned()))?;
                expression.push(')');
            }
            '!' => expression += r"(?:\.(?:exe|dll|sys|drv|ocx|cpl))?!",
            other => expression += &regex::escape(other.encode_utf8(&mut buffer)),
        }
    }
    match open {
        _ if pattern.is_empty() => Err(PatternError::Empty(pattern.to_owned())),
        0 => Ok(expression),
        _ => Err(PatternError::Braces(pattern.to_owned())),
    }
}

/// A part of the name of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(String),
    /// What this pair of braces captured; 0 is everything that matched.
    Capture(usize),
}

/// What happens to the frames that match the pattern of a group.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// They are left alone.
    Leave,
    /// They get a name. Later patterns apply to the new name.
    Rename(Name),
    /// They get the name of an entry point.
    Enter(Name),
}

/// The name of a group.
#[derive(Clone, Debug)]
pub(crate) struct Name(Vec<Part>);

impl Name {
    fn read(text: &str, captures: usize) -> Result<Name, PatternError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            parts.push(Part::Text(before.to_owned()));
            let number = match after.bytes().next() {
                Some(b'&') => 0,
                Some(digit @ b'0'..=b'9') => usize::from(digit - b'0'),
                _ => {
                    parts.push(Part::Text("$".to_owned()));
                    rest = after;
                    continue;
                }
            };
            if number > captures {
                return Err(PatternError::Capture { name: text.to_owned(), number, captures });
            }
            parts.push(Part::Capture(number));
            rest = &after[1..];
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Name(parts))
    }

    fn of(&self, captures: &Captures<'_>) -> String {
        let parts = self.0.iter().map(|part| match part {
            Part::Text(text) => text,
            Part::Capture(number) => captures.get(*number).map_or("", |found| found.as_str()),
        });
        parts.collect()
    }
}

/// A group of frames.
#[derive(Clone, Debug)]
struct Group {
    pattern: Pattern,
    action: Action,
}

impl Group {
    fn new(pattern: &str, name: &str, is_entry: bool) -> Result<Group, PatternError> {
        let pattern = Pattern::new(pattern)?;
        let captures = pattern.0.captures_len() - 1;
        let action = match name.trim() {
            "" => Action::Leave,
            name if is_entry => Action::Enter(Name::read(name, captures)?),
            name => Action::Rename(Name::read(name, captures)?),
        };
        Ok(Group { pattern, action })
    }

    fn read(text: &str) -> Result<Group, PatternError> {
        let arrow = ["->", "=>"].into_iter().filter_map(|arrow| text.find(arrow)).min();
        let arrow = arrow.ok_or_else(|| PatternError::NoArrow(text.to_owned()))?;
        Group::new(&text[..arrow], &text[arrow + 2..], text[arrow..].starts_with('='))
    }
}

/// What the groups make of the name of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Grouped {
    /// It belongs to no group.
    Unchanged,
    /// It belongs to no group, because a pattern says so.
    Left,
    /// It gets this name.
    Renamed(String),
    /// It is an entry point of this group, or called by another frame of the group.
    In(String),
}

/// Patterns that group, exclude, include and fold frames.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    groups: Vec<Group>,
    exclude: Vec<Pattern>,
    fold: Vec<Pattern>,
    include: Vec<Pattern>,
    own_code: bool,
    /// Directories of own code, in lower case, without a volume, with a separator at the end.
    own_directories: Vec<String>,
}

impl Patterns {
    /// Adds groups: `PATTERN->NAME`, or `PATTERN=>NAME` for a group of which only the entry points
    /// remain. Without a name, frames that match are left alone. Groups apply in the order in which
    /// they were added.
    pub fn group(&mut self, texts: &str) -> Result<(), PatternError> {
        for text in items(texts)? {
            self.groups.push(Group::read(text)?);
        }
        limited(self.groups.len())
    }

    /// Adds patterns: stacks with a frame that matches any of them are left out.
    pub fn exclude(&mut self, texts: &str) -> Result<(), PatternError> {
        add(&mut self.exclude, texts)
    }

    /// Adds patterns: frames that match any of them are left out, and count for their callers.
    pub fn fold(&mut self, texts: &str) -> Result<(), PatternError> {
        add(&mut self.fold, texts)
    }

    /// Adds patterns: stacks without a frame for each of them are left out.
    pub fn include(&mut self, texts: &str) -> Result<(), PatternError> {
        add(&mut self.include, texts)
    }

    /// Adds the groups of a preset.
    pub fn preset(&mut self, preset: &Preset) -> Result<(), PatternError> {
        for (pattern, name) in preset.groups {
            self.groups.push(Group::new(pattern, name, preset.is_entry)?);
        }
        self.own_code |= preset.is_own_code;
        limited(self.groups.len())?;
        self.fold(SERVICE_HELPER)
    }

    /// Adds a directory of own code, in addition to those of the programs. Its volume is ignored,
    /// since traces name volumes by their devices.
    pub fn own_directory(&mut self, directory: &str) -> Result<(), PatternError> {
        let path = without_volume(directory.trim()).trim_end_matches(['\\', '/']);
        if path.is_empty() {
            return Err(PatternError::Empty(directory.to_owned()));
        }
        self.own_directories.push(path.to_ascii_lowercase().replace('/', "\\") + "\\");
        limited(self.own_directories.len())
    }

    /// Whether own code is kept, and other code is one group.
    pub(crate) fn keeps_own_code(&self) -> bool {
        self.own_code
    }

    /// Whether the path of a module is in a directory that was listed.
    pub(crate) fn is_listed(&self, path: &str) -> bool {
        let path = without_volume(path);
        let starts = |directory: &String| {
            path.get(..directory.len()).is_some_and(|start| start.eq_ignore_ascii_case(directory))
        };
        self.own_directories.iter().any(starts)
    }

    /// Whether some stacks are left out.
    pub fn selects(&self) -> bool {
        !self.exclude.is_empty() || !self.include.is_empty()
    }

    /// The group of a name. After a new name, later patterns apply to it; an entry group and a
    /// group without a name are the last ones.
    pub(crate) fn grouped(&self, full_name: &str) -> Grouped {
        let mut grouped = Grouped::Unchanged;
        for group in &self.groups {
            let name = match &grouped {
                Grouped::Renamed(name) => name,
                _ => full_name,
            };
            let Some(captures) = group.pattern.0.captures(name) else { continue };
            let name = match &group.action {
                Action::Leave => String::new(),
                Action::Rename(name) | Action::Enter(name) => name.of(&captures),
            };
            match &group.action {
                _ if name.is_empty() && grouped == Grouped::Unchanged => return Grouped::Left,
                _ if name.is_empty() => return grouped,
                Action::Enter(_) => return Grouped::In(name),
                _ => grouped = Grouped::Renamed(name),
            }
        }
        grouped
    }

    pub(crate) fn excludes(&self, name: &str) -> bool {
        self.exclude.iter().any(|pattern| pattern.matches(name))
    }

    pub(crate) fn folds(&self, name: &str) -> bool {
        self.fold.iter().any(|pattern| pattern.matches(name))
    }

    /// The patterns that a name includes, as bits.
    pub(crate) fn includes(&self, name: &str) -> u64 {
        let bits =
            self.include.iter().enumerate().map(|(bit, pattern)| u64::from(pattern.matches(name)) << bit);
        bits.fold(0, |all, bit| all | bit)
    }

    /// The bits of all patterns that a stack needs.
    pub(crate) fn needed(&self) -> u64 {
        (0..self.include.len()).fold(0, |all, bit| all | 1 << bit)
    }
}

fn add(patterns: &mut Vec<Pattern>, texts: &str) -> Result<(), PatternError> {
    for text in items(texts)? {
        patterns.push(Pattern::new(text)?);
    }
    limited(patterns.len())
}

fn limited(count: usize) -> Result<(), PatternError> {
    if count > PATTERNS_MAX { Err(PatternError::TooMany) } else { Ok(()) }
}

/// The patterns of a text, without comments. At least one.
fn items(texts: &str) -> Result<Vec<&str>, PatternError> {
    let items: Vec<&str> =
        texts.split(';').map(|text| without_comment(text.trim())).filter(|text| !text.is_empty()).collect();
    match &*items {
        [] => Err(PatternError::Empty(texts.to_owned())),
        _ if items.len() > PATTERNS_MAX => Err(PatternError::TooMany),
        _ => Ok(items),
    }
}

/// A pattern without the comment before it. Brackets that nothing follows are the pattern: `[no
/// stack]`.
fn without_comment(text: &str) -> &str {
    let Some((_, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) else { return text };
    let rest = rest.trim_start();
    if rest.is_empty() || rest.starts_with("->") || rest.starts_with("=>") { text } else { rest }
}

/// A path without its volume: `C:`, `\Device\HarddiskVolume3` or `\??\C:`.
pub(crate) fn without_volume(path: &str) -> &str {
    const DEVICE: &str = r"\device\";
    let path = path.strip_prefix(r"\??").map_or(path, |rest| rest.trim_start_matches('\\'));
    if path.get(..DEVICE.len()).is_some_and(|start| start.eq_ignore_ascii_case(DEVICE)) {
        let rest = &path[DEVICE.len()..];
        return rest.find('\\').map_or("", |at| &rest[at..]);
    }
    match path.as_bytes() {
        [letter, b':', ..] if letter.is_ascii_alphabetic() => &path[2..],
        _ => path,
    }
}
