//! What an image adds to a table: its exports, its functions, its sections of code.

use stackhound_types::Rva;

use super::SymbolTableBuilder;
use crate::image::{Image, ImageError};

impl SymbolTableBuilder {
    /// Adds what an image itself says: exports of code, function ranges with the chunks that belong to them, and sections
    /// of code. Says how many entries could not be read and are missing.
    ///
    /// # Errors
    /// If its exports cannot be read. What else it says is added.
    pub fn add_image(&mut self, image: &Image<'_>) -> Result<usize, ImageError> {
        for section in image.sections().iter().filter(|section| section.executable) {
            self.add_code(section.rva..Rva(section.rva.0.saturating_add(section.size)));
        }
        let functions = image.functions();
        for function in &functions.entries {
            match function.primary {
                Some(primary) if primary != function.start => {
                    self.add_chunk(function.start..function.end, primary);
                }
                _ => self.add_function(function.start..function.end),
            }
        }
        let exports = image.exports()?;
        for code in exports.code(image) {
            self.add_export(code.rva, code.name());
        }
        Ok(functions.unreadable + exports.unreadable)
    }
}
