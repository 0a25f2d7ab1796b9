//! Folded stacks: a line for each callpath with its own time in ns, for flame graphs.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use crate::analysis::profile::{Profile, SeenBy};
use crate::error::Error;

/// Writes the callpaths of a profile as folded stacks: `read;list 1234`. The time is that of the path without the paths
/// below it. Returns the number of bytes.
///
/// # Errors
/// `sink` takes no more bytes.
pub fn folded(profile: &Profile, sink: &mut dyn Write) -> Result<u64, Error> {
    write(profile, sink).map_err(Error::io(Path::new("the export"), "cannot write"))
}

fn write(profile: &Profile, sink: &mut dyn Write) -> io::Result<u64> {
    let paths = profile.paths.iter().filter(|path| path.seen_by != SeenBy::Local);
    let mut below: HashMap<&[String], u128> = HashMap::new();
    for path in paths.clone() {
        if let Some((_, above)) = path.names.split_last().filter(|(_, above)| !above.is_empty()) {
            *below.entry(above).or_default() += path.end_to_end.sum();
        }
    }
    let mut bytes = 0;
    for path in paths {
        // Calls at one time may last longer together than the call around them.
        let own = below.get(path.names.as_slice()).copied().unwrap_or(0);
        let own = path.end_to_end.sum().saturating_sub(own);
        let names: Vec<String> = path.names.iter().map(|name| clean(name)).collect();
        let line = format!("{} {own}\n", names.join(";"));
        sink.write_all(line.as_bytes())?;
        bytes += line.len() as u64;
    }
    Ok(bytes)
}

/// A name without the characters that the format has for itself.
fn clean(name: &str) -> String {
    name.replace(';', ",").replace(['\n', '\r'], " ")
}
