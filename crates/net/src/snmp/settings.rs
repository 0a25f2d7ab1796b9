//! The `[[snmp]]` tables of a configuration: devices to poll.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::auth::Auth;
use super::secret::Secret;
use super::usm::keys::MasterKey;
use crate::Error;

/// The most devices of a poller: 16 at a time, each in a second or so, fit a minute.
pub const MAX_DEVICES: usize = 1024;

/// The longest name of a device. It is a part of topics, beside the name of an interface.
pub const MAX_NAME_BYTES: usize = 32;

/// The port of agents.
pub const SNMP_PORT: u16 = 161;

/// The bounds of an interval. Below it, the poller would be a load for devices; above it, counters wrap twice.
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(5)..=Duration::from_secs(3600);

/// The bounds of a timeout.
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_secs(30);

/// The least bytes of a passphrase (RFC 3414, section 11.2).
const MIN_PASSPHRASE_BYTES: usize = 8;

/// The longest name of a user (RFC 3414, section 5).
const MAX_USER_BYTES: usize = 32;

const WHAT: &str = "a table [[telemetry.snmp]]";

/// A device to poll.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct DeviceSettings {
    /// Its name in topics: `a-z 0-9 _ - .`, at most 32 bytes.
    pub name: String,
    /// Its address, with a port unless that is 161: `192.0.2.1`, `[2001:db8::1]:1161`.
    pub address: String,
    /// The version of SNMP.
    pub version: Version,
    /// A file with the community, for version 2c.
    pub community_file: Option<PathBuf>,
    /// The name of the user, for version 3.
    pub user: Option<String>,
    /// The digest for tags of messages, for version 3.
    pub auth: Option<Auth>,
    /// A file with the passphrase for tags, for version 3.
    pub auth_file: Option<PathBuf>,
    /// The cipher of contents, for version 3. Without it contents can be read on the network.
    pub privacy: Option<Privacy>,
    /// A file with the passphrase for contents.
    pub privacy_file: Option<PathBuf>,
    /// The time from the begin of a poll to that of the next: 5 s to 1 h; 60 s unless set.
    #[serde(default = "interval", deserialize_with = "duration")]
    pub interval: Duration,
    /// The time until a request is sent again, twice as long each time: 50 ms to 30 s; 1 s unless set.
    #[serde(default = "timeout", deserialize_with = "duration")]
    pub timeout: Duration,
}

/// A version of SNMP.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Version {
    /// With a community, which everybody on the way can read.
    #[serde(rename = "2c")]
    V2c,
    /// With users.
    #[serde(rename = "3")]
    V3,
}

/// A cipher of contents.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Privacy {
    /// AES with keys of 128 bits.
    #[serde(rename = "aes128")]
    Aes128,
}

/// The proof that a poller may ask a device.
#[derive(Clone, Debug)]
pub enum Identity {
    /// A community, for version 2c.
    Community(Secret),
    /// A user, for version 3.
    User(User),
}

/// A user of version 3, with its keys.
#[derive(Clone, Debug)]
pub struct User {
    pub(super) name: String,
    pub(super) auth_key: MasterKey,
    pub(super) privacy_key: Option<MasterKey>,
}

impl User {
    /// Makes a user of its passphrases; `privacy` is that of AES-128. It takes milliseconds.
    pub fn new(name: &str, auth: Auth, passphrase: &Secret, privacy: Option<&Secret>) -> Self {
        let key = |secret: &Secret| MasterKey::new(auth, secret.bytes());
        Self { name: name.to_owned(), auth_key: key(passphrase), privacy_key: privacy.map(key) }
    }
}

fn interval() -> Duration {
    Duration::from_secs(60)
}

fn timeout() -> Duration {
    Duration::from_secs(1)
}

fn duration<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let wrong = || serde::de::Error::custom("a duration is a text such as \"30s\"");
    skopos_score::duration::optional(from)?.ok_or_else(wrong)
}

/// Checks the devices of a poller.
///
/// # Errors
/// Says the first fault, and what would be right.
pub fn check(devices: &[DeviceSettings]) -> Result<(), Error> {
    if devices.len() > MAX_DEVICES {
        let why = format!("there are {}; at most {MAX_DEVICES} are polled", devices.len());
        return Err(Error::malformed("the tables [[snmp]]", why));
    }
    let mut names = HashSet::new();
    for device in devices {
        device.check()?;
        if !names.insert(&device.name) {
            return Err(device.fault("the name is that of another device"));
        }
    }
    Ok(())
}

impl DeviceSettings {
    /// Returns the settings with other paths of their files.
    #[must_use]
    pub fn with_files(&self, path: impl Fn(&PathBuf) -> PathBuf) -> Self {
        let [community_file, auth_file, privacy_file] =
            [&self.community_file, &self.auth_file, &self.privacy_file]
                .map(|file| file.as_ref().map(&path));
        Self { community_file, auth_file, privacy_file, ..self.clone() }
    }

    fn fault(&self, why: impl AsRef<str>) -> Error {
        Error::malformed(WHAT, format!("device `{}`: {}", self.name, why.as_ref()))
    }

    /// Checks all keys but the files.
    ///
    /// # Errors
    /// Says the first fault, and what would be right.
    pub fn check(&self) -> Result<(), Error> {
        let good = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.');
        if self.name.is_empty() || self.name.len() > MAX_NAME_BYTES || !self.name.bytes().all(good)
        {
            return Err(self.fault(format!("a name has 1 to {MAX_NAME_BYTES} of a-z 0-9 _ - .")));
        }
        self.socket_address()?;
        if !INTERVALS.contains(&self.interval) {
            return Err(self.fault("interval is 5s to 1h"));
        }
        if !TIMEOUTS.contains(&self.timeout) {
            return Err(self.fault("timeout is 50ms to 30s"));
        }
        let users = [
            ("user", self.user.is_some()),
            ("auth", self.auth.is_some()),
            ("auth_file", self.auth_file.is_some()),
            ("privacy", self.privacy.is_some()),
            ("privacy_file", self.privacy_file.is_some()),
        ];
        match self.version {
            Version::V2c => {
                if let Some((key, _)) = users.iter().find(|(_, is_set)| *is_set) {
                    return Err(self.fault(format!("{key} is for version = \"3\"")));
                }
                if self.community_file.is_none() {
                    return Err(self.fault("version 2c needs community_file"));
                }
            }
            Version::V3 => {
                if self.community_file.is_some() {
                    return Err(self.fault("community_file is for version = \"2c\""));
                }
                if let Some((key, _)) = users[..3].iter().find(|(_, is_set)| !is_set) {
                    let hint =
                        "a user without a passphrase proves nothing, and neither does the device";
                    return Err(self.fault(format!("version 3 needs {key}: {hint}")));
                }
                if self.privacy.is_some() != self.privacy_file.is_some() {
                    return Err(self.fault("privacy and privacy_file come together"));
                }
                let length = self.user.as_deref().map_or(0, str::len);
                if !(1..=MAX_USER_BYTES).contains(&length) {
                    return Err(self.fault(format!("user has 1 to {MAX_USER_BYTES} bytes")));
                }
            }
        }
        Ok(())
    }

    /// Returns the address with its port.
    ///
    /// # Errors
    /// It is not an address.
    pub fn socket_address(&self) -> Result<SocketAddr, Error> {
        let text = &*self.address;
        let whole = text.parse::<SocketAddr>().ok();
        let alone = || text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, SNMP_PORT));
        whole.or_else(alone).filter(|address| address.port() != 0).ok_or_else(|| {
            let hint = "write `192.0.2.1`, `192.0.2.1:1161` or `[2001:db8::1]:161`; names are not looked up";
            self.fault(format!("`{text}` is not an address: {hint}"))
        })
    }

    /// Reads the files of the secrets.
    ///
    /// # Errors
    /// A file cannot be read, other users may read it, or a passphrase is too short.
    pub fn identity(&self) -> Result<Identity, Error> {
        self.check()?;
        if let Some(file) = &self.community_file {
            return Ok(Identity::Community(Secret::read(file)?));
        }
        let passphrase = |file: &Option<PathBuf>| -> Result<Option<Secret>, Error> {
            let Some(file) = file else { return Ok(None) };
            let secret = Secret::read(file)?;
            if secret.bytes().len() < MIN_PASSPHRASE_BYTES {
                let shown = file.display();
                let why = format!(
                    "the passphrase in {shown} has fewer than {MIN_PASSPHRASE_BYTES} bytes"
                );
                return Err(self.fault(why));
            }
            Ok(Some(secret))
        };
        let privacy = passphrase(&self.privacy_file)?;
        match (&self.user, self.auth, passphrase(&self.auth_file)?) {
            (Some(user), Some(auth), Some(secret)) => {
                Ok(Identity::User(User::new(user, auth, &secret, privacy.as_ref())))
            }
            _ => Err(self.fault("version 3 needs user, auth and auth_file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let read: Result<DeviceSettings, _> = toml::from_str(text);
        let outcome = match read {
            Ok(device) => device.check().map_err(|e| e.to_string()),
            Err(e) => Err(e.message().to_owned()),
        };
        let why = outcome.err().unwrap_or_default();
        assert!(why.contains(expected) && why.is_empty() == expected.is_empty(), "{text}: {why}");
    }

    #[test]
    fn faults_of_a_table_say_what_would_be_right() {
        let base = "name = \"sw1\"\naddress = \"192.0.2.1\"\n";
        let v2c = format!("{base}version = \"2c\"\n");
        let v3 = format!("{base}version = \"3\"\nuser = \"u\"\nauth = \"sha256\"\n");
        check(&format!("{v2c}community_file = \"c\"\n"), "");
        check(&format!("{v3}auth_file = \"a\"\nprivacy = \"aes128\"\nprivacy_file = \"p\"\n"), "");
        check(&v2c, "needs community_file");
        check(&v3, "needs auth_file");
        check(&format!("{v3}auth_file = \"a\"\nprivacy = \"aes128\"\n"), "come together");
        check(&format!("{v2c}community_file = \"c\"\nuser = \"u\"\n"), "user is for version");
        check(&format!("{v2c}community = \"public\"\n"), "unknown field `community`");
        check(&format!("{v2c}community_file = \"c\"\ninterval = \"1s\"\n"), "5s to 1h");
        check(&format!("{base}version = \"1\"\n"), "unknown variant `1`");
        let named = v2c.replace("192.0.2.1", "switch.example");
        check(&format!("{named}community_file = \"c\"\n"), "names are not looked up");
        let odd = v2c.replace("sw1", "SW 1");
        check(&format!("{odd}community_file = \"c\"\n"), "a-z 0-9");
    }
}
