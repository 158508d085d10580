//! Events of Windows logs with all their data, from JSON of log shippers and from event logs.

use std::sync::LazyLock;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use serde_json::Value;

use crate::field::{FIELDS, Field, capitalized};
use crate::time;

/// An event of a Windows log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WindowsEvent {
    /// The provider, such as `Microsoft-Windows-Sysmon`; empty if unknown.
    pub provider: String,
    /// The channel, such as `Security`; empty if unknown.
    pub channel: String,
    /// The id of the event.
    pub id: Option<u32>,
    /// The name of the machine; empty if unknown.
    pub host: String,
    /// Time in units of 100 ns since 1601.
    pub time: Option<u64>,
    /// Number of events that the record stands for, at least 1.
    pub count: u64,
    /// Names and texts of the data.
    pub data: Vec<(String, String)>,
}

/// Names of rows that stand for several events, with those of Sysmon.
static ROW_NAMES: LazyLock<HashMap<&str, &str, RandomState>> = LazyLock::new(|| {
    let names = FIELDS.iter().flat_map(|names| names.top.iter().zip(names.data));
    names.map(|(row, known)| (*row, *known)).collect()
});

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Object(object) => object.get("#text").or_else(|| object.get("Value")).and_then(text),
        Value::Null | Value::Array(_) => None,
    }
}

fn member<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, name| value.get(name))
}

/// The text of these fields at the top of a document, empty if it has none.
fn at_top(object: &Value, fields: &[Field]) -> String {
    let mut names = fields.iter().flat_map(|field| field.names().at_top());
    names.find_map(|name| object.get(name).and_then(text)).unwrap_or_default()
}

/// A part of a document of Wazuh with the names of other documents.
fn with_capitalized_names(part: &Value) -> Value {
    let members = part.as_object().into_iter().flatten();
    members.map(|(name, value)| (capitalized(name), value.clone())).collect()
}

impl WindowsEvent {
    /// The event in a document of any of the supported forms; `None` if it has no event id.
    pub fn of(document: &Value) -> Option<WindowsEvent> {
        let mut root = document;
        for wrapper in ["_source", "document", "result", "data"] {
            if let Some(inner) = root.get(wrapper).filter(|inner| inner.is_object()) {
                root = inner;
            }
        }
        let mut event = WindowsEvent { count: 1, ..WindowsEvent::default() };
        if let Some(of_log) = root.get("Event") {
            event.system(of_log.get("System")?);
            let data = ["EventData", "UserData"].into_iter().filter_map(|name| of_log.get(name));
            data.for_each(|data| event.add(data));
        } else if let Some(winlog) = root.get("winlog") {
            event.header(winlog);
            event.add(winlog.get("event_data").unwrap_or(&Value::Null));
            event.add_ecs(root);
            event.time = event.time.or_else(|| time::parse(&at_top(root, &[Field::Timestamp])));
        } else if let Some(win) = root.get("win") {
            event.system(&with_capitalized_names(win.get("system")?));
            event.add(&with_capitalized_names(win.get("eventdata").unwrap_or(&Value::Null)));
        } else {
            event.header(root);
            if let Some(data) = root.get("EventData").or_else(|| root.get("event_data")) {
                event.add(data);
            }
            event.add(root);
        }
        event.id?;
        if event.time.is_none() {
            event.time = event.get(Field::Utc.names().data[0]).and_then(time::parse);
        }
        Some(event)
    }

    /// The text of a value of the data, by its name in any case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.data.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, text)| text.as_str())
    }

    /// Whether Sysmon wrote the event. Rows without provider and channel are taken for its events.
    pub fn is_of_sysmon(&self) -> bool {
        let issuer = if self.provider.is_empty() { &self.channel } else { &self.provider };
        issuer.is_empty() || issuer.to_ascii_lowercase().contains("sysmon")
    }

    /// Adds a value unless it has no text, or its name has a value.
    fn put(&mut self, name: &str, value: &Value) {
        if self.get(name).is_none() {
            self.data.extend(text(value).map(|text| (name.to_owned(), text)));
        }
    }

    /// Names at the top level, or of Winlogbeat.
    fn header(&mut self, object: &Value) {
        self.provider = at_top(object, &[Field::Provider]);
        self.channel = at_top(object, &[Field::Channel]);
        self.host = at_top(object, &[Field::Host, Field::Collector]);
        self.id = at_top(object, &[Field::EventId]).parse().ok();
        self.count = at_top(object, &[Field::Count]).parse().unwrap_or(1).max(1);
        self.time = time::parse(&at_top(object, &[Field::Timestamp, Field::Utc]));
    }

    /// The part `System` of an event, which has some values in attributes.
    fn system(&mut self, system: &Value) {
        self.channel = at_top(system, &[Field::Channel]);
        self.host = at_top(system, &[Field::Host]);
        self.id = at_top(system, &[Field::EventId]).parse().ok();
        let get = |paths: [&str; 3]| {
            paths.iter().find_map(|path| member(system, path).and_then(text)).unwrap_or_default()
        };
        self.provider = get(["ProviderName", "Provider.#attributes.Name", "Provider_attributes.Name"]);
        self.time = time::parse(&get([
            "SystemTime",
            "TimeCreated.#attributes.SystemTime",
            "TimeCreated_attributes.SystemTime",
        ]));
    }

    /// Adds the values that the Elastic Common Schema moves out of the data.
    fn add_ecs(&mut self, root: &Value) {
        for names in &FIELDS {
            let Some(name) = names.data.last() else { continue };
            for value in names.ecs.iter().chain(names.rule_ecs).filter_map(|path| member(root, path)) {
                self.put(name, value);
            }
        }
    }

    fn add(&mut self, data: &Value) {
        let Value::Object(data) = data else { return };
        for (name, value) in data {
            match value {
                // A part of user data.
                Value::Object(inner) if text(value).is_none() && name != "#attributes" => {
                    inner.iter().for_each(|(name, value)| self.put(name, value));
                }
                value => {
                    self.put(ROW_NAMES.get(&**name).unwrap_or(&&**name), value);
                }
            }
        }
        for one in data.get("Data").and_then(Value::as_array).into_iter().flatten() {
            let name = member(one, "#attributes.Name").or_else(|| one.get("@Name")).and_then(text);
            if let Some(name) = name {
                self.put(&name, one);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_forms_give_the_same_event() {
        let flat = json!({ "EventID": 11, "Channel": "Microsoft-Windows-Sysmon/Operational", "Computer": "H",
            "TargetFilename": "C:\\a", "ProcessId": 7 });
        let log = json!({ "Event": { "System": { "EventID": 11, "Computer": "H",
            "Channel": "Microsoft-Windows-Sysmon/Operational" },
            "EventData": { "TargetFilename": "C:\\a", "ProcessId": "7" } } });
        let beat = json!({ "winlog": { "event_id": "11", "computer_name": "H",
            "channel": "Microsoft-Windows-Sysmon/Operational", "event_data": { "TargetFilename": "C:\\a" } },
            "process": { "pid": 7 } });
        let wazuh = json!({ "data": { "win": { "system": { "eventID": "11", "computer": "H",
            "channel": "Microsoft-Windows-Sysmon/Operational" },
            "eventdata": { "targetFilename": "C:\\a", "processId": "7" } } } });
        for document in [flat, log, beat, wazuh] {
            let event = WindowsEvent::of(&document).unwrap();
            assert_eq!((event.id, &*event.host), (Some(11), "H"), "{document}");
            assert_eq!((event.get("TargetFilename"), event.get("processid")), (Some("C:\\a"), Some("7")));
            assert!(event.is_of_sysmon());
        }
        assert_eq!(WindowsEvent::of(&json!({ "a": 1 })), None);
    }
}
