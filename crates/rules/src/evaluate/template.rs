//! The text of a finding: a template with fields.
//!
//! `%ps.exe` is a field of the event; `%2.ps.exe` of the event of the second slot. Whatever is not a
//! field stays as it is.

use crate::fields::Field;

/// A part of a template.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum TemplatePart {
    Text(String),
    /// A field, by the index of the slot; `None` is the last one.
    Field {
        slot: Option<usize>,
        name: &'static str,
        argument: Option<String>,
    },
}

/// Splits a template.
pub(crate) fn parts(template: &str) -> Vec<TemplatePart> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut rest = template.trim();
    while let Some(at) = rest.find('%') {
        text += &rest[..at];
        let after = &rest[at + 1..];
        match field(after) {
            Some((field, length)) => {
                if !text.is_empty() {
                    parts.push(TemplatePart::Text(std::mem::take(&mut text)));
                }
                parts.push(field);
                rest = &after[length..];
            }
            None => {
                text.push('%');
                rest = after;
            }
        }
    }
    text += rest;
    if !text.is_empty() {
        parts.push(TemplatePart::Text(text));
    }
    parts
}

/// The field at the beginning of a text, and its length.
fn field(text: &str) -> Option<(TemplatePart, usize)> {
    let digit = text.chars().next()?.to_digit(10);
    let start = if digit.is_some() { 1 + usize::from(text[1..].starts_with('.')) } else { 0 };
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let end = text[start..].find(|c| !is_of_name(c)).unwrap_or(text.len() - start);
    // A full stop after the name ends the sentence.
    let name = text[start..start + end].trim_end_matches('.');
    let known = Field::of(name)?;
    let mut length = start + name.len();
    let mut argument = None;
    if let Some(inner) = text[length..].strip_prefix('[')
        && let Some(close) = inner.find(']')
    {
        argument = Some(inner[..close].to_owned());
        length += close + 2;
    }
    let slot = digit.map(|digit| (digit as usize).saturating_sub(1));
    Some((TemplatePart::Field { slot, name: known.name, argument }, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let field = |slot, name| TemplatePart::Field { slot, name, argument: None };
        let text = |text: &str| TemplatePart::Text(text.to_owned());
        for (template, expected) in [
            ("", vec![]),
            ("100% of it", vec![text("100% of it")]),
            ("by %ps.exe.\n", vec![text("by "), field(None, "ps.exe"), text(".")]),
            (
                "%1.ps.exe and %2file.path created",
                vec![field(Some(0), "ps.exe"), text(" and "), field(Some(1), "file.path"), text(" created")],
            ),
            ("%nothing %ps.comm", vec![text("%nothing "), field(None, "ps.cmdline")]),
        ] {
            assert_eq!(parts(template), expected, "{template}");
        }
        let argument = TemplatePart::Field { slot: None, name: "evt.arg", argument: Some("exe".to_owned()) };
        assert_eq!(parts("%evt.arg[exe]"), [argument]);
    }
}
