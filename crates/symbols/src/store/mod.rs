//! Finds the files of modules along a symbol path, and downloads them if that is allowed.
//!
//! Every file is checked against its identity before anybody sees it, wherever it comes from. Names come from
//! recordings, which nobody has to trust: only a [`FileName`] becomes part of a path.
//!
//! Knows folders, servers and identities; must not know what is in the files.

#[cfg(feature = "download")]
mod client;
mod directory;
mod file_name;
mod folder;
mod missing;
#[cfg(not(feature = "download"))]
mod offline;
#[cfg(test)]
mod tests;
mod wanted;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

pub use directory::cache_directory;
pub use file_name::FileName;
use stackhound_types::{ImageIdentity, ModuleIdentity, PdbIdentity};

use crate::failure::{Cause, Failure, FileKind};
use crate::image::Image;
use crate::path::{PathElement, ServerUrl, StoreFolder, SymbolPath};
use crate::temporary::Temporary;
#[cfg(feature = "download")]
use client::Client;
use folder::{Candidate, Folders};
use missing::Missing;
#[cfg(not(feature = "download"))]
use offline::Client;
use wanted::Wanted;

/// Larger images are not read into memory.
const IMAGE_SIZE_MAX: u64 = 1 << 30;

/// What a download may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DownloadLimits {
    /// Most bytes of a file.
    pub file_size: u64,
    /// Time to find and connect to a server.
    pub connect: Duration,
    /// Time to wait for the next bytes.
    pub stall: Duration,
    /// Time for a whole file.
    pub file: Duration,
    /// How often a server may send on to another place.
    pub redirects: u32,
}

impl Default for DownloadLimits {
    fn default() -> DownloadLimits {
        DownloadLimits {
            file_size: 2 << 30,
            connect: Duration::from_secs(15),
            stall: Duration::from_secs(30),
            file: Duration::from_secs(30 * 60),
            redirects: 5,
        }
    }
}

/// Why a file was not downloaded.
type Refusal = (Cause, String);

/// Where to look, and whether to download.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreOptions {
    /// Where to look.
    pub path: SymbolPath,
    /// Whether servers of the path may be asked. Without the feature `download`, they count as
    /// [`Cause::NotBuilt`].
    pub online: bool,
    /// Whether to ask servers again for files that they did not have before.
    pub ask_again: bool,
    /// The user's own folder, as [`cache_directory`] finds it: the user's own store is `symbols` in it. Without one,
    /// places that need it are passed over.
    pub cache: Option<PathBuf>,
    /// What a download may cost.
    pub limits: DownloadLimits,
}

impl Default for StoreOptions {
    /// The user's own store; nothing is downloaded.
    fn default() -> StoreOptions {
        StoreOptions {
            path: SymbolPath::user_store(),
            online: false,
            ask_again: false,
            cache: cache_directory(),
            limits: DownloadLimits::default(),
        }
    }
}

/// A file whose identity was checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Where it is.
    pub path: PathBuf,
    /// Its size if it was downloaded just now.
    pub downloaded: Option<u64>,
}

/// The files of a module, or why they could not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModuleFiles {
    /// Its PDB.
    pub pdb: Result<Found, Failure>,
    /// Its image.
    pub image: Result<Found, Failure>,
}

/// Finds files. Can be used by several threads at a time; a file is looked for once, whoever asks for it.
#[derive(Debug)]
pub struct Store {
    elements: Vec<PathElement>,
    cache: Option<PathBuf>,
    folders: Folders,
    /// If servers may be asked.
    client: Option<Client>,
    missing: Option<Missing>,
    ask_again: bool,
    known: Mutex<HashMap<Wanted, Slot>>,
    downloads: AtomicU64,
    downloaded: AtomicU64,
}

/// Filled by who comes first; others wait.
type Slot = Arc<OnceLock<Result<Found, Failure>>>;

impl Store {
    /// A store that looks where the options say.
    pub fn new(options: StoreOptions) -> Store {
        Store {
            elements: options.path.elements().to_vec(),
            missing: options.cache.as_ref().map(|cache| Missing::new(cache.join("missing"))),
            cache: options.cache,
            folders: Folders::default(),
            client: options.online.then(|| Client::new(options.limits)),
            ask_again: options.ask_again,
            known: Mutex::default(),
            downloads: AtomicU64::new(0),
            downloaded: AtomicU64::new(0),
        }
    }

    /// Both files of a module. Where the recording does not name the PDB, the image does.
    pub fn files(&self, module: &ModuleIdentity) -> ModuleFiles {
        let image = match module.image {
            Some(identity) => self.image(&module.name, identity),
            None => Err(no_identity(FileKind::Image, "the recording gives no time stamp and size")),
        };
        let pdb = match (&module.pdb, &image) {
            (Some(identity), _) => self.pdb(identity),
            (None, Ok(image)) => match stated_by_image(&image.path) {
                Ok(identity) => self.pdb(&identity),
                Err(failure) => Err(failure),
            },
            (None, Err(_)) => Err(no_identity(FileKind::Pdb, "the recording gives no GUID and age")),
        };
        ModuleFiles { pdb, image }
    }

    /// The files of several modules, looked for by several threads at a time.
    pub fn files_of_all(&self, modules: &[ModuleIdentity], threads: usize) -> Vec<ModuleFiles> {
        let next = AtomicUsize::new(0);
        let found: Vec<OnceLock<ModuleFiles>> = modules.iter().map(|_| OnceLock::new()).collect();
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, modules.len().max(1)) {
                scope.spawn(|| {
                    while let Some(number) =
                        Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < modules.len())
                    {
                        let _ = found[number].set(self.files(&modules[number]));
                    }
                });
            }
        });
        found
            .into_iter()
            .zip(modules)
            .map(|(found, module)| found.into_inner().unwrap_or_else(|| self.files(module)))
            .collect()
    }

    /// A PDB.
    ///
    /// # Errors
    /// If it is nowhere, or nowhere fit to be used: the greatest cause of all places.
    pub fn pdb(&self, identity: &PdbIdentity) -> Result<Found, Failure> {
        self.find(Wanted::pdb(identity)?)
    }

    /// An image of a name.
    ///
    /// # Errors
    /// As for [`Store::pdb`].
    pub fn image(&self, name: &str, identity: ImageIdentity) -> Result<Found, Failure> {
        self.find(Wanted::image(name, identity)?)
    }

    /// How many files were downloaded, and their bytes.
    pub fn downloads(&self) -> (u64, u64) {
        (self.downloads.load(Ordering::Relaxed), self.downloaded.load(Ordering::Relaxed))
    }

    fn find(&self, wanted: Wanted) -> Result<Found, Failure> {
        let slot = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(known.entry(wanted.clone()).or_default())
        };
        slot.get_or_init(|| self.look(&wanted)).clone()
    }

    fn look(&self, wanted: &Wanted) -> Result<Found, Failure> {
        let mut worst = wanted.failure(Cause::NotInPath, String::new());
        let mut note = |failure: Failure| {
            if failure.cause > worst.cause {
                worst = failure;
            }
        };
        for location in &self.elements {
            let candidates = match location {
                PathElement::Folder(folder) => self.folders.beside(folder, wanted),
                PathElement::Store(store) => match self.root(store) {
                    Some(root) => self.folders.in_store(&root, wanted),
                    None => continue,
                },
                PathElement::Server { url, keep_in } => {
                    match self.ask(url, keep_in, wanted) {
                        Ok(found) => return Ok(found),
                        Err(failure) => note(failure),
                    }
                    continue;
                }
            };
            for candidate in candidates {
                match candidate {
                    Candidate::Packed(path) => {
                        note(wanted.failure(Cause::Packed, path.display().to_string()))
                    }
                    Candidate::File(path) => match wanted.check(&path) {
                        Ok(()) => return Ok(Found { path, downloaded: None }),
                        Err(failure) => note(failure),
                    },
                }
            }
        }
        Err(worst)
    }

    fn root(&self, store: &StoreFolder) -> Option<PathBuf> {
        match store {
            StoreFolder::At(path) => Some(path.clone()),
            StoreFolder::Default => self.cache.as_ref().map(|cache| cache.join("symbols")),
        }
    }

    fn ask(&self, server: &ServerUrl, keep_in: &StoreFolder, wanted: &Wanted) -> Result<Found, Failure> {
        let failure = |cause, detail: &str| wanted.failure(cause, format!("{server}: {detail}"));
        let Some(client) = &self.client else { return Err(failure(Cause::NotAsked, "was not asked")) };
        let Some(root) = self.root(keep_in) else {
            return Err(failure(Cause::NotKept, "there is no folder to keep its files in"));
        };
        let is_missing = |missing: &Missing| missing.contains(wanted, server);
        if !self.ask_again && self.missing.as_ref().is_some_and(is_missing) {
            return Err(failure(Cause::NotOnServer, "does not have it"));
        }
        let result = self.download(client, server, &root, wanted);
        let is_missing = match &result {
            Ok(_) => Some(false),
            Err(failure) => (failure.cause == Cause::NotOnServer).then_some(true),
        };
        if let (Some(missing), Some(is_missing)) = (&self.missing, is_missing) {
            // If it cannot be remembered, the server is asked again the next time: no harm.
            let _ = missing.set(wanted, server, is_missing);
        }
        result
    }

    /// Downloads to a file beside, which takes its place when it is complete and proved to be what it should be.
    fn download(
        &self,
        client: &Client,
        server: &ServerUrl,
        root: &Path,
        wanted: &Wanted,
    ) -> Result<Found, Failure> {
        let not_kept =
            |error: std::io::Error| wanted.failure(Cause::NotKept, format!("{}: {error}", root.display()));
        fs::create_dir_all(root).map_err(not_kept)?;
        let mut part = Temporary::in_folder(root).map_err(not_kept)?;
        let size = client
            .download(server, wanted, &mut part)
            .map_err(|(cause, what)| wanted.failure(cause, format!("{server}: {what}")))?;
        wanted.check(part.path()).map_err(|failure| {
            let what = failure.detail.trim_start_matches(&*part.path().to_string_lossy());
            wanted.failure(failure.cause, format!("{server}{what}"))
        })?;
        let folder = root.join(wanted.name.as_str()).join(&wanted.key);
        fs::create_dir_all(&folder).map_err(not_kept)?;
        let path = folder.join(wanted.name.as_str());
        part.persist(&path).map_err(not_kept)?;
        self.downloads.fetch_add(1, Ordering::Relaxed);
        self.downloaded.fetch_add(size, Ordering::Relaxed);
        Ok(Found { path, downloaded: Some(size) })
    }
}

/// All bytes of an image file.
pub(crate) fn read_image(path: &Path) -> std::io::Result<Vec<u8>> {
    let size = fs::metadata(path)?.len();
    if size > IMAGE_SIZE_MAX {
        let what = format!("has {size} bytes, where {IMAGE_SIZE_MAX} are the most that is read");
        return Err(std::io::Error::other(what));
    }
    fs::read(path)
}

/// The PDB that an image names.
fn stated_by_image(path: &Path) -> Result<PdbIdentity, Failure> {
    let failure = |cause, what: &dyn std::fmt::Display| Failure {
        file: FileKind::Pdb,
        cause,
        detail: format!("{}: {what}", path.display()),
    };
    let bytes = read_image(path).map_err(|error| failure(Cause::NoIdentity, &error))?;
    let image = Image::parse(&bytes).map_err(|error| failure(Cause::NoIdentity, &error))?;
    image.pdb().ok_or_else(|| failure(Cause::NoPdb, &"names no PDB"))
}

fn no_identity(file: FileKind, detail: &str) -> Failure {
    Failure { file, cause: Cause::NoIdentity, detail: detail.to_owned() }
}
