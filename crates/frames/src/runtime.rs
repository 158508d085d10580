//! Runtimes with JIT compilers: names of files, with the evidence that confirms a name. Any file can
//! have such a name, and a runtime lowers findings.

use serde::Deserialize;

use crate::lists::{Pattern, fits};
use crate::module::{ModuleFacts, Role};

/// File names of runtimes that share their evidence.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Runtime {
    files: Vec<Pattern>,
    /// Folders below the Windows folder.
    #[serde(default)]
    windows: Vec<Pattern>,
    /// Whether folders for installed programs confirm the name.
    #[serde(default)]
    installed: bool,
    #[serde(default)]
    signers: Vec<Pattern>,
}

/// The role of a module with the name of a runtime; `None` for other names. `below_windows` is the
/// part of its path after the Windows folder, if it is in a folder there that users cannot write to.
pub(crate) fn role(
    runtimes: &[Runtime],
    facts: &ModuleFacts,
    (name, below_windows, is_installed): (&str, Option<&str>, bool),
) -> Option<Role> {
    let mut named = runtimes.iter().filter(|runtime| fits(&runtime.files, name)).peekable();
    named.peek()?;
    let folder = below_windows.and_then(|path| path.trim_start_matches('\\').rsplit_once('\\'));
    let is_confirmed = named.any(|runtime| {
        folder.is_some_and(|(folder, _)| fits(&runtime.windows, folder))
            || (runtime.installed && is_installed)
            || facts.signer.as_ref().is_some_and(|signer| fits(&runtime.signers, signer))
    });
    // The oldest traces have no folders.
    let has_folder = facts.path.contains('\\');
    Some(if is_confirmed || !has_folder { Role::Runtime } else { Role::LikeRuntime })
}
