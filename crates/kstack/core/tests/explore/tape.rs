//! A tape of choices: what was chosen is chosen again when it is played, what is new takes the first alternative.

/// The choices of one execution.
#[derive(Debug, Default)]
pub struct Tape {
    /// What was chosen, of how many.
    choices: Vec<(usize, usize)>,
    played: usize,
}

impl Tape {
    /// One of so many alternatives. Where there is only one, nothing is noted.
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

    /// Whether all that is noted was played: from here on everything is new.
    pub fn is_at_its_end(&self) -> bool {
        self.played == self.choices.len()
    }

    /// Goes back to the beginning with the last choice changed for the next; false if every alternative of every choice was taken.
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
