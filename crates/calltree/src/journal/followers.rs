//! Predicts the locations of tail calls: most follow the same location as before.

use std::collections::HashMap;

/// Which location a tail call led to after each location of the page. Writers and readers pass the same
/// locations.
#[derive(Clone, Debug, Default)]
pub(super) struct Followers {
    last: u32,
    followers: HashMap<u32, u32>,
}

impl Followers {
    /// A page begins.
    pub fn clear(&mut self) {
        self.last = 0;
        self.followers.clear();
    }

    /// A frame begins.
    pub fn begin(&mut self, location: u32) {
        self.last = location;
    }

    /// Returns the location of the next tail call, if it is the same as after the last location before.
    pub fn predicted(&self) -> Option<u32> {
        self.followers.get(&self.last).copied()
    }

    /// A tail call.
    pub fn reach(&mut self, location: u32) {
        self.followers.insert(self.last, location);
        self.last = location;
    }
}
