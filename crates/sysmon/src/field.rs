//! The fields of events, and their names in all forms of documents.

/// A field of an event that rows need. Rows that stand for several events have this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Field {
    EventId,
    Provider,
    Channel,
    Utc,
    Timestamp,
    Host,
    /// The machine that collected the event, which can differ from its source.
    Collector,
    Pid,
    Tid,
    ProcessGuid,
    Image,
    TargetImage,
    TargetPid,
    Access,
    Count,
    CallTrace,
    NewThread,
    StartAddress,
    StartModule,
    StartFunction,
    ImageLoaded,
    Hashes,
    Signed,
    Signature,
    SignatureStatus,
    OriginalFileName,
    Company,
    Product,
    Description,
    FileVersion,
    CommandLine,
    ParentPid,
    User,
    Integrity,
    CreatedFile,
    /// A column of this name, which tables also have for other purposes.
    TamperingColumn,
    Tampering,
}

/// The number of fields.
pub(crate) const FIELD_COUNT: usize = Field::Tampering as usize + 1;

impl Field {
    /// The names of the field.
    pub(crate) fn names(self) -> &'static FieldNames {
        &FIELDS[self as usize]
    }
}

/// The names of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldNames {
    /// The field; `None` if only rules need it.
    pub field: Option<Field>,
    /// Names in the header of an event, and at the top of flat documents.
    pub header: &'static [&'static str],
    /// Further names at the top: of rows that stand for several events, and of collectors.
    pub top: &'static [&'static str],
    /// Sysmon's names in the data. The first is that of events with a target process, the last that
    /// of other events.
    pub data: &'static [&'static str],
    /// Paths in the Elastic Common Schema.
    pub ecs: &'static [&'static str],
    /// Paths there that only rows are read from. Some have the value in another form.
    pub row_ecs: &'static [&'static str],
    /// Paths there that only rules read.
    pub rule_ecs: &'static [&'static str],
}

impl FieldNames {
    const NONE: FieldNames =
        FieldNames { field: None, header: &[], top: &[], data: &[], ecs: &[], row_ecs: &[], rule_ecs: &[] };

    const fn header(self, header: &'static [&'static str]) -> FieldNames {
        FieldNames { header, ..self }
    }

    const fn top(self, top: &'static [&'static str]) -> FieldNames {
        FieldNames { top, ..self }
    }

    const fn data(self, data: &'static [&'static str]) -> FieldNames {
        FieldNames { data, ..self }
    }

    const fn ecs(self, ecs: &'static [&'static str]) -> FieldNames {
        FieldNames { ecs, ..self }
    }

    const fn row_ecs(self, row_ecs: &'static [&'static str]) -> FieldNames {
        FieldNames { row_ecs, ..self }
    }

    const fn rule_ecs(self, rule_ecs: &'static [&'static str]) -> FieldNames {
        FieldNames { rule_ecs, ..self }
    }

    /// All names at the top of documents, that of rows first.
    pub(crate) fn at_top(&self) -> impl Iterator<Item = &'static str> {
        self.header.iter().chain(self.top).copied()
    }
}

/// The names of a field.
const fn of(field: Field) -> FieldNames {
    FieldNames { field: Some(field), ..FieldNames::NONE }
}

/// The name of a field that only rules need, and its path in the Elastic Common Schema.
const fn of_rules(data: &'static [&'static str], ecs: &'static [&'static str]) -> FieldNames {
    FieldNames::NONE.data(data).ecs(ecs)
}

/// The names of all fields, first those of [`Field`] in its order.
pub(crate) static FIELDS: [FieldNames; FIELD_COUNT + 10] = {
    use Field::*;
    [
        of(EventId).header(&["event_id", "EventID", "EventId"]).top(&["EventCode"]).ecs(&["event.code"]),
        of(Provider)
            .header(&["provider_name", "Provider", "SourceName", "source_name", "ProviderName"])
            .ecs(&["event.provider"]),
        of(Channel).header(&["channel", "Channel", "log_name", "LogName"]).top(&["source", "Source"]),
        of(Utc).data(&["UtcTime"]).top(&["utc"]),
        of(Timestamp).header(&["@timestamp"]).top(&["TimeGenerated"]),
        of(Host).header(&["computer_name", "Computer", "Hostname", "ComputerName"]),
        of(Collector).top(&["host"]).ecs(&["host.name", "host.hostname"]),
        of(Pid).data(&["SourceProcessId", "ProcessId"]).top(&["pid"]).ecs(&["process.pid"]),
        of(Tid).data(&["SourceThreadId"]).top(&["tid"]).row_ecs(&["process.thread.id"]),
        of(ProcessGuid)
            .data(&["SourceProcessGUID", "SourceProcessGuid", "ProcessGuid"])
            .top(&["process_guid"])
            .ecs(&["process.entity_id"]),
        of(Image).data(&["SourceImage", "Image"]).top(&["source_image"]).ecs(&["process.executable"]),
        of(TargetImage).data(&["TargetImage"]).top(&["target_image"]),
        of(TargetPid).data(&["TargetProcessId"]).top(&["target_pid"]),
        of(Access).data(&["GrantedAccess"]).top(&["granted_access"]),
        of(Count).top(&["count"]),
        of(CallTrace).data(&["CallTrace"]).top(&["calltrace"]),
        of(NewThread).data(&["NewThreadId"]).top(&["new_thread_id"]),
        of(StartAddress).data(&["StartAddress"]).top(&["start_address"]),
        of(StartModule).data(&["StartModule"]).top(&["start_module"]),
        of(StartFunction).data(&["StartFunction"]).top(&["start_function"]),
        of(ImageLoaded).data(&["ImageLoaded"]).ecs(&["dll.path"]),
        of(Hashes).data(&["Hashes"]).row_ecs(&["dll.hash.sha256"]),
        of(Signed).data(&["Signed"]).row_ecs(&["dll.code_signature.signed"]),
        of(Signature).data(&["Signature"]).ecs(&["dll.code_signature.subject_name"]),
        of(SignatureStatus).data(&["SignatureStatus"]).ecs(&["dll.code_signature.status"]),
        of(OriginalFileName)
            .data(&["OriginalFileName"])
            .row_ecs(&["dll.pe.original_file_name"])
            .rule_ecs(&["process.pe.original_file_name"]),
        of(Company).data(&["Company"]).row_ecs(&["dll.pe.company"]).rule_ecs(&["process.pe.company"]),
        of(Product).data(&["Product"]).row_ecs(&["dll.pe.product"]).rule_ecs(&["process.pe.product"]),
        of(Description)
            .data(&["Description"])
            .row_ecs(&["dll.pe.description"])
            .rule_ecs(&["process.pe.description"]),
        of(FileVersion).data(&["FileVersion"]).row_ecs(&["dll.pe.file_version"]),
        of(CommandLine).data(&["CommandLine"]).ecs(&["process.command_line"]),
        of(ParentPid).data(&["ParentProcessId"]).ecs(&["process.parent.pid"]),
        of(User).data(&["User"]).row_ecs(&["user.name"]),
        of(Integrity).data(&["IntegrityLevel"]),
        of(CreatedFile).data(&["TargetFilename"]),
        // Before the next field, which has the same name in the data.
        of(TamperingColumn).top(&["Type"]),
        of(Tampering).data(&["Type"]),
        of_rules(&["CurrentDirectory"], &["process.working_directory"]),
        of_rules(&["ParentImage"], &["process.parent.executable"]),
        of_rules(&["ParentCommandLine"], &["process.parent.command_line"]),
        of_rules(&["ParentProcessGuid"], &["process.parent.entity_id"]),
        of_rules(&["TargetObject"], &["registry.path"]),
        of_rules(&["DestinationIp"], &["destination.ip"]),
        of_rules(&["DestinationPort"], &["destination.port"]),
        of_rules(&["SourceIp"], &["source.ip"]),
        of_rules(&["SourcePort"], &["source.port"]),
        of_rules(&["QueryName"], &["dns.question.name"]),
    ]
};

/// The name with its first letter in upper case. Names of Wazuh begin with lower-case letters.
pub(crate) fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_row_of_their_number() {
        for (number, names) in FIELDS.iter().enumerate() {
            assert_eq!(
                names.field.map(|field| field as usize),
                Some(number).filter(|number| *number < FIELD_COUNT)
            );
        }
    }
}
