#!/usr/bin/env python3
"""Checks `stackhound images` with signatures of osslsigncode, and compares it with LIEF.

usage: check-images.py PROGRAM WRITER [IMAGE...]

WRITER is the example `write_images` of stackhound-images, which writes unsigned images. This script
makes certificates with openssl and signs the images with osslsigncode: valid, expired, not yet
valid, for servers, with SHA-1 to SHA-512, with RSA and elliptic curves, nested, time-stamped, with
page hashes, and damaged. The states that `images show` reports must be the expected ones.

Each of these images and each IMAGE is also read with LIEF. Compared are the Authenticode digests,
the result of the check of the signature, signers and issuers, digest algorithms, the texts of the
version resource, the CLI header, and the identity of the PDB. IMAGE can be a directory, or a Python
wheel, whose images are then read.

Needs openssl, osslsigncode and LIEF, which it does not install:
apt-get install openssl osslsigncode; pip install lief
Exit code: 0 equal, 1 a difference, 2 something is missing.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

try:
    import lief
except ImportError:
    print("LIEF is missing; pip install lief", file=sys.stderr)
    sys.exit(2)
for tool in ("openssl", "osslsigncode"):
    if not shutil.which(tool):
        print(f"{tool} is missing; apt-get install {tool}", file=sys.stderr)
        sys.exit(2)

FLAGS = lief.PE.Signature.VERIFICATION_FLAGS
# What LIEF checks, and the reason that `images` gives. LIEF knows neither roots nor usages nor
# tokens of RFC 3161, so it accepts more.
LIEF_REASONS = {
    FLAGS.BAD_DIGEST: "digest-mismatch",
    FLAGS.BAD_SIGNATURE: "bad-signature",
    FLAGS.CERT_NOT_FOUND: "signer-missing",
    FLAGS.CERT_EXPIRED: "expired",
    FLAGS.CERT_FUTURE: "not-yet-valid",
}

OPENSSL = """
[ca]
basicConstraints = critical, CA:true
keyUsage = keyCertSign
[code]
extendedKeyUsage = codeSigning
[server]
extendedKeyUsage = serverAuth
[time]
extendedKeyUsage = critical, timeStamping
[req]
distinguished_name = name
[name]
"""


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(str(part) for part in command)}\n{done.stdout}{done.stderr}")
    return done.stdout


class Certificates:
    """Makes certificates, each with a key of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.serial = 1
        (folder / "openssl.cnf").write_text(OPENSSL)

    def make(self, name, issuer=None, usage="code", start="20200101000000Z", end="20400101000000Z", key=("rsa:2048",)):
        self.serial += 1
        base = self.folder / name
        config = self.folder / "openssl.cnf"
        run("openssl", "req", "-config", config, "-newkey", *key, "-nodes", "-keyout", base.with_suffix(".key"),
            "-subj", f"/O=Example/CN=Example {name}", "-out", base.with_suffix(".csr"))
        signer = self.folder / (issuer or name)
        (self.folder / "index.txt").write_text("")
        own = self.folder / f"{name}.ca.cnf"
        own.write_text(OPENSSL + f"""
[authority]
database = {self.folder}/index.txt
new_certs_dir = {self.folder}
serial = {self.folder}/serial
default_md = sha256
policy = policy
unique_subject = no
[policy]
organizationName = supplied
commonName = supplied
""")
        (self.folder / "serial").write_text(f"{self.serial:04X}\n")
        sign = ["-selfsign", "-keyfile", base.with_suffix(".key")]
        if issuer:
            sign = ["-cert", signer.with_suffix(".pem"), "-keyfile", signer.with_suffix(".key")]
        run("openssl", "ca", "-batch", "-notext", "-config", own, "-name", "authority", "-extensions", usage,
            "-startdate", start, "-enddate", end, "-in", base.with_suffix(".csr"), "-out", base.with_suffix(".pem"),
            *sign)
        return name


def sign(folder, image, out, name, *options):
    if out.exists():
        out.unlink()
    run("osslsigncode", "sign", "-certs", folder / f"{name}.pem", "-key", folder / f"{name}.key",
        "-ac", folder / "issuing.pem", *options, "-in", image, "-out", out)
    return out


def made_images(folder, images):
    """Yields signed images with the expected states with a trusted root, and without."""
    certificates = Certificates(folder)
    certificates.make("root", usage="ca")
    certificates.make("issuing", "root", "ca")
    certificates.make("code", "issuing")
    ec = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    certificates.make("code-p256", "issuing", key=ec)
    ec = ("ec", "-pkeyopt", "ec_paramgen_curve:secp384r1")
    certificates.make("code-p384", "issuing", key=ec)
    certificates.make("expired", "issuing", end="20230101000000Z")
    certificates.make("future", "issuing", start="20390101000000Z")
    certificates.make("server", "issuing", "server")
    certificates.make("own")
    certificates.make("time", "root", "time")
    certificates.make("time-own", usage="time")
    stamp = lambda name: ("-TSA-certs", folder / f"{name}.pem", "-TSA-key", folder / f"{name}.key")
    # 2022-01-01, when the certificate `expired` was valid.
    before = ("-TSA-time", "1640995200", "-time", "1640995200")
    other_root = "root-not-trusted other-root"
    rows = [
        ("valid", "code", (), ["valid"], ["root-not-checked"]),
        ("sha1", "code", ("-h", "sha1"), ["valid"], ["root-not-checked"]),
        ("sha384", "code", ("-h", "sha384"), ["valid"], ["root-not-checked"]),
        ("sha512", "code", ("-h", "sha512"), ["valid"], ["root-not-checked"]),
        ("p256", "code-p256", (), ["valid"], ["root-not-checked"]),
        ("p384", "code-p384", ("-h", "sha384"), ["valid"], ["root-not-checked"]),
        ("pages", "code", ("-ph",), ["valid"], ["root-not-checked"]),
        ("expired", "expired", (), ["invalid expired"], ["invalid expired"]),
        ("future", "future", (), ["invalid not-yet-valid"], ["invalid not-yet-valid"]),
        ("server", "server", (), ["invalid not-for-code"], ["invalid not-for-code"]),
        ("other-root", "own", (), [other_root], ["root-not-checked"]),
        ("stamped", "expired", (*stamp("time"), *before), ["valid"], ["root-not-checked"]),
        ("stamped-late", "expired", stamp("time"), ["invalid expired"], ["invalid expired"]),
        ("stamped-own", "expired", (*stamp("time-own"), *before), [other_root], ["root-not-checked"]),
    ]
    for image in images:
        for name, certificate, options, trusted, unchecked in rows:
            out = sign(folder, image, folder / f"{image.stem}-{name}.exe", certificate, *options)
            yield out, trusted, unchecked
        valid = folder / f"{image.stem}-valid.exe"
        out = sign(folder, valid, folder / f"{image.stem}-nested.exe", "expired", "-nest")
        yield out, ["valid", "invalid expired"], ["root-not-checked", "invalid expired"]
        yield from damaged(folder, image.stem, valid)


def damaged(folder, stem, valid):
    """Changes one byte of the file, of the signed digest, of an attribute, and of the signature."""
    bytes_ = valid.read_bytes()
    digest = lief.PE.parse(str(valid)).authentihash_sha256
    attribute = bytes.fromhex("2b060104018237020115")
    table = bytes_.rindex(bytes.fromhex("06092a864886f70d010702"))
    places = [
        ("file", 0x400, "invalid digest-mismatch"),
        ("digest", bytes_.index(bytes(digest), table), "invalid digest-mismatch"),
        ("purpose", bytes_.index(attribute, table), "invalid bad-signature"),
        ("signature", len(bytes_) - 40, "invalid bad-signature"),
    ]
    for name, place, expected in places:
        changed = bytearray(bytes_)
        changed[place] ^= 1
        out = folder / f"{stem}-damaged-{name}.exe"
        out.write_bytes(changed)
        yield out, [expected], [expected]


def unpacked(wheel, folder):
    """Extracts the images of a Python wheel."""
    out = folder / wheel.stem
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out, [name for name in archive.namelist() if name.lower().endswith((".dll", ".exe"))])
    return out


def show(program, path, *options):
    shown = json.loads(run(program, "images", "show", path, "--format", "json", *options))
    return shown[0]


def states(shown):
    return [" ".join(filter(None, (one["state"], one["reason"]))) for one in shown["signatures"]]


def common_name(name):
    """The common name in a name as LIEF writes it."""
    parts = [part.strip() for part in name.replace("\\,", "\0").split(",")]
    names = [part[3:].replace("\0", ",") for part in parts if part.startswith("CN=")]
    return names[-1] if names else None


def differences(path, shown, counts):
    """Compares the facts about an image with those of LIEF."""
    image = lief.PE.parse(str(path))
    if image is None:
        counts["unreadable with LIEF"] += 1
        return
    # Signing appends zeros up to a multiple of eight, which LIEF does not add to the digest.
    padded = image
    if not image.signatures and path.stat().st_size % 8:
        bytes_ = path.read_bytes()
        padded = lief.PE.parse(list(bytes_.ljust(-(-len(bytes_) // 8) * 8, b"\0")))
    for name, algorithm in (("sha256", lief.PE.ALGORITHMS.SHA_256), ("sha1", lief.PE.ALGORITHMS.SHA_1)):
        digest = bytes(padded.authentihash(algorithm)).hex()
        if not digest:
            counts["without a digest in LIEF"] = counts.get("without a digest in LIEF", 0) + 1
            continue
        yield from compare(f"authenticode_{name}", shown[f"authenticode_{name}"], digest, counts)
    signatures = list(image.signatures)
    outer = [one for one in shown["signatures"] if not one["nested"]]
    yield from compare("number of signatures", len(outer), len(signatures), counts)
    for ours, theirs in zip(outer, signatures):
        yield from signature_differences(ours, theirs, image, counts)
    # Images of other tools have fewer data directories.
    clr = [one for one in image.data_directories if one.type == lief.PE.DataDirectory.TYPES.CLR_RUNTIME_HEADER]
    yield from compare("dotnet", shown["dotnet"], any(one.rva != 0 and one.size != 0 for one in clr), counts)
    pdb = image.codeview_pdb
    theirs = (pdb.guid.lower(), pdb.age, pdb.filename) if pdb else None
    ours = shown["pdb"] and (shown["pdb"]["guid"], shown["pdb"]["age"], shown["pdb"]["name"])
    yield from compare("pdb", ours, theirs, counts)
    yield from version_differences(shown["version"], image, counts)


def signature_differences(ours, theirs, image, counts):
    algorithm = theirs.content_info.digest_algorithm.name.lower().replace("_", "")
    yield from compare("digest_algorithm", ours["digest_algorithm"], algorithm, counts)
    yield from compare("digest", ours["digest"], bytes(theirs.content_info.digest).hex(), counts)
    signer = theirs.signers[0]
    if signer.cert:
        yield from compare("signer", ours["signer"], common_name(signer.cert.subject), counts)
        yield from compare("issuer", ours["issuer"], common_name(signer.cert.issuer), counts)
    yield from compare("serial_number", ours["serial_number"], bytes(signer.serial_number).hex(), counts)
    flags = image.verify_signature(theirs)
    found = [reason for flag, reason in LIEF_REASONS.items() if flag in flags]
    # LIEF reports all errors, `images` the first one.
    if ours["reason"] in LIEF_REASONS.values():
        stamped = ours["timestamp"] is not None
        yield from compare("verification", ours["reason"] in found or stamped, True, counts)
    elif ours["state"] in ("valid", "root-not-checked") and ours["timestamp"] is None:
        yield from compare("verification", [], found, counts)


def version_differences(ours, image, counts):
    texts = {}
    manager = image.resources_manager if image.has_resources else None
    version = manager.version if manager and not isinstance(manager, lief.lief_errors) else []
    version = version if isinstance(version, list) else [version]
    for one in version[:1]:
        info = one.string_file_info
        for table in list(info.children)[:1] if info else []:
            for entry in table.entries:
                texts.setdefault(entry.key, entry.value.strip("\0").strip())
    keys = {
        "original_file_name": "OriginalFilename",
        "company": "CompanyName",
        "product": "ProductName",
        "description": "FileDescription",
        "file_version": "FileVersion",
    }
    for key, name in keys.items():
        yield from compare(f"version.{key}", ours and ours[key], texts.get(name) or None, counts)


def compare(what, ours, theirs, counts):
    counts[what] = counts.get(what, 0) + 1
    if ours != theirs:
        yield f"{what}: images has {ours!r}, LIEF {theirs!r}"


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    program, writer = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    given = [pathlib.Path(argument) for argument in sys.argv[3:]]
    failures, compared, signed, counts = [], 0, 0, {"unreadable with LIEF": 0}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run(writer, folder)
        images = sorted(folder.glob("*.exe"))
        paths = list(images)
        for path, trusted, unchecked in made_images(folder, images):
            paths.append(path)
            signed += 1
            for options, expected in ((("--trust", folder / "root.pem"), trusted), ((), unchecked)):
                found = states(show(program, path, *options))
                if found != expected:
                    failures.append(f"{path.name} {' '.join(map(str, options))}: expected {expected}, found {found}")
        for path in given:
            if path.suffix == ".whl":
                path = unpacked(path, folder)
            paths.extend(sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path])
        for path in paths:
            with path.open("rb") as file:
                if file.read(2) != b"MZ" or not lief.is_pe(str(path)):
                    continue
            compared += 1
            failures.extend(f"{path.name}: {one}" for one in differences(path, show(program, path), counts))
    print(f"{signed} signed images with the expected states; {compared} images compared with LIEF {lief.__version__}:")
    print(", ".join(f"{what} {number}" for what, number in counts.items()))
    for failure in failures:
        print(failure)
    print(f"{len(failures)} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
