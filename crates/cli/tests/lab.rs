//! `farside lab`: experiments, their claims, and the page, as a browser shows it.

mod common;

use std::path::Path;
use std::process::Command;

use common::{farside, json, refuses};

#[test]
fn experiments_are_listed_and_run() {
    let list = String::from_utf8(farside(&["lab", "list"]).stdout).unwrap();
    assert!(list.contains("ford-fig23"), "{list}");
    let found = json(&farside(&["lab", "run", "ford-fig10", "--json"]));
    assert_eq!(found["id"], "ford-fig10");
    assert_eq!(found["profile"], "connectx-5");
    let claims = found["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 4);
    for claim in claims {
        assert_eq!(claim["holds"], true, "{claim}");
        assert!(claim["measured"].is_number() && claim["expected"].is_number(), "{claim}");
        assert!(claim["relation"].is_string() && claim["tolerance"].is_number(), "{claim}");
    }
    refuses(&["lab", "run", "ford-fig99"], "there are: ford-fig2");
}

#[test]
fn the_page_is_one_file_with_plots_commands_and_verdicts() {
    let out = std::env::temp_dir().join(format!("farside-lab-{}", std::process::id()));
    let mut args = vec!["lab", "report", "--quick", "--out", out.to_str().unwrap()];
    for id in ["ford-fig9", "ford-fig19", "farmv2-fig16", "farmv2-table1"] {
        args.extend(["--only", id]);
    }
    let said = String::from_utf8(farside(&args).stdout).unwrap();
    assert!(said.contains("claims hold (simulated)"), "{said}");
    let page = std::fs::read_to_string(out.join("index.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("simulated") && page.contains("seed 1"));
    assert!(page.contains("farside lab run ford-fig19 --quick"));
    // A claim that differs is told with its reason.
    assert!(page.contains("differs") && page.contains("The lock is the invisible bit"));
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("<script"));
    looks_well(&out, &page);
    std::fs::remove_dir_all(&out).unwrap();
}

/// In a browser: plots are there, nothing is wider than the screen of a phone, and nothing goes wrong.
fn looks_well(dir: &Path, page: &str) {
    let Some(chromium) = find_chromium() else {
        eprintln!("skipped: chromium is not installed (package chromium)");
        return;
    };
    for width in [360, 1280] {
        let seen = show(&chromium, dir, page, width);
        assert_eq!((seen.beyond, seen.errors), (0, 0), "{width} px wide");
        assert_eq!(seen.plots, page.matches("<svg").count() as u64);
        assert_eq!(seen.unseen, 0, "plots without a size");
    }
    // Pages that are too wide, or go wrong, are noticed.
    let wide = page.replace("<h1>", "<div style=\"width:500px\">wide</div><h1>");
    assert!(show(&chromium, dir, &wide, 360).beyond >= 140);
    let wrong = page.replace("<h1>", "<script>nothing.there()</script><h1>");
    assert_eq!(show(&chromium, dir, &wrong, 360).errors, 1);
}

fn find_chromium() -> Option<String> {
    let works = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    ["chromium", "chromium-browser"].into_iter().find(works).map(String::from)
}

/// What a browser made of a page.
struct Seen {
    /// How far it goes beyond the screen, in pixels.
    beyond: u64,
    errors: u64,
    plots: u64,
    /// Plots that take no room.
    unseen: u64,
}

/// Shows a page in a frame of a width: windows have a least width, frames have none.
fn show(chromium: &str, dir: &Path, page: &str, width: u64) -> Seen {
    let counting =
        "<head><script>var errors = 0; window.onerror = () => { errors += 1; };</script>";
    let inner = page.replace("<head>", counting).replace('&', "&amp;").replace('"', "&quot;");
    let outer = format!(
        "<!doctype html><body><iframe width=\"{width}\" height=\"800\" style=\"border:0\" srcdoc=\"{inner}\"></iframe>\
         <script>onload = () => {{\
           const frame = document.querySelector('iframe'), inside = frame.contentDocument;\
           const plots = [...inside.querySelectorAll('svg')];\
           const unseen = plots.filter(it => it.getBoundingClientRect().height < 50).length;\
           const page = inside.documentElement, beyond = page.scrollWidth - page.clientWidth;\
           const seen = [beyond, frame.contentWindow.errors, plots.length, unseen];\
           document.title = 'seen ' + seen.join(' ') + ' end';\
           frame.remove();\
         }};</script></body>"
    );
    let path = dir.join("frame.html");
    std::fs::write(&path, outer).unwrap();
    let profile = dir.join("browser");
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", path.display()))
        .output()
        .expect("it starts");
    let dom = String::from_utf8_lossy(&output.stdout);
    let found = dom.split("seen ").nth(1).and_then(|rest| rest.split(" end").next());
    let found = found.unwrap_or_else(|| {
        panic!("the page was not shown: {}", String::from_utf8_lossy(&output.stderr))
    });
    let numbers: Vec<u64> = found.split(' ').map(|number| number.parse().unwrap()).collect();
    Seen { beyond: numbers[0], errors: numbers[1], plots: numbers[2], unseen: numbers[3] }
}
