//! Images: the files that the kernel and the processes have mapped.
//!
//! Sizes are those of Windows 10, version 2004. `ntdll.dll`, `win32u.dll` and `kernel32.dll` also have the identity of
//! build 19041.508, so that a table of that build's system call stubs fits. All other identities are invented: no
//! symbol file of a real image may put wrong names on invented addresses.

use stackhound_types::Address;

use crate::random::{Random, hash};

/// Number of an image in a [`Truth`](crate::Truth) and in the machine.
pub(crate) type ImageIndex = u32;

/// A file that is mapped as an image. Its base is the same wherever it is mapped, as on a machine that runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// The NT path, as the recording has it.
    pub path: String,
    /// Where it is mapped.
    pub base: Address,
    /// Bytes.
    pub size: u32,
    /// Checksum in the image's header.
    pub checksum: u32,
    /// Link time in the image's header.
    pub time_date_stamp: u32,
}

impl Image {
    /// Whether an address lies inside.
    pub fn contains(&self, address: Address) -> bool {
        address.0.checked_sub(self.base.0).is_some_and(|offset| offset < self.size.into())
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('\\').next().unwrap_or_default()
    }
}

/// Images that every scenario has, in the order of [`FILES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Known {
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

/// Which part of the address space an image is mapped in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Kernel,
    Session,
    Library,
    Program,
    /// Below 4 GiB.
    Low,
}

/// Each known image, where it is mapped, and its size in pages.
#[rustfmt::skip]
pub(crate) const FILES: [(Known, Place, &str, u32); 53] = [
    (Known::Ntoskrnl, Place::Kernel, r"\SystemRoot\system32\ntoskrnl.exe", 0x1046),
    (Known::Hal, Place::Kernel, r"\SystemRoot\system32\hal.dll", 0x6),
    (Known::Fltmgr, Place::Kernel, r"\SystemRoot\System32\drivers\FLTMGR.SYS", 0x6f),
    (Known::Ntfs, Place::Kernel, r"\SystemRoot\System32\Drivers\Ntfs.sys", 0x2d9),
    (Known::Storport, Place::Kernel, r"\SystemRoot\System32\drivers\storport.sys", 0xb0),
    (Known::Disk, Place::Kernel, r"\SystemRoot\System32\drivers\disk.sys", 0x1c),
    (Known::Classpnp, Place::Kernel, r"\SystemRoot\System32\drivers\CLASSPNP.SYS", 0x6c),
    (Known::Partmgr, Place::Kernel, r"\SystemRoot\System32\drivers\partmgr.sys", 0x31),
    (Known::Volmgr, Place::Kernel, r"\SystemRoot\System32\drivers\volmgr.sys", 0x19),
    (Known::Ndis, Place::Kernel, r"\SystemRoot\System32\drivers\NDIS.SYS", 0x16f),
    (Known::Netio, Place::Kernel, r"\SystemRoot\System32\drivers\NETIO.SYS", 0x98),
    (Known::Tcpip, Place::Kernel, r"\SystemRoot\System32\drivers\tcpip.sys", 0x2ec),
    (Known::Afd, Place::Kernel, r"\SystemRoot\system32\drivers\afd.sys", 0xa3),
    (Known::Intelppm, Place::Kernel, r"\SystemRoot\System32\drivers\intelppm.sys", 0x40),
    (Known::Win32k, Place::Session, r"\SystemRoot\System32\win32k.sys", 0x9a),
    (Known::Win32kbase, Place::Session, r"\SystemRoot\System32\win32kbase.sys", 0x2e0),
    (Known::Win32kfull, Place::Session, r"\SystemRoot\System32\win32kfull.sys", 0x3b5),
    (Known::Ntdll, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\ntdll.dll", 0x1f5),
    (Known::Kernel32, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\kernel32.dll", 0xbd),
    (Known::Kernelbase, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\KernelBase.dll", 0x2c7),
    (Known::Win32u, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\win32u.dll", 0x22),
    (Known::User32, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\user32.dll", 0x1a0),
    (Known::Gdi32, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\gdi32.dll", 0x2a),
    (Known::Msvcrt, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\msvcrt.dll", 0x9e),
    (Known::Ucrtbase, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\ucrtbase.dll", 0x100),
    (Known::Rpcrt4, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\rpcrt4.dll", 0x123),
    (Known::Combase, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\combase.dll", 0x353),
    (Known::Sechost, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\sechost.dll", 0x9b),
    (Known::Advapi32, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\advapi32.dll", 0xaa),
    (Known::Ws2, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\ws2_32.dll", 0x6b),
    (Known::Mswsock, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\mswsock.dll", 0x6a),
    (Known::Shell32, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\shell32.dll", 0x740),
    (Known::Bcrypt, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\bcrypt.dll", 0x27),
    (Known::Csrsrv, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\csrsrv.dll", 0x18),
    (Known::Winsrv, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\winsrv.dll", 0x15),
    (Known::Wow64, Place::Library, r"\Device\HarddiskVolume3\Windows\System32\wow64.dll", 0x59),
    (Known::Wow64Cpu, Place::Low, r"\Device\HarddiskVolume3\Windows\System32\wow64cpu.dll", 0xa),
    (Known::Ntdll32, Place::Low, r"\Device\HarddiskVolume3\Windows\SysWOW64\ntdll.dll", 0x1a3),
    (Known::Kernel32x32, Place::Low, r"\Device\HarddiskVolume3\Windows\SysWOW64\kernel32.dll", 0xf0),
    (Known::Kernelbase32, Place::Low, r"\Device\HarddiskVolume3\Windows\SysWOW64\KernelBase.dll", 0x213),
    (Known::Ucrtbase32, Place::Low, r"\Device\HarddiskVolume3\Windows\SysWOW64\ucrtbase.dll", 0x120),
    (Known::Smss, Place::Program, r"\Device\HarddiskVolume3\Windows\System32\smss.exe", 0x28),
    (Known::Csrss, Place::Program, r"\Device\HarddiskVolume3\Windows\System32\csrss.exe", 0x7),
    (Known::Services, Place::Program, r"\Device\HarddiskVolume3\Windows\System32\services.exe", 0xae),
    (Known::Svchost, Place::Program, r"\Device\HarddiskVolume3\Windows\System32\svchost.exe", 0x11),
    (Known::Explorer, Place::Program, r"\Device\HarddiskVolume3\Windows\explorer.exe", 0x45a),
    (Known::Office, Place::Program, r"\Device\HarddiskVolume3\Program Files\Contoso Office\writer.exe", 0x1c4),
    (Known::OfficeCore, Place::Library, r"\Device\HarddiskVolume3\Program Files\Contoso Office\core.dll", 0xe80),
    (Known::Browser, Place::Program, r"\Device\HarddiskVolume3\Program Files\Contoso Browser\browser.exe", 0x2d0),
    (Known::BrowserCore, Place::Library, r"\Device\HarddiskVolume3\Program Files\Contoso Browser\engine.dll", 0x8c00),
    (Known::Sync32, Place::Low, r"\Device\HarddiskVolume3\Program Files (x86)\Contoso Sync\sync.exe", 0x86),
    (Known::Task, Place::Program, r"\Device\HarddiskVolume3\Windows\System32\backgroundTaskHost.exe", 0x9),
    (Known::Updater, Place::Program, r"\Device\HarddiskVolume3\ProgramData\Contoso\updater.exe", 0x3a),
];

/// Link time and checksum of the images that have a genuine identity.
fn genuine(known: Known) -> Option<(u32, u32)> {
    match known {
        Known::Ntdll => Some((0x70e6_9bad, 2_063_024)),
        Known::Win32u => Some((0xde34_ae5c, 167_194)),
        Known::Kernel32 => Some((0x7331_7569, 0xb_cf26)),
        _ => None,
    }
}

const PAGE: u32 = 0x1000;
/// Images start at multiples of this.
const GRANULARITY: u64 = 0x1_0000;

/// Gives images their places.
#[derive(Debug)]
pub(crate) struct Layout {
    kernel: u64,
    session: u64,
    library: u64,
    program: u64,
    low: u64,
}

impl Layout {
    /// The layout of one start of the machine.
    pub fn new(random: &mut Random) -> Layout {
        Layout {
            kernel: 0xffff_f800_0000_0000 + random.below(0x4000) * 0x20_0000,
            session: 0xffff_d300_0000_0000 + random.below(0x1000) * 0x10_0000,
            library: 0x7ff8_0000_0000 + random.below(0x1000) * 0x10_0000,
            program: 0x7ff6_0000_0000 + random.below(0x400) * 0x10_0000,
            low: 0x7000_0000 + random.below(0x100) * 0x1_0000,
        }
    }

    fn take(&mut self, place: Place, size: u32) -> Address {
        let next = match place {
            Place::Kernel => &mut self.kernel,
            Place::Session => &mut self.session,
            Place::Library => &mut self.library,
            Place::Program => &mut self.program,
            Place::Low => &mut self.low,
        };
        let base = *next;
        *next = (base + u64::from(size)).next_multiple_of(GRANULARITY) + GRANULARITY;
        Address(base)
    }

    /// The images that every scenario has, in the order of [`Known`].
    pub fn known_images(&mut self) -> Vec<Image> {
        let image = |(known, place, path, pages): (Known, Place, &str, u32)| {
            let invented = hash(known as u64);
            let (time_date_stamp, checksum) =
                genuine(known).unwrap_or((invented as u32, (invented >> 40) as u32));
            let size = pages * PAGE;
            Image { path: path.to_owned(), base: self.take(place, size), size, checksum, time_date_stamp }
        };
        FILES.map(image).to_vec()
    }

    /// A library or program that no other scenario has.
    pub fn new_image(&mut self, path: String, is_program: bool, pages: u32) -> Image {
        let place = if is_program { Place::Program } else { Place::Library };
        let base = self.take(place, pages * PAGE);
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

impl Known {
    pub fn index(self) -> ImageIndex {
        self as ImageIndex
    }
}

/// How many of the known images are the kernel's.
pub(crate) const KERNEL_IMAGES: usize = Known::Win32kfull as usize + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_names() {
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
