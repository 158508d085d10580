//! No circle of imports between files of different folders.
//!
//! A file imports another one if a path in it leads to an item that the other one defines. Paths
//! are followed through modules, `use` declarations and re-exports to the file of the item, so that
//! a crate root or a module file that only re-exports is on no circle. A path that ends at a module
//! is no import; what is reached through it is.
//!
//! A folder is a module with the modules directly in it: `foo.rs` or `foo/mod.rs` with `foo/*.rs`.
//! The module file also belongs to the folder above, so `lib.rs` and `src/*.rs` are one folder. A
//! circle is allowed if all of its files belong to one folder, and reported with one import for
//! each of its steps otherwise.
//!
//! Tests are not read: files outside `src`, and what is under `#[cfg(test)]`. Paths in macros and
//! attributes are found by their tokens. Calls of methods and macros are not followed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// A module, and what paths through it lead to.
#[derive(Default)]
struct Module {
    /// Number of the file.
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names that are defined here.
    items: BTreeSet<String>,
    /// Names that `use` declarations bring in, and the paths they stand for.
    uses: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// All paths that occur, with those of private `use` declarations.
    paths: Vec<Vec<String>>,
}

/// The files and modules of one crate.
#[derive(Default)]
struct Krate {
    files: Vec<PathBuf>,
    modules: Vec<Module>,
}

/// Steps that a name is followed for, so that re-exports in a circle end.
const STEPS_MAX: usize = 64;

impl Krate {
    fn read(root: &Path) -> Krate {
        let mut krate = Krate::default();
        let folder = root.parent().expect("a folder").to_owned();
        krate.read_file(root.to_owned(), folder, None);
        krate
    }

    /// Reads a file as a module; files of its children are in `folder`.
    fn read_file(&mut self, path: PathBuf, folder: PathBuf, parent: Option<usize>) -> usize {
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.files.push(path);
        let file = self.files.len() - 1;
        self.read_module(&parsed.items, &parsed.attrs, file, &folder, parent)
    }

    fn read_module(
        &mut self,
        items: &[syn::Item],
        attributes: &[syn::Attribute],
        file: usize,
        folder: &Path,
        parent: Option<usize>,
    ) -> usize {
        let number = self.modules.len();
        self.modules.push(Module { file, parent, ..Module::default() });
        let mut paths = Paths::default();
        attributes.iter().for_each(|attribute| paths.visit_attribute(attribute));
        for item in items {
            match item {
                syn::Item::Mod(module) if !is_for_tests(&module.attrs) => {
                    let name = name_of(&module.ident);
                    let inner = folder.join(&name);
                    let child = match &module.content {
                        Some((_, items)) => {
                            self.read_module(items, &module.attrs, file, &inner, Some(number))
                        }
                        None => {
                            let folder_of_file = self.files[file].parent().expect("a folder");
                            let flat = folder.join(format!("{name}.rs"));
                            match stated_path(&module.attrs).map(|path| folder_of_file.join(path)) {
                                Some(path) => {
                                    let folder = path.parent().expect("a folder").to_owned();
                                    self.read_file(path, folder, Some(number))
                                }
                                None if flat.exists() => self.read_file(flat, inner, Some(number)),
                                None => self.read_file(inner.join("mod.rs"), inner, Some(number)),
                            }
                        }
                    };
                    self.modules[number].children.insert(name, child);
                }
                syn::Item::Use(item) if !is_for_tests(&item.attrs) => {
                    let is_private = matches!(item.vis, syn::Visibility::Inherited);
                    self.read_use(number, &item.tree, &mut Vec::new(), is_private);
                }
                item => {
                    if let Some(name) = defined(item) {
                        self.modules[number].items.insert(name);
                    }
                    paths.visit_item(item);
                }
            }
        }
        self.modules[number].paths.append(&mut paths.found);
        number
    }

    fn read_use(&mut self, module: usize, tree: &syn::UseTree, prefix: &mut Vec<String>, is_private: bool) {
        let depth = prefix.len();
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(name_of(&path.ident));
                self.read_use(module, &path.tree, prefix, is_private);
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.read_use(module, tree, prefix, is_private));
            }
            syn::UseTree::Glob(_) => self.modules[module].globs.push(prefix.clone()),
            syn::UseTree::Name(name) => self.add_use(module, prefix, &name.ident, &name.ident, is_private),
            syn::UseTree::Rename(name) => self.add_use(module, prefix, &name.ident, &name.rename, is_private),
        }
        prefix.truncate(depth);
    }

    fn add_use(
        &mut self,
        module: usize,
        prefix: &[String],
        name: &syn::Ident,
        known_as: &syn::Ident,
        is_private: bool,
    ) {
        let (mut path, mut known_as) = (prefix.to_vec(), name_of(known_as));
        match (name == "self", prefix.last()) {
            (true, Some(last)) if known_as == "self" => known_as = last.clone(),
            (true, _) => {}
            (false, _) => path.push(name_of(name)),
        }
        let module = &mut self.modules[module];
        if is_private {
            module.paths.push(path.clone());
        }
        module.uses.insert(known_as, path);
    }

    /// The file that defines what a path in a module leads to. None if that is another crate, a
    /// module, or a name of a function's own.
    fn file_of(&self, module: usize, path: &[String], steps: usize) -> Option<usize> {
        let steps = steps.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        match &**first {
            "crate" => self.walk(0, rest, steps),
            "self" => self.walk(module, rest, steps),
            "super" => self.walk(self.modules[module].parent?, rest, steps),
            _ => self.walk(module, path, steps),
        }
    }

    fn walk(&self, module: usize, path: &[String], steps: usize) -> Option<usize> {
        let steps = steps.checked_sub(1)?;
        let (name, rest) = path.split_first()?;
        let this = &self.modules[module];
        if name == "super" {
            return self.walk(this.parent?, rest, steps);
        }
        if let Some(child) = this.children.get(name) {
            return self.walk(*child, rest, steps);
        }
        if this.items.contains(name) {
            return Some(this.file);
        }
        if let Some(meant) = this.uses.get(name) {
            // `use a::a` of another crate would lead back to itself.
            let meant: Vec<String> = meant.iter().chain(rest).cloned().collect();
            return if meant == path { None } else { self.file_of(module, &meant, steps) };
        }
        this.globs.iter().find_map(|glob| {
            let meant: Vec<String> = glob.iter().chain(path).cloned().collect();
            self.file_of(module, &meant, steps)
        })
    }

    /// For each file those that it imports, with a path that leads there.
    fn imports(&self) -> Vec<BTreeMap<usize, String>> {
        let mut imports = vec![BTreeMap::new(); self.files.len()];
        for (number, module) in self.modules.iter().enumerate() {
            for path in &module.paths {
                if let Some(file) = self.file_of(number, path, STEPS_MAX).filter(|file| *file != module.file)
                {
                    imports[module.file].entry(file).or_insert_with(|| path.join("::"));
                }
            }
        }
        imports
    }

    /// The folders that a file belongs to, as modules: that above it, and its own.
    fn folders(&self, file: usize) -> BTreeSet<usize> {
        let top = self.modules.iter().position(|module| module.file == file).expect("a module");
        let is_file = |module: usize| self.modules[module].file == file;
        let mut above = self.modules[top].parent;
        while let Some(module) = above.filter(|module| is_file(*module)) {
            above = self.modules[module].parent;
        }
        // Inline modules are part of their file.
        let above = above.map(|module| {
            let file = self.modules[module].file;
            self.modules.iter().position(|module| module.file == file).expect("a module")
        });
        above.into_iter().chain([top]).collect()
    }

    /// Each circle of files that do not belong to one folder, in words.
    fn circles(&self) -> Vec<String> {
        let imports = self.imports();
        let reach: Vec<BTreeSet<usize>> = (0..imports.len()).map(|file| reached(&imports, file)).collect();
        let mut reported: BTreeSet<usize> = BTreeSet::new();
        let mut circles = Vec::new();
        for file in 0..imports.len() {
            if reported.contains(&file) || !reach[file].contains(&file) {
                continue;
            }
            let circle: BTreeSet<usize> =
                reach[file].iter().copied().filter(|other| reach[*other].contains(&file)).collect();
            reported.extend(&circle);
            let common = circle.iter().map(|file| self.folders(*file)).reduce(|left, right| &left & &right);
            if common.is_some_and(|common| common.is_empty()) {
                circles.push(self.describe(&imports, &circle));
            }
        }
        circles
    }

    fn describe(&self, imports: &[BTreeMap<usize, String>], circle: &BTreeSet<usize>) -> String {
        let name = |file: &usize| self.files[*file].display();
        let mut text = format!("{} files import each other:", circle.len());
        for file in circle {
            for (other, path) in imports[*file].iter().filter(|(other, _)| circle.contains(other)) {
                text += &format!("\n  {} -> {} ({path})", name(file), name(other));
            }
        }
        text
    }
}

/// All files that are imported from one, directly or not.
fn reached(imports: &[BTreeMap<usize, String>], from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = VecDeque::from([from]);
    while let Some(file) = open.pop_front() {
        open.extend(imports[file].keys().filter(|next| reached.insert(**next)));
    }
    reached
}

fn name_of(ident: &syn::Ident) -> String {
    ident.to_string().trim_start_matches("r#").to_owned()
}

/// The name that an item gives to its module.
fn defined(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name_of(ident))
}

/// Where the file of a module is, if `#[path = "…"]` says so.
fn stated_path(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("path")).find_map(|attribute| {
        match &attribute.meta.require_name_value().ok()?.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        }
    })
}

/// Whether something is compiled for tests only.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// Collects paths.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
}

impl Paths {
    /// Paths in what is not parsed.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.found.push(std::mem::take(&mut path));
                    }
                    path.push(name_of(&ident));
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                token => {
                    self.found.push(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = token {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.found.push(path);
    }
}

impl<'a> Visit<'a> for Paths {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_none() {
            self.found.push(path.segments.iter().map(|segment| name_of(&segment.ident)).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_meta_list(&mut self, list: &'a syn::MetaList) {
        self.tokens(list.tokens.clone());
    }

    fn visit_macro(&mut self, called: &'a syn::Macro) {
        self.tokens(called.tokens.clone());
    }
}

/// Roots of libraries and programs in a folder of crates.
fn roots(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.join("Cargo.toml").exists() {
            found.extend(
                ["src/lib.rs", "src/main.rs"]
                    .map(|root| path.join(root))
                    .into_iter()
                    .filter(|root| root.exists()),
            );
        } else if path.is_dir() && !path.ends_with("target") {
            roots(&path, found);
        }
    }
}

#[test]
fn files_of_different_folders_do_not_import_each_other() {
    let mut found = Vec::new();
    roots(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut found);
    assert!(found.len() > 20, "{found:?}");
    let circles: Vec<String> = found.iter().flat_map(|root| Krate::read(root).circles()).collect();
    assert!(circles.is_empty(), "{}", circles.join("\n\n"));
}

/// A crate with these files.
fn circles_of(files: &[(&str, &str)]) -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    Krate::read(&folder.path().join("lib.rs")).circles().len()
}

#[test]
fn circles_are_found_and_only_those() {
    let root = ("lib.rs", "mod a; mod b; pub use a::A; use b::x::X as Other;");
    let b = ("b/mod.rs", "pub mod x; use std::fmt;");
    for (uses_of_a, uses_of_x, expected) in [
        ("use crate::b::x::X;", "use crate::a::A;", 1),
        ("use crate::b::x::X;", "use crate::A;", 1),
        ("use crate::b; fn f(_: b::x::X) {}", "use super::super::a::{self}; fn f() -> a::A { todo!() }", 1),
        ("#[derive(D)] #[at(crate::b::x::X)] struct S;", "fn f() { print!(crate::A) }", 1),
        ("use crate::b::x::X;", "", 0),
        ("use crate::b::x::X;", "use crate::a;", 0),
        ("use crate::b::x::X;", "#[cfg(test)] mod tests { use crate::a::A; }", 0),
    ] {
        let (a, x) = (format!("{uses_of_a} pub struct A;"), format!("{uses_of_x} pub struct X;"));
        let found = circles_of(&[root, b, ("a.rs", &a), ("b/x.rs", &x)]);
        assert_eq!(found, expected, "{uses_of_a} {uses_of_x}");
    }
    let (a, b) = ("use crate::b::B; pub struct A;", "use crate::a::A; pub struct B;");
    assert_eq!(circles_of(&[("lib.rs", "mod a; mod b;"), ("a.rs", a), ("b.rs", b)]), 0, "one folder");
}
