//! A second host for tests: a network namespace behind a veth pair.

use std::net::{IpAddr, Ipv4Addr};

/// Two hosts: this one, and a network namespace at the other end of a veth pair. Both go when this is
/// dropped.
#[derive(Debug)]
pub struct OtherHost {
    name: String,
    here: String,
    /// This host's address on the way to it.
    pub mine: IpAddr,
    /// Its address.
    pub there: IpAddr,
}

impl OtherHost {
    /// `None`, with a printed reason, where such a thing cannot be made.
    pub fn new(number: u8) -> Option<Self> {
        let id = std::process::id() % 10_000 * 10 + u32::from(number);
        let (name, here) = (format!("farside-{id}"), format!("fs{id}"));
        let (third, fourth) = ((id / 60 % 250) as u8, (id % 60 * 4) as u8);
        let mine = Ipv4Addr::new(10, 219, third, fourth + 1);
        let there = Ipv4Addr::new(10, 219, third, fourth + 2);
        let host = OtherHost { name, here, mine: mine.into(), there: there.into() };
        let OtherHost { name, here, .. } = &host;
        let peer = format!("{here}p");
        let made = ip(&["netns", "add", name])
            && ip(&["link", "add", here, "type", "veth", "peer", "name", &peer, "netns", name])
            && ip(&["addr", "add", &format!("{mine}/30"), "dev", here])
            && ip(&["link", "set", here, "up"])
            && ip(&["-n", name, "addr", "add", &format!("{there}/30"), "dev", &peer])
            && ip(&["-n", name, "link", "set", &peer, "up"])
            && ip(&["-n", name, "link", "set", "lo", "up"]);
        if !made {
            println!("skipped: network namespaces need root and the package iproute2");
        }
        made.then_some(host)
    }

    /// What a command begins with that is to run there.
    pub fn prefix(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(String::from).to_vec()
    }
}

impl OtherHost {
    /// Lets the network between the hosts swallow everything, or not any more.
    pub fn cut(&self, cut: bool) {
        let peer = format!("{}p", self.here);
        let state = if cut { "down" } else { "up" };
        assert!(
            ip(&["-n", &self.name, "link", "set", &peer, state]),
            "cannot set the link {state}"
        );
    }
}

impl Drop for OtherHost {
    fn drop(&mut self) {
        ip(&["link", "del", &self.here]);
        ip(&["netns", "del", &self.name]);
    }
}

/// Runs `ip`; whether that went well.
pub fn ip(args: &[&str]) -> bool {
    let run =
        std::process::Command::new("ip").args(args).stderr(std::process::Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}
