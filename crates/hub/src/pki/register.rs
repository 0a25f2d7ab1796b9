//! The register of a site: which nodes have certificates, and which tokens are valid. One small file for each, so that
//! verbs and a running hub can change it at one time.
//!
//! ```text
//! nodes/FINGERPRINT.json    of the name of a node: its public key and when it was certified
//! tokens/FINGERPRINT.json   of a token, which itself is kept nowhere
//! ```

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use skopos_access::{Caller, Invitation, Role, User};

/// The longest file of the register.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The longest token that is looked up.
const MAX_TOKEN_BYTES: usize = 256;

/// Bytes of the random part of a token.
const SECRET_BYTES: usize = 24;

/// The register in the folder of a hub's identity.
#[derive(Clone, Debug)]
pub struct Register {
    folder: PathBuf,
}

/// A node with a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certified {
    /// Name of the node.
    pub node: String,
    /// Its public key.
    pub key: Vec<u8>,
    /// The key before, with which it asks again if the last certificate did not arrive.
    #[serde(default)]
    pub before: Vec<u8>,
    /// Names and addresses at which others reach it.
    pub hosts: Vec<String>,
    /// Time of its last certificate, in seconds of UNIX time.
    pub issued_at: u64,
}

/// The permission that a token gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum Grant {
    /// Join the site.
    Join {
        /// The only node, which may have a certificate; `None` for any node that has none.
        node: Option<String>,
        /// Names and addresses of a hub: the node joins as one. Empty for a node.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hub_at: Vec<String>,
    },
    /// Ask as this user.
    User {
        /// Name of the user.
        user: String,
        /// Name of the role.
        role: String,
        /// Projects that the user leads.
        leads: BTreeSet<String>,
    },
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Its permission.
    pub grant: Grant,
    /// End of its life, in seconds of UNIX time.
    pub expires_at: u64,
}

impl Token {
    /// Returns the caller who shows the token.
    fn caller(self) -> Option<Caller> {
        Some(match self.grant {
            Grant::Join { node, hub_at } => Caller::Invited(Invitation { node, hub_at }),
            Grant::User { user, role, leads } => {
                Caller::User(User { name: user, role: Role::of_name(&role)?, leads })
            }
        })
    }
}

impl Register {
    /// Returns the register in the folder of an identity.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf() }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes a token, and returns its secret, which is shown once.
    ///
    /// # Errors
    /// The folder cannot be written, or the system has no random numbers.
    pub fn grant(&self, grant: Grant, life: Duration) -> io::Result<String> {
        let mut secret = [0; SECRET_BYTES];
        rustix::rand::getrandom(&mut secret[..], rustix::rand::GetRandomFlags::empty())?;
        let secret = hex(&secret);
        let token = Token { grant, expires_at: now().saturating_add(life.as_secs()) };
        self.write(&self.path("tokens", &secret), &token, true)?;
        Ok(secret)
    }

    /// Returns the caller who shows this secret; `None` if it is no token, or an expired one.
    pub fn caller_of(&self, secret: &str) -> Option<Caller> {
        if secret.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let token: Token = read(&self.path("tokens", secret)).ok()?;
        (now() < token.expires_at).then(|| token.caller())?
    }

    /// Returns all tokens that are valid, and removes expired ones.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn tokens(&self) -> io::Result<Vec<Token>> {
        let mut all = self.all("tokens")?;
        all.retain(|(path, token): &(PathBuf, Token)| {
            let is_valid = now() < token.expires_at;
            if !is_valid {
                let _ = fs::remove_file(path);
            }
            is_valid
        });
        Ok(all.into_iter().map(|(_, token)| token).collect())
    }

    /// Keeps other programs from changing the register until the file is dropped.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn lock(&self) -> io::Result<File> {
        let file = File::open(&self.folder)?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(file)
    }

    /// Ends the tokens with permissions that `is_meant` selects, and returns their number.
    ///
    /// # Errors
    /// The folder cannot be changed.
    pub fn revoke(&self, is_meant: impl Fn(&Grant) -> bool) -> io::Result<usize> {
        let all: Vec<(PathBuf, Token)> = self.all("tokens")?;
        let meant: Vec<_> = all.into_iter().filter(|(_, token)| is_meant(&token.grant)).collect();
        let mut failed = None;
        for (path, _) in &meant {
            match fs::remove_file(path) {
                // It ended, or another program ended it.
                Err(e) if e.kind() != io::ErrorKind::NotFound => failed = Some(e),
                _ => {}
            }
        }
        sync(&self.folder.join("tokens"))?;
        failed.map_or(Ok(meant.len()), Err)
    }

    /// Returns the node of this name.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn node(&self, name: &str) -> io::Result<Option<Certified>> {
        match read(&self.path("nodes", name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// Notes a node. If `is_new`, another node must not have the name.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if another one has it; the file cannot be written.
    pub fn note(&self, node: &Certified, is_new: bool) -> io::Result<()> {
        self.write(&self.path("nodes", &node.node), node, is_new)
    }

    /// Returns all nodes.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn nodes(&self) -> io::Result<Vec<Certified>> {
        let mut nodes: Vec<Certified> =
            self.all("nodes")?.into_iter().map(|(_, node)| node).collect();
        nodes.sort_by(|a, b| a.node.cmp(&b.node));
        Ok(nodes)
    }

    /// Forgets a node: its certificate is not renewed, and another one may have the name. Returns false if the node is
    /// unknown.
    ///
    /// # Errors
    /// The folder cannot be changed.
    pub fn forget(&self, name: &str) -> io::Result<bool> {
        let _locked = self.lock()?;
        match fs::remove_file(self.path("nodes", name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => {
                removed?;
                sync(&self.folder.join("nodes"))?;
                Ok(true)
            }
        }
    }

    /// Returns the file for a text, which is no part of the path.
    fn path(&self, kind: &str, text: &str) -> PathBuf {
        let fingerprint = Sha256::digest(text.as_bytes());
        self.folder.join(kind).join(hex(&fingerprint) + ".json")
    }

    fn write(&self, path: &Path, value: &impl Serialize, is_new: bool) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let text = serde_json::to_vec(value)?;
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        // A name of its own, so that two threads do not write into one file.
        let new = path.with_extension(format!("{}-{number}.new", std::process::id()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let written = file.write_all(&text).and_then(|()| file.sync_all());
        // A link fails if the name is taken, a renaming replaces it; each is one step.
        let written = written.and_then(|()| match is_new {
            true => fs::hard_link(&new, path),
            false => fs::rename(&new, path),
        });
        let _ = fs::remove_file(&new);
        written?;
        path.parent().map_or(Ok(()), sync)
    }

    fn all<T: DeserializeOwned>(&self, kind: &str) -> io::Result<Vec<(PathBuf, T)>> {
        let entries = match fs::read_dir(self.folder.join(kind)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "json")
                && let Ok(value) = read(&path)
            {
                all.push((path, value));
            }
        }
        Ok(all)
    }
}

/// Makes the names in a folder last: a token that was ended must not come back with a loss of power.
fn sync(folder: &Path) -> io::Result<()> {
    match File::open(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.sync_all(),
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    if fs::metadata(path)?.len() > MAX_FILE_BYTES {
        return Err(io::Error::other("the file is too long"));
    }
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Returns the seconds of UNIX time.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads hexadecimal digits; `None` if the text has others.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_its_caller_until_it_ends() {
        let dir = tempfile::tempdir().expect("a folder");
        let register = Register::new(dir.path());
        let hub_at = vec!["hub2".to_owned()];
        let join = Grant::Join { node: Some("n01".to_owned()), hub_at: hub_at.clone() };
        let joining = register.grant(join, Duration::from_secs(60)).expect("granted");
        let user = |role: &str| Grant::User {
            user: "ann".to_owned(),
            role: role.to_owned(),
            leads: BTreeSet::from(["astro".to_owned()]),
        };
        let asking = register.grant(user("support"), Duration::from_secs(60)).expect("granted");
        let ended = register.grant(user("admin"), Duration::ZERO).expect("granted");
        let unknown = register.grant(user("king"), Duration::from_secs(60)).expect("granted");
        let node = Some("n01".to_owned());
        assert_eq!(
            register.caller_of(&joining),
            Some(Caller::Invited(Invitation { node, hub_at }))
        );
        let Some(Caller::User(user)) = register.caller_of(&asking) else { panic!("a user") };
        assert_eq!((user.name.as_str(), user.role), ("ann", Role::Support));
        assert!(user.leads.contains("astro"));
        for refused in [&ended[..], &unknown, "", "../../etc/passwd", &"x".repeat(1000)] {
            assert_eq!(register.caller_of(refused), None, "{refused}");
        }
        assert_eq!(register.tokens().expect("readable").len(), 3, "the ended one is removed");
        let of_ann = |grant: &Grant| matches!(grant, Grant::User { user, .. } if user == "ann");
        assert_eq!(register.revoke(of_ann).expect("removed"), 2);
        assert_eq!(register.caller_of(&asking), None);
        let name = fs::read_dir(dir.path().join("tokens")).expect("a folder");
        let texts = name.map(|entry| fs::read_to_string(entry.expect("a file").path()));
        assert!(texts.into_iter().all(|text| !text.expect("text").contains(&joining)));
    }

    #[test]
    fn the_first_node_keeps_its_name_until_it_is_forgotten() {
        let dir = tempfile::tempdir().expect("a folder");
        let register = Register::new(dir.path());
        let node = |key: u8| Certified {
            before: Vec::new(),
            node: "../n01".to_owned(),
            key: vec![key; 32],
            hosts: Vec::new(),
            issued_at: 1,
        };
        register.note(&node(1), true).expect("noted");
        let taken = register.note(&node(2), true).expect_err("taken");
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(register.node("../n01").expect("readable"), Some(node(1)));
        register.note(&node(2), false).expect("replaced");
        assert_eq!(register.nodes().expect("readable"), [node(2)]);
        assert!(register.forget("../n01").expect("removed"));
        assert!(!register.forget("../n01").expect("removed"));
        register.note(&node(3), true).expect("noted");
    }
}
