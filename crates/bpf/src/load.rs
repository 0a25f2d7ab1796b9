//! Loads an object: creates the maps of its programs, patches in the values that depend on the running kernel,
//! loads the programs and attaches them to their tracepoints and interfaces.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use aya::maps::MapData;
use aya_obj::Object;
use aya_obj::generated::bpf_insn;

use crate::causes::with_causes;
use crate::sys::{self, MappedFile};
use crate::types::Types;

/// The kernel's types. Mapping this file needs Linux 6.16, as the programs do.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The placeholder for the value of a line of the list of fields, next to the line's number. The programs are
/// compiled with the same number as `MARK`.
const MARK: i32 = 0x5c09_05f1;

/// The opcode that loads a 64-bit constant. It takes two instructions.
const LOAD_CONSTANT: u8 = 0x18;

/// A program of an object.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The name of its function.
    pub name: &'a str,
    /// The place in the kernel that calls it.
    pub at: At<'a>,
}

/// A place in the kernel that calls programs.
#[derive(Clone, Copy, Debug)]
pub enum At<'a> {
    /// A tracepoint, with the kernel's own values as arguments, by name.
    Raw(&'a str),
    /// A tracepoint, with a record whose fields the `format` file describes, by the number in the `id` file
    /// beside it.
    Event(u64),
    /// An interface, with each packet in one direction, by the interface's number in the network namespace of
    /// this thread. Programs run in the order in which they were attached. Needs Linux 6.6.
    Interface {
        /// Number of the interface.
        index: u32,
        /// The direction of its packets.
        direction: Direction,
    },
}

/// A direction of packets at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Packets that arrive, before the network stack gets them.
    Ingress,
    /// Packets that leave, before the queue of the interface gets them.
    Egress,
}

/// Loaded programs, which run until this value is dropped.
#[derive(Debug)]
pub struct Loaded {
    _links: Vec<OwnedFd>,
    maps: HashMap<String, MapData>,
}

impl Loaded {
    /// Takes one of the maps.
    ///
    /// # Errors
    /// The object has no map of this name, or it was taken before.
    pub fn map(&mut self, name: &str) -> io::Result<MapData> {
        self.maps.remove(name).ok_or_else(|| missing("map", name))
    }
}

/// Loads an object and attaches the given ones of its programs. `fields` is the list of values that the programs
/// need, the text of the header that they are compiled with; `settings` has those that are not of the kernel.
///
/// # Errors
/// The kernel's types lack a field, or the kernel refuses a program.
pub fn load(
    object: &[u8],
    programs: &[Program<'_>],
    fields: &str,
    settings: &[(&str, u64)],
) -> io::Result<Loaded> {
    let mut object = Object::parse(object).map_err(with_causes)?;
    let lines = lines(fields);
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
    let links = programs.iter().map(|program| attach(&object, program));
    Ok(Loaded { _links: links.collect::<io::Result<Vec<_>>>()?, maps })
}

/// Loads one program and attaches it. It runs until the returned descriptor is closed.
fn attach(object: &Object, Program { name, at }: &Program<'_>) -> io::Result<OwnedFd> {
    let program = object.programs.get(*name).ok_or_else(|| missing("program", name))?;
    let function =
        object.functions.get(&program.function_key()).ok_or_else(|| missing("program", name))?;
    let kind = match at {
        At::Raw(_) => sys::Kind::RawTracepoint,
        At::Event(_) => sys::Kind::Tracepoint,
        At::Interface { .. } => sys::Kind::Classifier,
    };
    let loaded = sys::load(name, kind, &function.instructions, &program.license);
    let loaded = loaded.map_err(|(e, why)| {
        io::Error::new(e.kind(), format!("the kernel refused the program {name}: {e}: {why}"))
    })?;
    let failed = |e: io::Error, what: String| io::Error::new(e.kind(), format!("{what}: {e}"));
    match at {
        At::Raw(tracepoint) => sys::attach(loaded.as_fd(), &CString::new(*tracepoint)?)
            .map_err(|e| failed(e, format!("tracepoint {tracepoint}"))),
        At::Event(id) => sys::attach_event(loaded.as_fd(), *id)
            .map_err(|e| failed(e, format!("tracepoint {id}"))),
        At::Interface { index, direction } => {
            let ingress = *direction == Direction::Ingress;
            sys::attach_interface(loaded.as_fd(), *index, ingress)
                .map_err(|e| failed(e, format!("interface {index}")))
        }
    }
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
    if lines.is_empty() {
        return Ok(Vec::new());
    }
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
        let text = "// FIELD(none)\nFIELD(TGID, task_struct.tgid)\nBYTES(COUNTER, percpu_counter)\n\
                    SETTING(processors)\n#undef FIELD\n";
        let expected = [
            Line::Field { structure: "task_struct", members: "tgid" },
            Line::Bytes("percpu_counter"),
            Line::Setting("processors"),
        ];
        assert_eq!(lines(text), expected);
        assert!(resolve(&[], &[]).expect("nothing is read").is_empty());
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
