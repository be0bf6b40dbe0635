//! Where an address of this process lies in the file that it was loaded from.
//!
//! Owns: the layout of the program's own file, its build id, and the way from an address in memory to one in the
//! file and back, wherever the program was loaded. Never: looks up a name.
//!
//! An address in the file is what `addr2line` and [`symbols`](super::symbols) take. It is the same for every
//! process of one build, whether the program is static, dynamic or moved about by the kernel.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// More headers than any linker writes.
const HEADERS_MAX: usize = 64;
/// More notes than any linker writes.
const NOTES_MAX: usize = 64 << 10;

const LOADED: u32 = 1;
const NOTES: u32 = 4;
const BUILD_ID: u32 = 3;

/// The program's own file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Its name, as the mappings have it.
    path: String,
    /// Tells this build from every other; empty when the linker wrote none.
    pub build_id: String,
    segments: Vec<Segment>,
}

/// A part of the file that is in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    offset: u64,
    address: u64,
    bytes: u64,
}

impl Image {
    /// The image of this process; empty if it cannot be read.
    pub fn of_self() -> Self {
        let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let path = path.to_string_lossy().into_owned();
        let read = || {
            let file = File::open("/proc/self/exe").ok()?;
            let mut head = vec![0; 64];
            file.read_exact_at(&mut head, 0).ok()?;
            let at = |offset: u64, bytes: usize| {
                let mut part = vec![0; bytes];
                file.read_exact_at(&mut part, offset).ok()?;
                Some(part)
            };
            parse(&head, &at)
        };
        let (segments, build_id) = read().unwrap_or_default();
        Self {
            path,
            build_id,
            segments,
        }
    }

    /// The address at which the file itself places this byte of it.
    fn address(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|it| {
            let into = offset.checked_sub(it.offset)?;
            (into < it.bytes).then(|| it.address + into)
        })
    }

    /// The byte of the file that is at this address of the file.
    fn offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|it| {
            let into = address.checked_sub(it.address)?;
            (into < it.bytes).then(|| it.offset + into)
        })
    }
}

/// The loaded segments and the build id of a 64-bit little-endian ELF file.
fn parse(
    head: &[u8],
    at: &dyn Fn(u64, usize) -> Option<Vec<u8>>,
) -> Option<(Vec<Segment>, String)> {
    if head.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (size, count) = (
        usize::from(u16_at(head, 54)?),
        usize::from(u16_at(head, 56)?),
    );
    if size < 56 || count > HEADERS_MAX {
        return None;
    }
    let headers = at(u64_at(head, 32)?, size * count)?;
    let mut segments = Vec::new();
    let mut build_id = String::new();
    for header in headers.chunks_exact(size) {
        let segment = Segment {
            offset: u64_at(header, 8)?,
            address: u64_at(header, 16)?,
            bytes: u64_at(header, 32)?,
        };
        match u32_at(header, 0)? {
            LOADED => segments.push(segment),
            NOTES if build_id.is_empty() => {
                let bytes = usize::try_from(segment.bytes).unwrap_or(NOTES_MAX);
                let notes = at(segment.offset, bytes.min(NOTES_MAX))?;
                build_id = build_id_of(&notes).unwrap_or_default();
            }
            _ => {}
        }
    }
    Some((segments, build_id))
}

fn build_id_of(mut notes: &[u8]) -> Option<String> {
    loop {
        let (name, id) = (u32_at(notes, 0)? as usize, u32_at(notes, 4)? as usize);
        let kind = u32_at(notes, 8)?;
        let from = 12 + name.next_multiple_of(4);
        if kind == BUILD_ID && notes.get(12..12 + name)? == b"GNU\0" {
            let id = notes.get(from..from.checked_add(id)?)?;
            return Some(id.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = notes.get(from.checked_add(id.next_multiple_of(4))?..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Where executable code lies in memory.
#[derive(Clone, Debug, Default)]
pub struct Mappings(Vec<Mapping>);

#[derive(Clone, Debug)]
struct Mapping {
    range: std::ops::Range<usize>,
    /// The position in the file of the mapping's first byte.
    offset: u64,
    path: String,
}

impl Mappings {
    /// The mappings of this process.
    pub fn of_self() -> Self {
        let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&maps))
    }

    pub(super) fn parse(maps: &str) -> Self {
        let mappings = maps.lines().filter_map(|line| {
            // A name may hold blanks, and comes last.
            let mut fields = line.splitn(6, ' ');
            let (start, end) = fields.next()?.split_once('-')?;
            fields.next()?.contains('x').then_some(())?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some(Mapping {
                range: number(start)?..number(end)?,
                offset: number(fields.next()?)? as u64,
                path: fields.nth(2).unwrap_or_default().trim_start().to_owned(),
            })
        });
        Self(mappings.collect())
    }

    /// True when this address holds executable code.
    pub fn is_code(&self, address: usize) -> bool {
        self.find(address).is_some()
    }

    fn find(&self, address: usize) -> Option<&Mapping> {
        self.0.iter().find(|it| it.range.contains(&address))
    }

    /// The place of an address, for people and programs: `0x1f40` in the program itself, `libc.so.6+0x1f40` in
    /// another file, and `?0x7f0000001f40` where nothing is known.
    pub fn place(&self, image: &Image, address: usize) -> String {
        let Some(mapping) = self.find(address) else {
            return format!("?{address:#x}");
        };
        let offset = (address - mapping.range.start) as u64 + mapping.offset;
        let own = (mapping.path == image.path).then(|| image.address(offset));
        match own.flatten() {
            Some(address) => format!("{address:#x}"),
            None => {
                let name = mapping.path.rsplit('/').next().unwrap_or_default();
                format!("{}+{offset:#x}", name.replace(char::is_whitespace, "_"))
            }
        }
    }

    /// The address in this process of the code at an address of its own file.
    pub fn address(&self, image: &Image, address: u64) -> Option<usize> {
        let offset = image.offset(address)?;
        self.0.iter().find_map(|it| {
            let into = usize::try_from(offset.checked_sub(it.offset)?).ok()?;
            let address = it.range.start + into;
            (it.path == image.path && it.range.contains(&address)).then_some(address)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn somewhere() -> usize {
        somewhere as fn() -> usize as usize
    }

    #[test]
    fn an_address_of_this_process_is_found_in_its_file_and_back() {
        let (image, mappings) = (Image::of_self(), Mappings::of_self());
        assert!(image.build_id.len() >= 16, "{image:?}");
        let place = mappings.place(&image, somewhere());
        let number = u64::from_str_radix(place.strip_prefix("0x").unwrap(), 16).unwrap();
        assert_eq!(mappings.address(&image, number), Some(somewhere()));
        assert_eq!(mappings.place(&image, 1), "?0x1");
    }

    /// As `readelf -l` and `/proc/PID/maps` show them. The second segment has another address in memory than in
    /// the file.
    #[test]
    fn the_place_is_the_same_wherever_a_program_was_loaded() {
        let segment = |offset, address, bytes| Segment {
            offset,
            address,
            bytes,
        };
        let image = |base: u64| Image {
            path: "/opt/the program".to_owned(),
            build_id: String::new(),
            segments: vec![
                segment(0, base, 0x1000),
                segment(0x1000, base + 0x2000, 0x3000),
            ],
        };
        let moved = "5581aa000000-5581aa001000 r--p 00000000 08:01 42                         /opt/the program\n\
                     5581aa002000-5581aa005000 r-xp 00001000 08:01 42                         /opt/the program\n\
                     7f0000000000-7f0000002000 r-xp 00028000 08:01 43                         /lib/libc.so.6\n";
        let fixed =
            "402000-405000 r-xp 00001000 08:01 42                         /opt/the program\n";
        for (maps, base, loaded) in [(moved, 0, 0x5581_aa00_0000), (fixed, 0x40_0000, 0x40_0000)] {
            let (image, mappings) = (image(base), Mappings::parse(maps));
            let place = mappings.place(&image, loaded + 0x2345);
            assert_eq!(place, format!("{:#x}", base + 0x2345));
            assert_eq!(
                mappings.address(&image, base + 0x2345),
                Some(loaded + 0x2345)
            );
            assert_eq!(mappings.address(&image, base + 0x9999), None);
        }
        let mappings = Mappings::parse(moved);
        assert_eq!(
            mappings.place(&image(0), 0x7f00_0000_0010),
            "libc.so.6+0x28010"
        );
    }

    #[test]
    fn a_file_that_is_no_program_has_no_segments_and_nothing_breaks() {
        let at = |_: u64, bytes: usize| Some(vec![0xff; bytes]);
        for head in [&[][..], b"#!/bin/sh\n", &[0x7f; 64], b"\x7fELF\x02\x01"] {
            assert_eq!(parse(head, &at), None);
        }
        let mut head = b"\x7fELF\x02\x01".to_vec();
        head.resize(64, 0);
        (head[54], head[56]) = (56, 1);
        assert_eq!(parse(&head, &at), Some((vec![], String::new())));
        assert_eq!(parse(&head, &|_, _| None), None);
        assert_eq!(build_id_of(&[0xff; 40]), None);
        assert_eq!(build_id_of(&[]), None);
    }
}
