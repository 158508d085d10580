//! `describe_InvalidParsing`: 7 cases. What handlers are told if they ask for what is not there. The build makes no
//! difference.

use std::sync::mpsc;

use stackhound::Provider;
use stackhound::schema::Error;

use crate::rows::{Rows, builder, check, incomplete, read, trace};
use crate::schemas::{WININET, WININET_1057};

pub fn rows() -> Rows {
    let event = incomplete(&builder(WININET_1057).with("Status", 200_u32));
    let told = |parse: fn(&stackhound::EventView<'_>) -> Result<String, Error>| {
        read(WININET, &event, parse).unwrap_or_else(|error| error.to_string())
    };
    // An error that a handler gives back ends nothing, and comes to who asked for errors.
    let (sender, errors) = mpsc::channel();
    let provider = Provider::guid(WININET).on_event(|view| -> Result<(), Error> {
        view.parser()?.parse::<i16>("Status")?;
        Ok(())
    });
    let stats = trace(&event)
        .enable(provider)
        .on_error(move |error| {
            let _ = sender.send(error.error.to_string());
        })
        .run(|_| ())
        .expect("a trace");
    let rows = [
        (
            "a name that no property has",
            told(|view| view.parser()?.parse::<String>("InvalidName")),
            "there is no property InvalidName",
        ),
        (
            "a name that no property has, tried",
            told(|view| Ok(format!("{:?}", view.parser()?.try_parse::<String>("InvalidName")))),
            "None",
        ),
        (
            "a narrower number",
            told(|view| Ok(view.parser()?.parse::<i16>("Status")?.to_string())),
            "property Status is U32, not i16",
        ),
        (
            "a narrower number, tried",
            told(|view| Ok(format!("{:?}", view.parser()?.try_parse::<i16>("Status")))),
            "None",
        ),
        (
            "a narrower number, with another for that case",
            told(|view| Ok(view.parser()?.try_parse::<i16>("Status").unwrap_or(15).to_string())),
            "15",
        ),
        (
            "text for a number",
            told(|view| view.parser()?.parse::<String>("Status")),
            "property Status is U32, not text",
        ),
        (
            "a number for text",
            told(|view| Ok(view.parser()?.parse::<u32>("URL")?.to_string())),
            "property URL is Ansi, not u32",
        ),
        ("the right type", told(|view| Ok(view.parser()?.parse::<u32>("Status")?.to_string())), "200"),
        (
            "an error of a handler is told",
            errors.recv().expect("an error"),
            "property Status is U32, not i16",
        ),
        ("and the trace goes on to its end", stats.delivered.to_string(), "1"),
    ];
    check(rows.map(|(name, is, expected)| (name, is, expected.to_owned())))
}
