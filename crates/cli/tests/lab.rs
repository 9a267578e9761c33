//! `farside lab`: experiments, their claims, and the page.

mod common;

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
    let only = ["--only", "ford-fig9", "--only", "ford-fig19"];
    let mut args = vec!["lab", "report", "--quick", "--out", out.to_str().unwrap()];
    args.extend(only);
    let said = String::from_utf8(farside(&args).stdout).unwrap();
    assert!(said.contains("claims hold (simulated)"), "{said}");
    let page = std::fs::read_to_string(out.join("index.html")).unwrap();
    std::fs::remove_dir_all(&out).unwrap();
    assert!(page.contains("<svg") && page.contains("simulated") && page.contains("seed 1"));
    assert!(page.contains("farside lab run ford-fig19 --quick"));
    // A claim that differs is told with its reason.
    assert!(page.contains("differs") && page.contains("The lock is the invisible bit"));
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("<script"));
}
