//! Config stores by their URLs.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::{ConfigStore, EtcdStore, FileStore};

/// The store that a URL names: `etcd:HOST:PORT,HOST:PORT/NAME` or `pool:PATH`; or what is wrong with it.
pub fn open(url: &str, timeout: Duration) -> Result<Rc<dyn ConfigStore>, String> {
    let expected =
        |why: &str| format!("'{url}': {why}; expected etcd:HOST:PORT,HOST:PORT/NAME or pool:PATH");
    match url.split_once(':') {
        Some(("etcd", rest)) => {
            let (servers, name) = rest.split_once('/').ok_or_else(|| expected("no /NAME"))?;
            let servers: Vec<String> = servers.split(',').map(str::to_owned).collect();
            let is_server = |server: &String| {
                server.rsplit_once(':').is_some_and(|(host, port)| {
                    !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
                })
            };
            if let Some(wrong) = servers.iter().find(|server| !is_server(server)) {
                return Err(expected(&format!("'{wrong}' is not HOST:PORT")));
            }
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || !name.chars().all(plain) {
                return Err(expected("the name of a pool has letters, digits, '-', '_' and '.'"));
            }
            Ok(Rc::new(EtcdStore::new(servers, name, timeout)))
        }
        // The first is what a database is opened by.
        Some(("pool" | "file", path)) if !path.is_empty() => {
            Ok(Rc::new(FileStore::new(Path::new(path))))
        }
        _ => Err(expected("no such store")),
    }
}

#[cfg(test)]
mod tests {
    use super::open;

    #[test]
    fn wrong_urls_say_what_was_expected() {
        let second = std::time::Duration::from_secs(1);
        for good in ["etcd:127.0.0.1:2379/bank", "etcd:a:1,b:2/x.y-z", "file:/tmp/x", "pool:/tmp/x"]
        {
            assert!(open(good, second).is_ok(), "{good}");
        }
        for (wrong, why) in [
            ("", "no such store"),
            ("etcd:127.0.0.1:2379", "no /NAME"),
            ("etcd:127.0.0.1/x", "'127.0.0.1' is not HOST:PORT"),
            ("etcd:a:1,b/x", "'b' is not HOST:PORT"),
            ("etcd:a:1/", "the name of a pool"),
            ("etcd:a:1/x/y", "the name of a pool"),
            ("file:", "no such store"),
            ("zookeeper:a:1/x", "no such store"),
        ] {
            let said = open(wrong, second).map(drop).unwrap_err();
            assert!(said.contains(why) && said.contains("expected etcd:"), "{said}");
        }
    }
}
