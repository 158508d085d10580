//! Detectors that read the image files of the cases, identified by the image events of traces or by
//! the hashes of Sysmon.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use stackhound::detect::{Binaries, Detector};
use stackhound::frames::Lists;
use stackhound::symbols::file_loader;
use stackhound::symbols::path::SymbolPath;
use stackhound::symbols::store::StoreOptions;
use stackhound::types::{ImageIdentity, ModuleIdentity};
use stackhound_testkit::CaseFile;

/// The image files of the cases, in a temporary folder.
pub struct Evaluators {
    folder: tempfile::TempDir,
    known_images: &'static str,
    /// By their SHA-256 sums.
    identities: Arc<HashMap<[u8; 32], ModuleIdentity>>,
}

impl Evaluators {
    pub fn of(file: &CaseFile) -> Evaluators {
        let folder = tempfile::tempdir().expect("a folder");
        let mut identities = HashMap::new();
        for image in &file.images {
            let path = folder.path().join(&image.store_path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, &image.bytes).expect("a file");
            let mut parts = image.store_path.split('/');
            let (name, key) = (parts.next().expect("a name"), parts.next().expect("a key"));
            let number = |digits: &str| u32::from_str_radix(digits, 16).expect("digits");
            let identity = ImageIdentity { time_date_stamp: number(&key[..8]), size: number(&key[8..]) };
            let module =
                ModuleIdentity { name: name.to_owned(), image: Some(identity), ..ModuleIdentity::default() };
            identities.insert(Sha256::digest(&image.bytes).into(), module);
        }
        Evaluators { folder, known_images: file.known_images, identities: Arc::new(identities) }
    }

    pub fn evaluate(&self) -> Detector {
        let path = SymbolPath::store(self.folder.path().to_owned());
        let (_, load) = file_loader(StoreOptions { path, cache: None, ..StoreOptions::default() }, true);
        let identities = Arc::clone(&self.identities);
        let binaries = Binaries::new(Box::new(move |module| {
            let known = module.sha256.as_ref().and_then(|sum| identities.get(sum));
            load(known.unwrap_or(&module.identity))
        }));
        Detector::new(Lists::default().with_known_images(self.known_images), binaries)
    }
}
