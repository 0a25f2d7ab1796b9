//! Brings the programs into the kernel: makes their maps, writes into them what they have to be told of the
//! kernel that runs (`bpf/fields.h`), loads them and puts them on their tracepoints.
//!
//! aya's own loader makes values of all the kernel's types first, which takes longer than all else that is
//! done for a task. So this reads the object with aya's parser, and looks up what the programs need.

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

/// What the programs want to be told: the same file that they are compiled with.
const FIELDS: &str = include_str!("../../../bpf/fields.h");

/// The kernel's types. It lets them be mapped since 6.16, as the programs need.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// What stands where a line of `fields.h` is to be written, with the line's number (`MARK` in `bpf/kernel.h`).
const MARK: i32 = 0x5c09_05f1;

/// The instruction that loads a constant of 64 bits. It takes the place of two.
const LOAD_CONSTANT: u8 = 0x18;

/// Programs that run for as long as this is there.
pub(super) struct Loaded {
    _links: Vec<OwnedFd>,
    maps: HashMap<String, MapData>,
}

impl Loaded {
    /// One of the maps, which is no more in here then.
    pub(super) fn map(&mut self, name: &str) -> io::Result<MapData> {
        self.maps.remove(name).ok_or_else(|| no("map", name))
    }
}

/// Loads an object. Each of its programs that is named runs at its tracepoint.
///
/// # Errors
/// Why not: the kernel's types lack a field, or it refuses a program.
pub(super) fn load(
    object: &[u8],
    programs: &[(&str, &str)],
    settings: &[(&str, u64)],
) -> io::Result<Loaded> {
    let mut object = Object::parse(object).map_err(with_causes)?;
    let lines = lines(FIELDS);
    let numbers = numbers(&lines, settings)?;
    for function in object.functions.values_mut() {
        tell(&mut function.instructions, &lines, &numbers)?;
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
        let program = object.programs.get(*name).ok_or_else(|| no("program", name))?;
        let function =
            object.functions.get(&program.function_key()).ok_or_else(|| no("program", name))?;
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

/// What a line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'a> {
    /// Where the members lead to in the structure.
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

/// What to write for each line; nothing where the kernel has no such field, which matters if a program asks.
fn numbers(lines: &[Line<'_>], settings: &[(&str, u64)]) -> io::Result<Vec<Option<u64>>> {
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
        .ok_or_else(|| io::Error::other(format!("{KERNEL_TYPES} is not understood")))?;
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

/// Writes the numbers where the marks are.
fn tell(
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
            other => io::Error::other(format!("the programs ask for {other:?}")),
        })?;
        instructions[at - 1].imm = number as i32;
        instructions[at].imm = (number >> 32) as i32;
    }
    Ok(())
}

fn no(what: &str, name: &str) -> io::Error {
    io::Error::other(format!("the object has no {what} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_list_is_understood() {
        let asked = FIELDS.lines().filter(|line| line.contains('(') && !line.starts_with("//"));
        let lines = lines(FIELDS);
        assert_eq!(lines.len(), asked.count());
        assert_eq!(lines[0], Line::Field { structure: "task_struct", members: "tgid" });
        assert!(lines.contains(&Line::Bytes("percpu_counter")));
        assert!(lines.contains(&Line::Setting("processors")));
    }

    #[test]
    fn numbers_are_written_where_the_marks_are_and_nowhere_else() {
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
        tell(&mut program, &lines, &[Some(7 << 32 | 9), None]).expect("all is known");
        assert_eq!([0, 1, 2, 3].map(|at| program[at].imm), [9, 7, 0, 5]);
        let why = tell(&mut constant(1, MARK), &lines, &[Some(1), None]).unwrap_err();
        assert_eq!(why.to_string(), "this kernel has no b.c");
    }
}
