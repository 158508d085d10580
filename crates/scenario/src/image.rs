//! Images: the files that the kernel and the processes have mapped.
//!
//! Sizes are those of Windows 10, version 2004. `ntdll.dll`, `win32u.dll` and `kernel32.dll` also
//! have the identity of build 19041.508, so that a table of that build's system-call stubs matches.
//! All other identities are invented, so that symbol files of real images never name invented
//! addresses.

use stackhound_types::Address;

use crate::random::{Random, hash};

/// Index of an image in a [`Truth`](crate::Truth) and in the machine.
pub(crate) type ImageIndex = u32;

/// A file that is mapped as an image. It has the same base in all processes, as in one boot of
/// Windows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// The NT path, as in the trace.
    pub path: String,
    /// Base address.
    pub base: Address,
    /// Size in bytes.
    pub size: u32,
    /// Checksum in the image's header.
    pub checksum: u32,
    /// Link time in the image's header.
    pub time_date_stamp: u32,
}

impl Image {
    /// Whether the image contains an address.
    pub fn contains(&self, address: Address) -> bool {
        address.0.checked_sub(self.base.0).is_some_and(|offset| offset < self.size.into())
    }

    /// The file name.
    pub fn name(&self) -> &str {
        self.path.rsplit('\\').next().unwrap_or_default()
    }
}

/// Images that every scenario has, in the order of [`FILES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum SystemImage {
    Ntoskrnl,
    Hal,
    Fltmgr,
    Ntfs,
    Storport,
    Disk,
    Classpnp,
    Partmgr,
    Volmgr,
    Ndis,
    Netio,
    Tcpip,
    Afd,
    Intelppm,
    Win32k,
    Win32kbase,
    Win32kfull,
    Ntdll,
    Kernel32,
    Kernelbase,
    Win32u,
    User32,
    Gdi32,
    Msvcrt,
    Ucrtbase,
    Rpcrt4,
    Combase,
    Sechost,
    Advapi32,
    Ws2,
    Mswsock,
    Shell32,
    Bcrypt,
    Csrsrv,
    Winsrv,
    Wow64,
    Wow64Cpu,
    Ntdll32,
    Kernel32x32,
    Kernelbase32,
    Ucrtbase32,
    Smss,
    Csrss,
    Services,
    Svchost,
    Explorer,
    Office,
    OfficeCore,
    Browser,
    BrowserCore,
    Sync32,
    Task,
    Updater,
}

/// The part of the address space in which an image is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ImageRegion {
    Kernel,
    Session,
    Library,
    Program,
    /// Below 4 GiB.
    Low,
}

/// Each image with its region, path, and size in pages.
#[rustfmt::skip]
pub(crate) const FILES: [(SystemImage, ImageRegion, &str, u32); 53] = [
    (SystemImage::Ntoskrnl, ImageRegion::Kernel, r"\SystemRoot\system32\ntoskrnl.exe", 0x1046),
    (SystemImage::Hal, ImageRegion::Kernel, r"\SystemRoot\system32\hal.dll", 0x6),
    (SystemImage::Fltmgr, ImageRegion::Kernel, r"\SystemRoot\System32\drivers\FLTMGR.SYS", 0x6f),
    (SystemImage::Ntfs, ImageRegion::Kernel, r"\SystemRoot\System32\Drivers\Ntfs.sys", 0x2d9),
    (SystemImage::Storport, ImageRegion::Kernel, r"\SystemRoot\System32\drivers\storport.sys", 0xb0),
    (SystemImage::Disk, ImageRegion::Kernel, r"\SystemRoot\System32\drivers\disk.sys", 0x1c),
    (SystemImage::Classpnp, ImageRegion::Kernel, r"\SystemRoot\System32\drivers\CLASSPNP.SYS", 0x6c),
    (SystemImage::Partmgr, ImageRegion::Kernel, r"\SystemRoot\System32\drivers\partmgr.sys", 0x31),
    (SystemImage::Volmgr, ImageRegion::Kernel, r"\SystemRoot\System32\drivers\volmgr.sys", 0x19),
    (SystemImage::Ndis, ImageRegion::Kernel, r"\SystemRoot\System32\drivers\NDIS.SYS", 0x16f),
    (SystemImage::Netio, ImageRegion::Kernel, r"\SystemRoot\System32\drivers\NETIO.SYS", 0x98),
    (SystemImage::Tcpip, ImageRegion::Kernel, r"\SystemRoot\System32\drivers\tcpip.sys", 0x2ec),
    (SystemImage::Afd, ImageRegion::Kernel, r"\SystemRoot\system32\drivers\afd.sys", 0xa3),
    (SystemImage::Intelppm, ImageRegion::Kernel, r"\SystemRoot\System32\drivers\intelppm.sys", 0x40),
    (SystemImage::Win32k, ImageRegion::Session, r"\SystemRoot\System32\win32k.sys", 0x9a),
    (SystemImage::Win32kbase, ImageRegion::Session, r"\SystemRoot\System32\win32kbase.sys", 0x2e0),
    (SystemImage::Win32kfull, ImageRegion::Session, r"\SystemRoot\System32\win32kfull.sys", 0x3b5),
    (SystemImage::Ntdll, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\ntdll.dll", 0x1f5),
    (SystemImage::Kernel32, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\kernel32.dll", 0xbd),
    (SystemImage::Kernelbase, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\KernelBase.dll", 0x2c7),
    (SystemImage::Win32u, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\win32u.dll", 0x22),
    (SystemImage::User32, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\user32.dll", 0x1a0),
    (SystemImage::Gdi32, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\gdi32.dll", 0x2a),
    (SystemImage::Msvcrt, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\msvcrt.dll", 0x9e),
    (SystemImage::Ucrtbase, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\ucrtbase.dll", 0x100),
    (SystemImage::Rpcrt4, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\rpcrt4.dll", 0x123),
    (SystemImage::Combase, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\combase.dll", 0x353),
    (SystemImage::Sechost, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\sechost.dll", 0x9b),
    (SystemImage::Advapi32, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\advapi32.dll", 0xaa),
    (SystemImage::Ws2, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\ws2_32.dll", 0x6b),
    (SystemImage::Mswsock, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\mswsock.dll", 0x6a),
    (SystemImage::Shell32, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\shell32.dll", 0x740),
    (SystemImage::Bcrypt, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\bcrypt.dll", 0x27),
    (SystemImage::Csrsrv, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\csrsrv.dll", 0x18),
    (SystemImage::Winsrv, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\winsrv.dll", 0x15),
    (SystemImage::Wow64, ImageRegion::Library, r"\Device\HarddiskVolume3\Windows\System32\wow64.dll", 0x59),
    (SystemImage::Wow64Cpu, ImageRegion::Low, r"\Device\HarddiskVolume3\Windows\System32\wow64cpu.dll", 0xa),
    (SystemImage::Ntdll32, ImageRegion::Low, r"\Device\HarddiskVolume3\Windows\SysWOW64\ntdll.dll", 0x1a3),
    (SystemImage::Kernel32x32, ImageRegion::Low, r"\Device\HarddiskVolume3\Windows\SysWOW64\kernel32.dll", 0xf0),
    (SystemImage::Kernelbase32, ImageRegion::Low, r"\Device\HarddiskVolume3\Windows\SysWOW64\KernelBase.dll", 0x213),
    (SystemImage::Ucrtbase32, ImageRegion::Low, r"\Device\HarddiskVolume3\Windows\SysWOW64\ucrtbase.dll", 0x120),
    (SystemImage::Smss, ImageRegion::Program, r"\Device\HarddiskVolume3\Windows\System32\smss.exe", 0x28),
    (SystemImage::Csrss, ImageRegion::Program, r"\Device\HarddiskVolume3\Windows\System32\csrss.exe", 0x7),
    (SystemImage::Services, ImageRegion::Program, r"\Device\HarddiskVolume3\Windows\System32\services.exe", 0xae),
    (SystemImage::Svchost, ImageRegion::Program, r"\Device\HarddiskVolume3\Windows\System32\svchost.exe", 0x11),
    (SystemImage::Explorer, ImageRegion::Program, r"\Device\HarddiskVolume3\Windows\explorer.exe", 0x45a),
    (SystemImage::Office, ImageRegion::Program, r"\Device\HarddiskVolume3\Program Files\Contoso Office\writer.exe", 0x1c4),
    (SystemImage::OfficeCore, ImageRegion::Library, r"\Device\HarddiskVolume3\Program Files\Contoso Office\core.dll", 0xe80),
    (SystemImage::Browser, ImageRegion::Program, r"\Device\HarddiskVolume3\Program Files\Contoso Browser\browser.exe", 0x2d0),
    (SystemImage::BrowserCore, ImageRegion::Library, r"\Device\HarddiskVolume3\Program Files\Contoso Browser\engine.dll", 0x8c00),
    (SystemImage::Sync32, ImageRegion::Low, r"\Device\HarddiskVolume3\Program Files (x86)\Contoso Sync\sync.exe", 0x86),
    (SystemImage::Task, ImageRegion::Program, r"\Device\HarddiskVolume3\Windows\System32\backgroundTaskHost.exe", 0x9),
    (SystemImage::Updater, ImageRegion::Program, r"\Device\HarddiskVolume3\ProgramData\Contoso\updater.exe", 0x3a),
];

/// Link time and checksum of the images that have a genuine identity.
fn genuine(known: SystemImage) -> Option<(u32, u32)> {
    match known {
        SystemImage::Ntdll => Some((0x70e6_9bad, 2_063_024)),
        SystemImage::Win32u => Some((0xde34_ae5c, 167_194)),
        SystemImage::Kernel32 => Some((0x7331_7569, 0xb_cf26)),
        _ => None,
    }
}

const PAGE: u32 = 0x1000;
/// Alignment of image bases.
const GRANULARITY: u64 = 0x1_0000;

/// Assigns bases to images.
#[derive(Debug)]
pub(crate) struct Layout {
    kernel: u64,
    session: u64,
    library: u64,
    program: u64,
    low: u64,
}

impl Layout {
    /// The layout of one boot.
    pub fn new(random: &mut Random) -> Layout {
        Layout {
            kernel: 0xffff_f800_0000_0000 + random.below(0x4000) * 0x20_0000,
            session: 0xffff_d300_0000_0000 + random.below(0x1000) * 0x10_0000,
            library: 0x7ff8_0000_0000 + random.below(0x1000) * 0x10_0000,
            program: 0x7ff6_0000_0000 + random.below(0x400) * 0x10_0000,
            low: 0x7000_0000 + random.below(0x100) * 0x1_0000,
        }
    }

    fn take(&mut self, region: ImageRegion, size: u32) -> Address {
        let next = match region {
            ImageRegion::Kernel => &mut self.kernel,
            ImageRegion::Session => &mut self.session,
            ImageRegion::Library => &mut self.library,
            ImageRegion::Program => &mut self.program,
            ImageRegion::Low => &mut self.low,
        };
        let base = *next;
        *next = (base + u64::from(size)).next_multiple_of(GRANULARITY) + GRANULARITY;
        Address(base)
    }

    /// The images that every scenario has, in the order of [`SystemImage`].
    pub fn known_images(&mut self) -> Vec<Image> {
        let image = |(known, region, path, pages): (SystemImage, ImageRegion, &str, u32)| {
            let invented = hash(known as u64);
            let (time_date_stamp, checksum) =
                genuine(known).unwrap_or((invented as u32, (invented >> 40) as u32));
            let size = pages * PAGE;
            Image { path: path.to_owned(), base: self.take(region, size), size, checksum, time_date_stamp }
        };
        FILES.map(image).to_vec()
    }

    /// A library or program in addition to the known images.
    pub fn new_image(&mut self, path: String, is_program: bool, pages: u32) -> Image {
        let region = if is_program { ImageRegion::Program } else { ImageRegion::Library };
        let base = self.take(region, pages * PAGE);
        let invented = hash(base.0);
        Image {
            path,
            base,
            size: pages * PAGE,
            checksum: (invented >> 40) as u32,
            time_date_stamp: invented as u32,
        }
    }
}

impl SystemImage {
    pub fn index(self) -> ImageIndex {
        self as ImageIndex
    }
}

/// Number of kernel images, which are the first in [`FILES`].
pub(crate) const KERNEL_IMAGES: usize = SystemImage::Win32kfull as usize + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_order_of_the_enum() {
        for (at, (known, ..)) in FILES.iter().enumerate() {
            assert_eq!(*known as usize, at);
        }
    }

    #[test]
    fn images_do_not_overlap() {
        for seed in 0..20 {
            let mut layout = Layout::new(&mut Random::new(seed));
            let mut images = layout.known_images();
            images.push(layout.new_image("a.dll".to_owned(), false, 9));
            images.sort_by_key(|image| image.base);
            for pair in images.windows(2) {
                assert!(pair[0].base.0 + u64::from(pair[0].size) <= pair[1].base.0, "{pair:?}");
            }
            let low = &images[0];
            assert!(low.base.0 < 1 << 31 && images.iter().any(|image| image.base.0 >> 63 == 1));
        }
    }
}
