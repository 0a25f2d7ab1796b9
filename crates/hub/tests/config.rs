//! Mistakes in the table `[hub]`.

use skopos_agent::config::Config;
use skopos_hub::config::HubConfig;

#[test]
fn a_mistake_in_the_table_of_the_hub_is_an_error_of_the_hub() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("skopos.toml");
    for (text, expected) in [
        ("[hub]\nno_such_entry = 1", "line 2"),
        ("[hub]\nflight = \"10.0.0.1\"", "has no port: try `10.0.0.1:7471`"),
        ("[hub]\ncatalogue = \"jobs.sqlite\"", "it is not the URL of a database"),
        ("[hub]\ncatalogue = \"postgresql://hub:secret@db/x\"", "`db` is not an address"),
        ("[hub]\ncatalogue = \"postgresql:///x?host=/run&port=p\"", "is not valid: "),
        ("[hub.remote_write]\nurl = \"store:9090\"", "is not the URL of a store"),
        ("[hub.remote_write]\ntopics = [\"**\"]", "missing field `url`"),
        ("[hub.remote_write]\nurl = \"http://a\"\nevery = \"10ms\"", "`1s`"),
        ("[hub.remote_write]\nurl = \"http://a\"\nheaders = { \"a b\" = \"c\" }", "`a b`"),
    ] {
        std::fs::write(&file, text).expect("written");
        let config = Config::load(Some(&file)).expect("an agent accepts it");
        let error = HubConfig::of(&config).expect_err(text);
        assert!(error.message().contains(expected), "{text}: {}", error.message());
        assert!(!format!("{error:?}").contains("secret"), "{text}: {error:?}");
    }
}
