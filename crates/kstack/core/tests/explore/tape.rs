//! A tape of choices. Recorded choices are replayed; new choices take the first alternative.

/// The choices of one execution.
#[derive(Debug, Default)]
pub struct Tape {
    /// Each choice, and its number of alternatives.
    choices: Vec<(usize, usize)>,
    played: usize,
}

impl Tape {
    /// Chooses one of `of` alternatives. A single alternative is not recorded.
    pub fn choose(&mut self, of: usize) -> usize {
        assert!(of > 0, "no alternative");
        if of == 1 {
            return 0;
        }
        if self.played == self.choices.len() {
            self.choices.push((0, of));
        }
        let (chosen, earlier) = self.choices[self.played];
        assert_eq!(of, earlier, "an execution does not repeat itself");
        self.played += 1;
        chosen
    }

    /// Whether all recorded choices were replayed, so that all further choices are new.
    pub fn is_at_its_end(&self) -> bool {
        self.played == self.choices.len()
    }

    /// Returns to the beginning, with the next alternative for the last choice. Returns false if
    /// every alternative of every choice was taken.
    pub fn next(&mut self) -> bool {
        self.played = 0;
        while let Some((chosen, of)) = self.choices.pop() {
            if chosen + 1 < of {
                self.choices.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}
