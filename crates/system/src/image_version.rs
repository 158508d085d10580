//! Version resources of images. Merging a trace adds them, for each image once.

use hashbrown::HashMap;

use crate::text::{Text, Texts};

/// Maximum number of images with a version resource. Further ones have none.
const IMAGES_MAX: usize = 1 << 16;

/// Texts of the version resource of an image. Empty if they are not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImageVersion<'s> {
    /// The file name that the author intended.
    pub original_file_name: &'s str,
    /// The description.
    pub description: &'s str,
    /// The version of the file.
    pub file_version: &'s str,
    /// The product.
    pub product: &'s str,
    /// The company.
    pub company: &'s str,
}

/// The version resources by time stamp and size in the header of the image.
#[derive(Debug, Default)]
pub(crate) struct ImageVersions(HashMap<(u32, u32), [Text; 5], foldhash::fast::RandomState>);

impl ImageVersions {
    /// Whether a statement about an image would be ignored.
    pub fn ignores(&self, time_date_stamp: u32, size: u32) -> bool {
        self.0.len() >= IMAGES_MAX || self.0.contains_key(&(time_date_stamp, size))
    }

    /// Records the version resource of an image. The first statement counts.
    pub fn observe(
        &mut self,
        texts: &mut Texts,
        time_date_stamp: u32,
        size: u32,
        version: &ImageVersion<'_>,
    ) {
        if self.ignores(time_date_stamp, size) {
            return;
        }
        let ImageVersion { original_file_name, description, file_version, product, company } = *version;
        let stated = [original_file_name, description, file_version, product, company];
        self.0.insert((time_date_stamp, size), stated.map(|text| texts.intern(text)));
    }

    /// The version resource of an image, if it is known.
    pub fn find<'s>(&self, texts: &'s Texts, time_date_stamp: u32, size: u32) -> Option<ImageVersion<'s>> {
        let [original_file_name, description, file_version, product, company] =
            self.0.get(&(time_date_stamp, size))?.map(|text| texts.get(text));
        Some(ImageVersion { original_file_name, description, file_version, product, company })
    }

    /// All texts.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Text> {
        self.0.values_mut().flatten()
    }
}
