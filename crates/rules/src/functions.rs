//! The functions of conditions.

use crate::error::ErrorKind;
use crate::needs::{Need, Needs};
use crate::types::Type;

/// A function.
#[derive(Debug, PartialEq)]
pub struct Function {
    /// The name; conditions may write it in any case.
    pub name: &'static str,
    /// The types of the arguments. Those after `required` can be left out.
    pub arguments: &'static [Type],
    /// Number of arguments that must be there.
    pub required: usize,
    /// Whether the last argument can be repeated.
    pub repeats: bool,
    /// The type of the result.
    pub result: Type,
    /// What an evaluation needs.
    pub needs: Needs,
    /// Whether the second argument is a variable that the later ones use.
    pub has_variable: bool,
}

const fn function(name: &'static str, arguments: &'static [Type], required: usize, result: Type) -> Function {
    Function { name, arguments, required, repeats: false, result, needs: Needs::NONE, has_variable: false }
}

const fn repeating(function: Function) -> Function {
    Function { repeats: true, ..function }
}

/// Asks the running system, which a trace cannot answer.
const fn live(function: Function) -> Function {
    Function { needs: Needs::of(Need::LiveSystem), ..function }
}

use Type::{Any, Number, Text, Texts, Truth};

static FUNCTIONS: [Function; 26] = [
    function("base", &[Any, Truth], 1, Any),
    repeating(function("cidr_contains", &[Type::Address, Text], 2, Truth)),
    repeating(function("concat", &[Any], 2, Text)),
    function("count", &[Any, Text, Truth], 2, Number),
    function("dir", &[Any], 1, Any),
    function("entropy", &[Text, Text], 1, Number),
    function("ext", &[Text, Truth], 1, Text),
    Function { has_variable: true, ..repeating(function("foreach", &[Any, Any, Truth, Any], 3, Truth)) },
    live(function("get_reg_value", &[Text], 1, Any)),
    live(function("glob", &[Text], 1, Texts)),
    function("indexof", &[Text, Text, Text], 2, Number),
    function("is_abs", &[Text], 1, Truth),
    live(function("is_minidump", &[Text], 1, Truth)),
    function("length", &[Any], 1, Number),
    function("lower", &[Text], 1, Text),
    function("ltrim", &[Text, Text], 2, Text),
    function("md5", &[Text], 1, Text),
    repeating(function("regex", &[Text, Text], 2, Truth)),
    repeating(function("replace", &[Text, Text, Text], 3, Text)),
    function("rtrim", &[Text, Text], 2, Text),
    function("split", &[Text, Text], 2, Texts),
    function("substr", &[Text, Number, Number], 2, Text),
    live(function("symlink", &[Text], 1, Text)),
    function("upper", &[Text], 1, Text),
    function("volume", &[Text], 1, Text),
    live(repeating(function("yara", &[Any, Text], 2, Truth))),
];

impl Function {
    /// The function with a name.
    pub(crate) fn of(name: &str) -> Option<&'static Function> {
        FUNCTIONS.iter().find(|function| function.name.eq_ignore_ascii_case(name))
    }

    /// All names.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        FUNCTIONS.iter().map(|function| function.name)
    }

    /// The type of an argument, by its index.
    pub(crate) fn argument(&self, index: usize) -> Type {
        *self.arguments.get(index).or(self.arguments.last()).unwrap_or(&Type::Any)
    }

    /// Checks the number of arguments.
    pub(crate) fn check_count(&self, found: usize) -> Result<(), ErrorKind> {
        let most = if self.repeats { usize::MAX } else { self.arguments.len() };
        if (self.required..=most).contains(&found) {
            return Ok(());
        }
        let expected = match (self.required, most) {
            (least, usize::MAX) => format!("at least {least}"),
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least} to {most}"),
        };
        Err(ErrorKind::Arguments { name: self.name, expected, found })
    }
}
