//! Names of fields, types, levels and keywords in lists.

use stackhound::schema::{
    Count, EventDescription, Field, InType, Length, OutType, ProviderDescription, Schema,
};

/// The fields of a template in one line, such as `PID UInt32 (PID), Stack Pointer[Count]`. Members
/// of structures are in braces.
pub fn fields(schema: &Schema) -> String {
    let (text, _) = fields_from(schema, 0, usize::MAX);
    text
}

/// At most `count` fields from an index on, and the index after them.
fn fields_from(schema: &Schema, mut next: usize, count: usize) -> (String, usize) {
    let mut texts = Vec::new();
    while texts.len() < count {
        let Some(field) = schema.fields.get(next) else { break };
        next += 1;
        let mut text = format!("{} ", field.name);
        if let InType::Struct { members } = field.in_type {
            let (inner, end) = fields_from(schema, next, members.into());
            text += &format!("{{ {inner} }}");
            next = end;
        } else {
            text += short(field.in_type.manifest_name());
            // The output type of texts adds nothing.
            let shown = field.out_type.manifest_name().filter(|_| field.out_type != OutType::String);
            text += &shown.map_or(String::new(), |name| format!(" ({})", short(name)));
        }
        match length(schema, field) {
            Some(length) => text += &format!(" of {length}"),
            None if field.length == Length::Rest => text += " to the end",
            None => {}
        }
        text += &self::count(schema, field).map_or(String::new(), |count| format!("[{count}]"));
        text += &field.map.as_ref().map_or(String::new(), |map| format!(" = {}", map.name));
        texts.push(text);
    }
    (texts.join(", "), next)
}

/// The name of a type without its namespace.
fn short(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, name)| name)
}

/// The number of elements of an array, or the name of the field that contains it.
pub fn count(schema: &Schema, field: &Field) -> Option<String> {
    Some(match field.count {
        Count::One => return None,
        Count::Fixed(count) => count.to_string(),
        Count::Field(index) => name(schema, index),
        Count::Prefixed => "before it".to_owned(),
        Count::Rest => String::new(),
    })
}

/// The length of a text or of bytes, or the name of the field that contains it.
pub fn length(schema: &Schema, field: &Field) -> Option<String> {
    match field.length {
        Length::Natural | Length::Rest => None,
        Length::Fixed(length) => Some(length.to_string()),
        Length::Field(index) => Some(name(schema, index)),
    }
}

fn name(schema: &Schema, index: u16) -> String {
    schema.fields.get(usize::from(index)).map(|field| field.name.to_string()).unwrap_or_default()
}

/// The name of an event's level.
pub fn level(provider: &ProviderDescription, event: &EventDescription) -> Option<String> {
    let level = event.level?;
    Some(provider.level_name(level).map_or_else(|| level.to_string(), str::to_owned))
}

/// The names of an event's keywords.
pub fn keywords<'p>(provider: &'p ProviderDescription, event: &EventDescription) -> Vec<&'p str> {
    provider.keyword_names(event.keywords.unwrap_or(0)).collect()
}
