//! The row of a fact: its names, its type and its documentation.

/// The type of a fact, which is the same for all its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FactType {
    /// Text, also security identifiers and GUIDs.
    Text,
    /// A number of up to 32 bits.
    Number,
    /// An address, or an offset: in output, hexadecimal digits after `0x`.
    Hex,
    /// A UTC time.
    Time,
}

/// What all facts of a subject have in common. An implementation is a row for each fact.
pub trait FactId: Copy + Eq + 'static {
    /// All facts. Those with a common prefix of their paths are neighbors.
    const ALL: &'static [Self];

    /// The position in [`ALL`](FactId::ALL).
    fn index(self) -> usize;

    /// The row.
    fn row(self) -> &'static FactRow;

    /// The fact with a name of Fibratus, as in the row.
    fn with_alias(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|fact| fact.row().fibratus == Some(name))
    }

    /// The fact with a name in Sysmon's data.
    fn with_sigma_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|fact| fact.row().sigma.contains(&name))
    }
}

/// The names of a fact. Names in other schemas are paths below the object that represents the process or the thread
/// there; `None` if the schema has no such field, so that documents have the fact below their own object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FactRow {
    /// The path below the subject in filters and JSON documents, such as `user.sid`.
    pub path: &'static str,
    /// The positions of the dots in the path; 0 if there are no others.
    dots: [u8; DOTS_MAX],
    /// The type.
    pub r#type: FactType,
    /// The documentation: a sentence.
    pub doc: &'static str,
    /// The field of the Elastic Common Schema.
    pub ecs: Option<&'static str>,
    /// The field of the Open Cybersecurity Schema Framework.
    pub ocsf: Option<&'static str>,
    /// The column of tables.
    pub column: &'static str,
    /// The field of Fibratus, after `ps.` for the process and `ps.parent.` for its parent.
    pub fibratus: Option<&'static str>,
    /// The names in Sysmon's data and in rules of Sigma.
    pub sigma: &'static [&'static str],
}

/// The limit of dots in a path.
const DOTS_MAX: usize = 2;

const fn dots(path: &str) -> [u8; DOTS_MAX] {
    let (bytes, mut dots, mut count, mut at) = (path.as_bytes(), [0; DOTS_MAX], 0, 0);
    while at < bytes.len() {
        if bytes[at] == b'.' {
            dots[count] = at as u8;
            count += 1;
        }
        at += 1;
    }
    dots
}

impl FactRow {
    /// The position of the first dot of the path from a position on. Writers of nested objects ask for it often.
    #[inline]
    pub fn dot_from(&self, start: usize) -> Option<usize> {
        let [first, second] = self.dots;
        let (first, second) = (usize::from(first), usize::from(second));
        if first > start {
            Some(first)
        } else if second > start {
            Some(second)
        } else {
            None
        }
    }

    pub(crate) const fn new(path: &'static str, r#type: FactType, doc: &'static str) -> FactRow {
        FactRow {
            path,
            dots: dots(path),
            r#type,
            doc: doc.trim_ascii(),
            ecs: None,
            ocsf: None,
            column: path,
            fibratus: None,
            sigma: &[],
        }
    }

    pub(crate) const fn ecs(self, path: &'static str) -> FactRow {
        FactRow { ecs: Some(path), ..self }
    }

    pub(crate) const fn ocsf(self, path: &'static str) -> FactRow {
        FactRow { ocsf: Some(path), ..self }
    }

    pub(crate) const fn column(self, name: &'static str) -> FactRow {
        FactRow { column: name, ..self }
    }

    pub(crate) const fn fibratus(self, name: &'static str) -> FactRow {
        FactRow { fibratus: Some(name), ..self }
    }

    pub(crate) const fn sigma(self, names: &'static [&'static str]) -> FactRow {
        FactRow { sigma: names, ..self }
    }
}
