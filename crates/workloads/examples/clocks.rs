//! How well machines know the time, by how many of them there are: `cargo run --release -p farside-workloads --example clocks`.

use farside_sim::Profile;
use farside_workloads::clocks::mean_uncertainty;

fn main() {
    println!(
        "mean uncertainty, simulated; beside it what farmv2.txt measured (Figs. 16 and 17: ConnectX-3, under load)"
    );
    println!("machines  connectx-3  connectx-5    tcp-10g  measured");
    let measured =
        [(3, "7.5 us"), (10, ""), (30, ""), (90, "12 us"), (300, ""), (900, "16.7 us"), (1000, "")];
    for (machines, there) in measured {
        let of = |name| {
            mean_uncertainty(Profile::named(name).expect("a profile of the table"), machines, 1)
        };
        let [cx3, cx5, tcp] = ["connectx-3", "connectx-5", "tcp-10g"].map(of);
        println!("{machines:<9} {cx3:>10.1?}  {cx5:>10.1?} {tcp:>10.1?}  {there}");
    }
}
