//! Loads the programs into the kernel: creates their maps, patches in the values that depend on the
//! running kernel (`bpf/fields.h`), loads them and attaches them to their tracepoints.
//!
//! aya's own loader first makes values of all types of the kernel, which takes longer than
//! everything else that a run needs. So this module uses only aya's parser of objects, and looks up
//! the few needed values itself.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use aya::maps::MapData;
use aya_obj::Object;
use aya_obj::generated::bpf_insn;

use super::causes::with_causes;
use super::types::Types;
use crate::sys::bpf::{self, MappedFile};

/// The list of values that the programs need: the file that they are compiled with.
const FIELDS: &str = include_str!("../../../bpf/fields.h");

/// The kernel's types. Mapping this file needs Linux 6.16, as the programs do.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The placeholder for the value of a line of `fields.h`, next to the line's number (`MARK` in
/// `bpf/kernel.h`).
const MARK: i32 = 0x5c09_05f1;

/// The opcode that loads a 64-bit constant. It takes two instructions.
const LOAD_CONSTANT: u8 = 0x18;

/// Loaded programs, which run until this value is dropped.
pub(super) struct Loaded {
    _links: Vec<OwnedFd>,
    maps: HashMap<String, MapData>,
}

impl Loaded {
    /// Takes one of the maps.
    pub(super) fn map(&mut self, name: &str) -> io::Result<MapData> {
        self.maps.remove(name).ok_or_else(|| missing("map", name))
    }
}

/// Loads an object and attaches each of the named programs to its tracepoint.
///
/// # Errors
/// The kernel's types lack a field, or the kernel refuses a program.
pub(super) fn load(
    object: &[u8],
    programs: &[(&str, &str)],
    settings: &[(&str, u64)],
) -> io::Result<Loaded> {
    let mut object = Object::parse(object).map_err(with_causes)?;
    let lines = lines(FIELDS);
    let numbers = resolve(&lines, settings)?;
    for function in object.functions.values_mut() {
        patch(&mut function.instructions, &lines, &numbers)?;
    }
    let mut maps = HashMap::new();
    let mut places = Vec::new();
    for (name, map) in object.maps.drain() {
        let made = MapData::create(map.clone(), &name, None).map_err(with_causes)?;
        places.push((name.clone(), made.fd().as_fd().as_raw_fd(), map));
        maps.insert(name, made);
    }
    let code: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    let places = places.iter().map(|(name, descriptor, map)| (name.as_str(), *descriptor, map));
    object.relocate_maps(places, &code).map_err(with_causes)?;
    object.relocate_calls(&code).map_err(with_causes)?;
    let mut links = Vec::new();
    for (name, tracepoint) in programs {
        let program = object.programs.get(*name).ok_or_else(|| missing("program", name))?;
        let function = object
            .functions
            .get(&program.function_key())
            .ok_or_else(|| missing("program", name))?;
        let loaded =
            bpf::load(name, &function.instructions, &program.license).map_err(|(e, why)| {
                io::Error::new(
                    e.kind(),
                    format!("the kernel refused the program {name}: {e}: {why}"),
                )
            })?;
        let tracepoint = CString::new(*tracepoint)?;
        links.push(bpf::attach(loaded.as_fd(), &tracepoint).map_err(|e| {
            io::Error::new(e.kind(), format!("tracepoint {}: {e}", tracepoint.to_string_lossy()))
        })?);
    }
    Ok(Loaded { _links: links, maps })
}

/// A line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'a> {
    /// The offset of a member in a structure.
    Field {
        structure: &'a str,
        members: &'a str,
    },
    Bytes(&'a str),
    Setting(&'a str),
}

fn lines(text: &str) -> Vec<Line<'_>> {
    text.lines().filter_map(line_of).collect()
}

fn line_of(text: &str) -> Option<Line<'_>> {
    let (kind, rest) = text.split_once('(')?;
    let inner = rest.strip_suffix(')')?;
    let last = || inner.split_once(", ").map(|(_, last)| last);
    match kind {
        "FIELD" => {
            let (structure, members) = last()?.split_once('.')?;
            Some(Line::Field { structure, members })
        }
        "BYTES" => last().map(Line::Bytes),
        "SETTING" => Some(Line::Setting(inner)),
        _ => None,
    }
}

/// Returns the value of each line; `None` if the kernel lacks the field, which is an error only if
/// a program uses it.
fn resolve(lines: &[Line<'_>], settings: &[(&str, u64)]) -> io::Result<Vec<Option<u64>>> {
    let mapped = MappedFile::open(Path::new(KERNEL_TYPES)).map_err(|e| {
        io::Error::new(e.kind(), format!("the kernel's types, {KERNEL_TYPES}: {e}"))
    })?;
    let mut structures: Vec<&str> = Vec::new();
    for line in lines {
        if let Line::Field { structure, .. } | Line::Bytes(structure) = line
            && !structures.contains(structure)
        {
            structures.push(structure);
        }
    }
    let types = Types::read(&mapped, &structures)
        .ok_or_else(|| io::Error::other(format!("{KERNEL_TYPES} has an unknown format")))?;
    let which = |name: &str| structures.iter().position(|s| *s == name);
    let number = |line: &Line<'_>| match line {
        Line::Field { structure, members } => {
            types.offset(which(structure)?, members).map(u64::from)
        }
        Line::Bytes(structure) => types.size(which(structure)?).map(u64::from),
        Line::Setting(name) => settings.iter().find(|(n, _)| n == name).map(|(_, value)| *value),
    };
    Ok(lines.iter().map(number).collect())
}

/// Writes the values in place of the marks.
fn patch(
    instructions: &mut [bpf_insn],
    lines: &[Line<'_>],
    numbers: &[Option<u64>],
) -> io::Result<()> {
    for at in 1..instructions.len() {
        let (first, second) = (instructions[at - 1], instructions[at]);
        if first.code != LOAD_CONSTANT || first.src_reg() != 0 || second.imm != MARK {
            continue;
        }
        let line = first.imm as usize;
        let number = numbers.get(line).copied().flatten().ok_or_else(|| match lines.get(line) {
            Some(Line::Field { structure, members }) => {
                io::Error::other(format!("this kernel has no {structure}.{members}"))
            }
            other => io::Error::other(format!("the programs use an unknown value {other:?}")),
        })?;
        instructions[at - 1].imm = number as i32;
        instructions[at].imm = (number >> 32) as i32;
    }
    Ok(())
}

fn missing(what: &str, name: &str) -> io::Error {
    io::Error::other(format!("the object has no {what} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_list_is_parsed() {
        let expected = FIELDS.lines().filter(|line| line.contains('(') && !line.starts_with("//"));
        let lines = lines(FIELDS);
        assert_eq!(lines.len(), expected.count());
        assert_eq!(lines[0], Line::Field { structure: "task_struct", members: "tgid" });
        assert!(lines.contains(&Line::Bytes("percpu_counter")));
        assert!(lines.contains(&Line::Setting("processors")));
    }

    #[test]
    fn values_are_written_in_place_of_marks_only() {
        let constant = |low, high| {
            [(LOAD_CONSTANT, low), (0, high)].map(|(code, imm)| bpf_insn {
                code,
                _bitfield_align_1: [],
                _bitfield_1: bpf_insn::new_bitfield_1(0, 0),
                off: 0,
                imm,
            })
        };
        let lines = [Line::Bytes("a"), Line::Field { structure: "b", members: "c" }];
        let mut program = [constant(0, MARK), constant(0, 5)].concat();
        patch(&mut program, &lines, &[Some(7 << 32 | 9), None]).expect("all is known");
        assert_eq!([0, 1, 2, 3].map(|at| program[at].imm), [9, 7, 0, 5]);
        let why = patch(&mut constant(1, MARK), &lines, &[Some(1), None]).unwrap_err();
        assert_eq!(why.to_string(), "this kernel has no b.c");
    }
}
