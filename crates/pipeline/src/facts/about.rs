//! The file or registry key that an event is about.

use std::borrow::Cow;

use stackhound_schema::event_id::{kernel_file, kernel_process};
use stackhound_schema::kernel::{hook_id, view};
use stackhound_schema::provider_guid;
use stackhound_system::{FileKey, FileObject, KeyControlBlock, RegistryPath, StatedName};

use super::missing::Missing;
use crate::event_view::EventView;

/// The way in which a kind of event states its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FileForm {
    /// The path is in this field. If it is not complete, the field `FileObject` identifies the open.
    Path(&'static str),
    /// `FileObject` is the key.
    Key(&'static str),
    /// `FileObject` identifies the open, and `FileKey`, if there is one, the file.
    Open,
}

/// The key that an event is about, and the name of a value in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegistrySubject<'c> {
    /// The path of the key.
    pub path: Result<Cow<'c, str>, Missing>,
    /// The name of the value; empty for the default value. [`Missing::NotStated`] for events about
    /// the key itself.
    pub value: Result<String, Missing>,
}

impl<'c> EventView<'c> {
    /// Whether events of this kind are about a file.
    pub fn is_about_file(&self) -> bool {
        self.file_form().is_some()
    }

    /// The path of the file that the event is about, with a drive if the trace states the drives.
    /// Paths are those of the last event that states them; a later renaming of a folder is not
    /// considered.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub fn file_path(&self) -> Result<Cow<'_, str>, Missing> {
        let form = self.file_form().ok_or(Missing::NotStated)?;
        let system = self.trace_state().system();
        let address = |name| self.field(name).and_then(|(_, value)| value.as_u64()).filter(|&at| at != 0);
        let (key, object) = match form {
            FileForm::Path(name) => {
                let path = self.text(name).unwrap_or_default();
                if is_complete(&path) {
                    return Ok(Cow::Owned(system.dos_path(&path).into_owned()));
                }
                // A relative path, or an open by the file's id: the name of the key may be known.
                (address("FileKey"), None)
            }
            FileForm::Key(name) => (address(name), None),
            FileForm::Open => (address("FileKey"), address("FileObject")),
        };
        if key.is_none() && object.is_none() {
            return Err(Missing::NotStated);
        }
        let names = system.file_names(key.map(FileKey), object.map(FileObject), self.time());
        let name = self.certain(names)?;
        if is_complete(name) { Ok(system.dos_path(name)) } else { Err(Missing::NotRecorded) }
    }

    /// Whether events of this kind are about a registry key.
    pub fn is_about_registry(&self) -> bool {
        let event = self.event();
        match self.kernel_id() {
            Some(hook_id) => is_key_operation(hook_id),
            None => event.kind().has_descriptor() && event.guid() == Some(provider_guid::KERNEL_REGISTRY),
        }
    }

    /// The registry key that the event is about; `None` if it is about none.
    pub fn registry(&self) -> Option<RegistrySubject<'c>> {
        match self.kernel_id() {
            Some(hook_id) if is_key_operation(hook_id) => Some(self.registry_of_class(hook_id)),
            None if self.is_about_registry() => Some(self.registry_of_provider()),
            _ => None,
        }
    }

    fn registry_of_class(&self, hook_id: u16) -> RegistrySubject<'c> {
        let record = self.event().record();
        let parsed =
            view::RegistryOperation::parse(record.payload(), record.version(), record.pointer_size());
        let Ok(operation) = parsed else {
            return RegistrySubject { path: Err(Missing::NotStated), value: Err(Missing::NotStated) };
        };
        let name = operation.key_name.to_string_lossy();
        if is_description(hook_id) {
            return RegistrySubject { path: complete(name), value: Err(Missing::NotStated) };
        }
        let block = KeyControlBlock(operation.key_handle.0);
        let key = || self.certain(self.trace_state().system().key_names(block, self.time()));
        if is_value_operation(hook_id) {
            let path = if block.0 == 0 { Err(Missing::NotStated) } else { key().map(Cow::Borrowed) };
            return RegistrySubject { path, value: Ok(name) };
        }
        let path = match (block.0, name.is_empty()) {
            (0, _) => complete(name),
            (_, true) => key().map(Cow::Borrowed),
            (_, false) => {
                key().map(|key| Cow::Owned(RegistryPath { key: Some(key), name: &name }.to_string()))
            }
        };
        RegistrySubject { path, value: Err(Missing::NotStated) }
    }

    fn registry_of_provider(&self) -> RegistrySubject<'c> {
        let joined = || {
            let (base, name) = (self.text("BaseName")?, self.text("RelativeName")?);
            Some(RegistryPath { key: Some(&base), name: &name }.to_string())
        };
        let path = self.text("KeyName").filter(|path| !path.is_empty()).or_else(joined);
        let value = self.text("ValueName");
        RegistrySubject {
            path: path.map_or(Err(Missing::NotStated), complete),
            value: value.ok_or(Missing::NotStated),
        }
    }

    /// The first name that certainly applies.
    fn certain(&self, names: impl Iterator<Item = StatedName<'c>>) -> Result<&'c str, Missing> {
        let mut reason = Missing::NoRundown;
        for name in names {
            if self.trace_state().system().is_gapless(name.stated, self.time()) {
                return Ok(name.text);
            }
            reason = Missing::Lost;
        }
        Err(reason)
    }

    /// A field with text.
    fn text(&self, name: &str) -> Option<String> {
        let (_, value) = self.field(name)?;
        value.text().map(Cow::into_owned)
    }

    fn file_form(&self) -> Option<FileForm> {
        if let Some(hook_id) = self.kernel_id() {
            return form_of_class(hook_id);
        }
        let event = self.event();
        if !event.kind().has_descriptor() {
            return None;
        }
        match (event.guid()?, event.entry().tag) {
            (provider_guid::KERNEL_FILE, id) => form_of_file_event(id),
            (provider_guid::KERNEL_PROCESS, kernel_process::IMAGE_LOAD | kernel_process::IMAGE_UNLOAD) => {
                Some(FileForm::Path("ImageName"))
            }
            _ => None,
        }
    }
}

/// The form in an event of Microsoft-Windows-Kernel-File.
fn form_of_file_event(id: u16) -> Option<FileForm> {
    Some(match id {
        kernel_file::NAME_CREATE..=kernel_file::CREATE | kernel_file::CREATE_NEW_FILE => {
            FileForm::Path("FileName")
        }
        kernel_file::DELETE_PATH => FileForm::Path("FilePath"),
        kernel_file::CLEANUP..=kernel_file::FSCTL
        | kernel_file::DIR_NOTIFY
        | kernel_file::RENAME_PATH..=kernel_file::RENAME_29
        | kernel_file::SET_SECURITY..=kernel_file::QUERY_EA => FileForm::Open,
        _ => return None,
    })
}

fn form_of_class(hook_id: u16) -> Option<FileForm> {
    Some(match hook_id {
        hook_id::FILE_IO_NAME
        | hook_id::FILE_IO_FILE_CREATE
        | hook_id::FILE_IO_FILE_DELETE
        | hook_id::FILE_IO_FILE_RUNDOWN
        | hook_id::FILE_IO_DELETE_PATH
        | hook_id::IMAGE_LOAD
        | hook_id::IMAGE_UNLOAD
        | hook_id::IMAGE_DC_START
        | hook_id::IMAGE_DC_END => FileForm::Path("FileName"),
        hook_id::FILE_IO_CREATE | hook_id::FILE_IO_CREATE_NEW => FileForm::Path("OpenPath"),
        hook_id::FILE_IO_MAP_FILE
        | hook_id::FILE_IO_UNMAP_FILE
        | hook_id::FILE_IO_MAP_FILE_DC_START
        | hook_id::FILE_IO_MAP_FILE_DC_END
        | hook_id::DISK_IO_READ
        | hook_id::DISK_IO_WRITE
        | hook_id::PAGE_FAULT_HARD_FAULT => FileForm::Key("FileObject"),
        hook_id::FILE_IO_CLEANUP..=hook_id::FILE_IO_FS_CONTROL
        | hook_id::FILE_IO_DIR_NOTIFY
        | hook_id::FILE_IO_RENAME_PATH..=hook_id::FILE_IO_QUERY_EA => FileForm::Open,
        _ => return None,
    })
}

/// Whether the payload has a control block and a name.
fn is_key_operation(hook_id: u16) -> bool {
    (hook_id::REGISTRY_CREATE..=hook_id::REGISTRY_QUERY_SECURITY).contains(&hook_id)
}

/// Whether the name in the payload is the path of the key.
fn is_description(hook_id: u16) -> bool {
    matches!(
        hook_id,
        hook_id::REGISTRY_KCB_CREATE
            | hook_id::REGISTRY_KCB_DELETE
            | hook_id::REGISTRY_KCB_RUNDOWN_BEGIN
            | hook_id::REGISTRY_KCB_RUNDOWN_END
    )
}

/// Whether the name in the payload is that of a value.
fn is_value_operation(hook_id: u16) -> bool {
    matches!(
        hook_id,
        hook_id::REGISTRY_SET_VALUE | hook_id::REGISTRY_DELETE_VALUE | hook_id::REGISTRY_QUERY_VALUE
    )
}

/// Whether a path begins at a root: `\Device\…`, `\REGISTRY\…` or `C:\…`.
fn is_complete(path: &str) -> bool {
    path.starts_with('\\') || path.as_bytes().get(1..3) == Some(b":\\")
}

fn complete<'c>(path: String) -> Result<Cow<'c, str>, Missing> {
    match path.is_empty() {
        true => Err(Missing::NotStated),
        false if is_complete(&path) => Ok(Cow::Owned(path)),
        false => Err(Missing::NotRecorded),
    }
}
