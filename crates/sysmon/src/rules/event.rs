//! Events of Windows logs with all their data, from JSON of log shippers and from event logs.

use serde_json::{Map, Value};

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
const ROW_NAMES: [(&str, &str); 12] = [
    ("source_image", "SourceImage"),
    ("target_image", "TargetImage"),
    ("target_pid", "TargetProcessId"),
    ("granted_access", "GrantedAccess"),
    ("calltrace", "CallTrace"),
    ("new_thread_id", "NewThreadId"),
    ("start_address", "StartAddress"),
    ("start_module", "StartModule"),
    ("start_function", "StartFunction"),
    ("process_guid", "SourceProcessGUID"),
    ("pid", "SourceProcessId"),
    ("tid", "SourceThreadId"),
];

/// Fields that the Elastic Common Schema moves out of the data, with the names of Sysmon.
const ECS_NAMES: [(&str, &str); 22] = [
    ("process.executable", "Image"),
    ("process.pid", "ProcessId"),
    ("process.entity_id", "ProcessGuid"),
    ("process.command_line", "CommandLine"),
    ("process.working_directory", "CurrentDirectory"),
    ("process.parent.executable", "ParentImage"),
    ("process.parent.command_line", "ParentCommandLine"),
    ("process.parent.pid", "ParentProcessId"),
    ("process.parent.entity_id", "ParentProcessGuid"),
    ("process.pe.original_file_name", "OriginalFileName"),
    ("process.pe.company", "Company"),
    ("process.pe.product", "Product"),
    ("process.pe.description", "Description"),
    ("dll.path", "ImageLoaded"),
    ("dll.code_signature.status", "SignatureStatus"),
    ("dll.code_signature.subject_name", "Signature"),
    ("registry.path", "TargetObject"),
    ("destination.ip", "DestinationIp"),
    ("destination.port", "DestinationPort"),
    ("source.ip", "SourceIp"),
    ("source.port", "SourcePort"),
    ("dns.question.name", "QueryName"),
];

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
            event.system(of_log.get("System")?, false);
            let data = ["EventData", "UserData"].into_iter().filter_map(|name| of_log.get(name));
            data.for_each(|data| event.add(data, false));
        } else if let Some(winlog) = root.get("winlog") {
            event.header(winlog);
            event.add(winlog.get("event_data").unwrap_or(&Value::Null), false);
            for (path, name) in ECS_NAMES {
                if let Some(found) = member(root, path).and_then(text) {
                    event.put(name, found);
                }
            }
            event.time = event
                .time
                .or_else(|| root.get("@timestamp").and_then(text).and_then(|time| time::parse(&time)));
        } else if let Some(win) = root.get("win") {
            event.system(win.get("system")?, true);
            event.add(win.get("eventdata").unwrap_or(&Value::Null), true);
        } else {
            event.header(root);
            if let Some(data) = root.get("EventData").or_else(|| root.get("event_data")) {
                event.add(data, false);
            }
            event.add(root, false);
        }
        event.id?;
        if event.time.is_none() {
            event.time = event.get("UtcTime").or_else(|| event.get("utc")).and_then(time::parse);
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

    fn put(&mut self, name: &str, text: String) {
        if self.get(name).is_none() {
            self.data.push((name.to_owned(), text));
        }
    }

    /// The part `System` of an event, or the names of Wazuh for it.
    fn system(&mut self, system: &Value, is_wazuh: bool) {
        let get = |name: &str| member(system, name).and_then(text).unwrap_or_default();
        let names = match is_wazuh {
            true => ["providerName", "channel", "computer", "systemTime", "eventID"],
            false => [
                "Provider.#attributes.Name",
                "Channel",
                "Computer",
                "TimeCreated.#attributes.SystemTime",
                "EventID",
            ],
        };
        let [provider, channel, host, time, id] = names.map(get);
        let plain = |text: String, other: &str| if text.is_empty() { get(other) } else { text };
        self.provider = plain(provider, "Provider_attributes.Name");
        (self.channel, self.host) = (channel, host);
        self.time = time::parse(&plain(time, "TimeCreated_attributes.SystemTime"));
        self.id = id.parse().ok();
    }

    /// Names at the top level, or of Winlogbeat.
    fn header(&mut self, object: &Value) {
        let get = |names: &[&str]| {
            names.iter().find_map(|name| object.get(name).and_then(text)).unwrap_or_default()
        };
        self.provider = get(&["provider_name", "Provider", "SourceName", "source_name", "ProviderName"]);
        self.channel = get(&["channel", "Channel", "log_name", "LogName", "source", "Source"]);
        self.host = get(&["computer_name", "Computer", "Hostname", "ComputerName", "host"]);
        self.id = get(&["event_id", "EventID", "EventId", "EventCode"]).parse().ok();
        self.count = get(&["count"]).parse().unwrap_or(1).max(1);
        self.time = time::parse(&get(&["@timestamp", "TimeGenerated", "utc"]));
    }

    fn add(&mut self, data: &Value, is_wazuh: bool) {
        let Value::Object(data) = data else { return };
        let named = data.get("Data").and_then(Value::as_array);
        for (name, value) in data {
            match value {
                // A part of user data.
                Value::Object(inner) if text(value).is_none() && name != "#attributes" => {
                    let inner: &Map<String, Value> = inner;
                    for (name, value) in inner {
                        if let Some(found) = text(value) {
                            self.put(name, found);
                        }
                    }
                }
                value => {
                    let Some(found) = text(value) else { continue };
                    let row = ROW_NAMES.iter().find(|(row, _)| row == name).map(|(_, known)| *known);
                    let name = match (row, is_wazuh) {
                        (Some(known), _) => known.to_owned(),
                        (None, true) => capitalized(name),
                        (None, false) => name.clone(),
                    };
                    self.put(&name, found);
                }
            }
        }
        for one in named.into_iter().flatten() {
            let name = member(one, "#attributes.Name").or_else(|| one.get("@Name")).and_then(text);
            if let (Some(name), Some(found)) = (name, text(one)) {
                self.put(&name, found);
            }
        }
    }
}

fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
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
