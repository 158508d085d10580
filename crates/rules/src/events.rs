//! The events that rules name, and the log sources of Sigma.

use std::sync::LazyLock;

use crate::needs::{Need, Needs};

/// An event.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Event {
    pub name: &'static str,
    pub category: &'static str,
    pub needs: Needs,
}

/// The name of an event, as a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EventName(u8);

impl EventName {
    /// All names, in the order of the table.
    pub fn all() -> impl Iterator<Item = EventName> {
        (0..EVENTS.len() as u8).map(EventName)
    }

    /// The name with this spelling.
    pub fn of(name: &str) -> Option<EventName> {
        EventName::all().find(|known| known.name() == name)
    }

    /// The spelling.
    pub fn name(self) -> &'static str {
        self.event().name
    }

    /// The index in the table.
    pub fn index(self) -> usize {
        self.0.into()
    }

    pub(crate) fn event(self) -> Event {
        EVENTS[self.index()]
    }
}

const TEXT: &str = include_str!("events.txt");

static EVENTS: LazyLock<Vec<Event>> = LazyLock::new(|| {
    let lines = TEXT.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let event = |line: &'static str| {
        let mut words = line.split(' ');
        let (name, category) = (words.next()?, words.next()?);
        let needs = match words.next()? {
            "-" => Needs::NONE,
            need => Needs::of(Need::of(need)?),
        };
        Some(Event { name, category, needs })
    };
    lines.map(|line| event(line).unwrap_or_else(|| panic!("events.txt: {line}"))).collect()
});

impl Event {
    /// The event with a name.
    pub fn of(name: &str) -> Option<Event> {
        EVENTS.iter().find(|event| event.name == name && event.category != SIGMA).copied()
    }
}

/// The category of log sources of Sigma.
const SIGMA: &str = "sigma";

/// The names in conditions.
pub(crate) fn names() -> Vec<&'static str> {
    EVENTS.iter().filter(|event| event.category != SIGMA).map(|event| event.name).collect()
}

/// The names of the events of a category.
pub(crate) fn of_category(category: &str) -> Vec<&'static str> {
    EVENTS.iter().filter(|event| event.category == category).map(|event| event.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_complete() {
        assert_eq!(names().len(), 45);
        assert_eq!(of_category("object"), ["CreateSymbolicLinkObject"]);
        assert_eq!(Event::of("OpenProcess").unwrap().needs, Needs::of(Need::AuditEvents));
        assert_eq!(Event::of("openprocess"), None);
    }
}
