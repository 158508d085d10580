//! Names that are the same in two traces.
//!
//! Names of modules do not depend on the case. Names that compilers number anew in each build, such
//! as those of closures, have `#` for each number. Process ids, addresses and paths of modules are
//! not part of names at all.

/// Parts of names that compilers make: closures and state machines of .NET, and its dynamic methods.
const MADE: [&str; 6] = ["<>", ">b__", ">d__", ">g__", "lambda_method", "DynamicMethod"];

/// The name of a group of frames, such as `module!function`, in the form that both traces have.
pub fn frames(name: &str) -> String {
    let (module, function) = match name.split_once('!') {
        Some((module, function)) if !module.contains(['<', '(', ' ']) => (Some(module), function),
        _ => (None, name),
    };
    let function = without_tier(function);
    let mut normal = module.map_or_else(String::new, |module| module.to_ascii_lowercase() + "!");
    if MADE.iter().any(|part| function.contains(part)) {
        let mut is_number = false;
        for c in function.chars() {
            if !c.is_ascii_digit() {
                normal.push(c);
            } else if !is_number {
                normal.push('#');
            }
            is_number = c.is_ascii_digit();
        }
    } else {
        normal.push_str(function);
    }
    normal
}

/// The name without the tier of a JIT compiler at its end, such as `[OptimizedTier1]`.
fn without_tier(name: &str) -> &str {
    let tier = name.strip_suffix(']').and_then(|rest| rest.rfind('[')).filter(|at| *at > 0);
    let Some(at) = tier else { return name };
    let text = &name[at + 1..name.len() - 1];
    let is_tier = ["Tier", "Optimized", "PreJIT", "Instrumented", "MinOpt", "QuickJitted", "ReadyToRun"]
        .iter()
        .any(|part| text.contains(part));
    if is_tier { name[..at].trim_end() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_parts_that_differ_between_builds() {
        for (name, expected) in [
            ("NTDLL.dll!RtlUserThreadStart", "ntdll.dll!RtlUserThreadStart"),
            ("engine.dll!?", "engine.dll!?"),
            ("a.dll!Parse2", "a.dll!Parse2"),
            ("a.dll!std::array<int,4>::fill", "a.dll!std::array<int,4>::fill"),
            ("App.Program.Main[OptimizedTier1]", "App.Program.Main"),
            ("App.Program.Main [QuickJitted]", "App.Program.Main"),
            ("App.List.get_Item[int]", "App.List.get_Item[int]"),
            ("App.<>c__DisplayClass12_0.<Run>b__3", "App.<>c__DisplayClass#_#.<Run>b__#"),
            ("app.dll!App.<Run>d__17.MoveNext", "app.dll!App.<Run>d__#.MoveNext"),
            ("DynamicClass.lambda_method4711", "DynamicClass.lambda_method#"),
            ("[no stack]", "[no stack]"),
            ("operator!", "operator!"),
        ] {
            assert_eq!(frames(name), expected);
        }
    }
}
