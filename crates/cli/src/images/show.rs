//! `stackhound images show`: the facts about single images.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use stackhound::images::{ImageFile, Signature, SignatureReport};
use stackhound::types::{HexBytes, Rfc3339};
use stackhound_export::escape::line;
use stackhound_export::json::images::Image;

use super::read;
use super::trust::{TrustArguments, checks};
use crate::inputs;
use crate::options::{ListFormat, Output};
use crate::outcome::Outcome;

#[derive(Args, Debug)]
pub struct Show {
    /// Read these image files
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub trust: TrustArguments,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    pub format: Option<ListFormat>,
    #[command(flatten)]
    pub output: Output,
}

pub fn run(arguments: &Show) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, ListFormat::Table)?;
    let trust = arguments.trust.read()?;
    let checks = checks(trust.as_ref());
    let mut images = Vec::new();
    for path in inputs::expanded(&arguments.files)? {
        path.metadata().with_context(|| path.display().to_string())?;
        let Some(bytes) = read(&path) else {
            bail!("{}: expected a PE image of at most 256 MiB, found another file", path.display());
        };
        let file = ImageFile::read(&bytes, &checks).with_context(|| path.display().to_string())?;
        images.push((path.to_string_lossy().into_owned(), file));
    }
    let mut sink = arguments.output.sentences(format)?;
    match format {
        ListFormat::Json => {
            let images: Vec<Image<'_>> = images.iter().map(|(path, file)| Image::new(path, file)).collect();
            sink.json(&images)?;
        }
        ListFormat::Table => {
            for (path, file) in &images {
                table(&mut sink, path, file)?;
            }
        }
    }
    sink.finish()?;
    Ok(Outcome::default())
}

/// One fact per line. Unknown facts are left out.
fn table(out: &mut impl Write, path: &str, file: &ImageFile) -> Result<()> {
    line(out, format_args!("{path}"))?;
    let mut fact = |name: &str, value: Option<String>| match value {
        Some(value) => line(out, format_args!("  {name:<22}{value}")),
        None => Ok(()),
    };
    fact("signature", Some(sentence(&file.signature)))?;
    for report in &file.signatures {
        for (name, value) in signature(report) {
            fact(name, value)?;
        }
    }
    if let Some(version) = &file.version {
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        fact("original file name", text(&version.original_file_name))?;
        fact("company", text(&version.company))?;
        fact("product", text(&version.product))?;
        fact("description", text(&version.description))?;
        fact("file version", text(&version.file_version))?;
    }
    fact(".NET", Some(if file.is_dotnet { "yes" } else { "no" }.to_owned()))?;
    fact("image", Some(file.identity.store_key()))?;
    fact("PDB", file.pdb.as_ref().map(|pdb| format!("{} {}", pdb.file_name(), pdb.store_key())))?;
    if let Some(hashes) = &file.hashes {
        let sums: [(&str, &[u8]); 4] = [
            ("SHA-256", &hashes.sha256),
            ("SHA-1", &hashes.sha1),
            ("Authenticode SHA-256", &hashes.authenticode_sha256),
            ("Authenticode SHA-1", &hashes.authenticode_sha1),
        ];
        for (name, sum) in sums {
            fact(name, Some(HexBytes(sum).to_string()))?;
        }
    }
    Ok(())
}

fn sentence(signature: &Signature) -> String {
    let signer = signature.signer.as_deref().map(|signer| format!(", signed by {signer}"));
    let reason = signature.reason.map(|reason| format!(": {}", reason.sentence()));
    let state = signature.state.name().replace('-', " ");
    format!("{state}{}{}", signer.unwrap_or_default(), reason.unwrap_or_default())
}

/// The facts about an embedded signature.
fn signature(report: &SignatureReport) -> [(&'static str, Option<String>); 5] {
    let time = |stamp: &stackhound::images::Timestamp| {
        let state = if stamp.is_verified { "" } else { " (not verified)" };
        let signer = stamp.signer.as_deref().map(|signer| format!(", by {signer}"));
        format!("{}{}{state}", Rfc3339(stamp.time), signer.unwrap_or_default())
    };
    let validity = |(start, end)| format!("{} to {}", Rfc3339(start), Rfc3339(end));
    [
        ("  nested", report.is_nested.then(|| sentence(&report.signature))),
        ("  digest", report.digest_algorithm.map(|name| format!("{name} {}", HexBytes(&report.digest)))),
        ("  issuer", report.issuer.as_deref().map(str::to_owned)),
        ("  certificate valid", report.validity.map(validity)),
        ("  time stamp", report.timestamp.as_ref().map(time)),
    ]
}
