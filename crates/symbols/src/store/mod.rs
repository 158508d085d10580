//! Finds the files of modules through a symbol path, and downloads them if this is allowed.
//!
//! The identity of every file is verified before the file is used, regardless of its source. File
//! names come from untrusted traces: only a [`FileName`] becomes part of a path.
//!
//! The module handles folders, servers and identities. It is independent of the content of the
//! files.

#[cfg(feature = "download")]
mod client;
mod directory;
mod file_name;
mod folder;
mod missing;
#[cfg(not(feature = "download"))]
mod offline;
mod searches;
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
pub(crate) use searches::size_and_time;
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

/// Maximum size of an image that is read into memory.
const IMAGE_SIZE_MAX: u64 = 1 << 30;

/// Limits of a download.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DownloadLimits {
    /// Maximum size of a file, in bytes.
    pub file_size: u64,
    /// Maximum time to resolve a server's name and connect to it.
    pub connect: Duration,
    /// Maximum time to wait for more bytes.
    pub stall: Duration,
    /// Maximum time for a whole file.
    pub file: Duration,
    /// Maximum number of redirects.
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

/// The cause for which a file was not downloaded, with details.
type Refusal = (Cause, String);

/// The locations to search, and the permission to download.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreOptions {
    /// The locations to search.
    pub path: SymbolPath,
    /// Whether the servers of the path may be queried. Without the feature `download`, they fail
    /// with [`Cause::NotBuilt`].
    pub online: bool,
    /// Whether servers are queried again for files that they did not have before.
    pub retry: bool,
    /// The user's cache folder, as returned by [`cache_directory`]. The user's own store is
    /// `symbols` in it. Without a cache folder, elements that need it are skipped.
    pub cache: Option<PathBuf>,
    /// The limits of a download.
    pub limits: DownloadLimits,
}

impl Default for StoreOptions {
    /// Uses the user's own store, without downloads.
    fn default() -> StoreOptions {
        StoreOptions {
            path: SymbolPath::user_store(),
            online: false,
            retry: false,
            cache: cache_directory(),
            limits: DownloadLimits::default(),
        }
    }
}

/// A file whose identity was verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The path of the file.
    pub path: PathBuf,
    /// Its size if it was downloaded by this call.
    pub downloaded: Option<u64>,
}

/// The files of a module, or the failures to use them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModuleFiles {
    /// The PDB.
    pub pdb: Result<Found, Failure>,
    /// The image.
    pub image: Result<Found, Failure>,
}

/// Finds files. It can be used by several threads at the same time. Each file is searched for once.
#[derive(Debug)]
pub struct Store {
    elements: Vec<PathElement>,
    cache: Option<PathBuf>,
    folders: Folders,
    /// Present if servers may be queried.
    client: Option<Client>,
    missing: Option<Missing>,
    retry: bool,
    known: Mutex<HashMap<Wanted, Slot>>,
    downloads: AtomicU64,
    downloaded: AtomicU64,
}

/// Filled by the first thread that needs it; other threads wait.
type Slot = Arc<OnceLock<Result<Found, Failure>>>;

impl Store {
    /// Creates a store from its options.
    pub fn new(options: StoreOptions) -> Store {
        Store {
            elements: options.path.elements().to_vec(),
            missing: options.cache.as_ref().map(|cache| Missing::new(cache.join("missing"))),
            cache: options.cache,
            folders: Folders::default(),
            client: options.online.then(|| Client::new(options.limits)),
            retry: options.retry,
            known: Mutex::default(),
            downloads: AtomicU64::new(0),
            downloaded: AtomicU64::new(0),
        }
    }

    /// Finds both files of a module. If the trace does not name the PDB, the image does.
    pub fn files(&self, module: &ModuleIdentity) -> ModuleFiles {
        let image = match module.image {
            Some(identity) => self.image(&module.name, identity),
            None => Err(no_identity(FileKind::Image, "the trace contains no time stamp and size")),
        };
        let pdb = match (&module.pdb, &image) {
            (Some(identity), _) => self.pdb(identity),
            (None, Ok(image)) => match stated_by_image(&image.path) {
                Ok(identity) => self.pdb(&identity),
                Err(failure) => Err(failure),
            },
            (None, Err(_)) => Err(no_identity(FileKind::Pdb, "the trace contains no GUID and age")),
        };
        ModuleFiles { pdb, image }
    }

    /// Finds the files of several modules, on several threads.
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

    /// Finds a PDB.
    ///
    /// # Errors
    /// No location has a usable file. The error is the greatest cause of all locations.
    pub fn pdb(&self, identity: &PdbIdentity) -> Result<Found, Failure> {
        self.find(Wanted::pdb(identity)?)
    }

    /// Finds an image by name.
    ///
    /// # Errors
    /// See [`Store::pdb`].
    pub fn image(&self, name: &str, identity: ImageIdentity) -> Result<Found, Failure> {
        self.find(Wanted::image(name, identity)?)
    }

    /// Returns the user's cache folder, if it is known.
    pub fn cache(&self) -> Option<&Path> {
        self.cache.as_deref()
    }

    /// Returns the number of downloaded files, and of their bytes.
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
                PathElement::Folder(folder) => self.folders.in_folder(folder, wanted),
                PathElement::Store(store) => match self.root(store) {
                    Some(root) => self.folders.in_store(&root, wanted),
                    None => continue,
                },
                PathElement::Server { url, keep_in } => {
                    match self.query(url, keep_in, wanted) {
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

    fn query(&self, server: &ServerUrl, keep_in: &StoreFolder, wanted: &Wanted) -> Result<Found, Failure> {
        let failure = |cause, detail: &str| wanted.failure(cause, format!("{server}: {detail}"));
        let Some(client) = &self.client else { return Err(failure(Cause::NotAsked, "was not queried")) };
        let Some(root) = self.root(keep_in) else {
            return Err(failure(Cause::NotKept, "no folder for its files is known"));
        };
        let is_missing = |missing: &Missing| missing.contains(wanted, server);
        if !self.retry && self.missing.as_ref().is_some_and(is_missing) {
            return Err(failure(Cause::NotOnServer, "does not have it"));
        }
        let result = self.download(client, server, &root, wanted);
        let is_missing = match &result {
            Ok(_) => Some(false),
            Err(failure) => (failure.cause == Cause::NotOnServer).then_some(true),
        };
        if let (Some(missing), Some(is_missing)) = (&self.missing, is_missing) {
            // If this cannot be stored, the server is queried again the next time.
            let _ = missing.set(wanted, server, is_missing);
        }
        result
    }

    /// Downloads to a temporary file in the store, which is renamed when it is complete and
    /// verified.
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
            .map_err(|(cause, detail)| wanted.failure(cause, format!("{server}: {detail}")))?;
        wanted.check(part.path()).map_err(|failure| {
            let detail = failure.detail.trim_start_matches(&*part.path().to_string_lossy());
            wanted.failure(failure.cause, format!("{server}{detail}"))
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

/// Reads all bytes of an image file.
pub(crate) fn read_image(path: &Path) -> std::io::Result<Vec<u8>> {
    let size = fs::metadata(path)?.len();
    if size > IMAGE_SIZE_MAX {
        let detail = format!("has {size} bytes; at most {IMAGE_SIZE_MAX} bytes are supported");
        return Err(std::io::Error::other(detail));
    }
    fs::read(path)
}

/// Returns the PDB that an image names.
fn stated_by_image(path: &Path) -> Result<PdbIdentity, Failure> {
    let failure = |cause, detail: &dyn std::fmt::Display| Failure {
        file: FileKind::Pdb,
        cause,
        detail: format!("{}: {detail}", path.display()),
    };
    let bytes = read_image(path).map_err(|error| failure(Cause::NoIdentity, &error))?;
    let image = Image::parse(&bytes).map_err(|error| failure(Cause::NoIdentity, &error))?;
    image.pdb().ok_or_else(|| failure(Cause::NoPdb, &"does not name a PDB"))
}

fn no_identity(file: FileKind, detail: &str) -> Failure {
    Failure { file, cause: Cause::NoIdentity, detail: detail.to_owned() }
}
