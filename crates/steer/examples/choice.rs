//! Compares ways to choose among replicas.
use std::time::Duration;
use skopos_steer::rank::Settings;
use skopos_steer::simulate::{Peer, Shape, simulate, MS, Scenario};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut peers: Vec<(String, Peer)> = vec![];
    let mut publish = 100;
    let mut length = 3000;
    for a in &args {
        if let Some(x) = a.strip_prefix("pub=") { publish = x.parse().unwrap(); continue; }
        if let Some(x) = a.strip_prefix("len=") { length = x.parse().unwrap(); continue; }
        match a.as_str() {
            "base" => peers.extend([("po2".into(), Peer::RandomOfTwo), ("c3".into(), Peer::C3), ("prequal".into(), Peer::Prequal), ("oracle".into(), Peer::Oracle)]),
            spec => {
                let f: Vec<f64> = spec.split(',').map(|x| x.parse().unwrap()).collect();
                let s = Settings { exponent: f[0], clients: f[1], queue_half_life: Duration::from_millis(f[2] as u64), service_half_life: Duration::from_millis(f[3] as u64), slots: f[4], own_share: f[5], usual_share: f[6], jitter: f[7], ..Settings::default() };
                peers.push((format!("S {spec}"), Peer::Skopos(s)));
                peers.push((format!("R {spec}"), Peer::SkoposReports(s)));
            }
        }
    }
    println!("{:<32} p99 ms: steady mixed at .5, .7, .9; geometric mean", "");
    for (n, p) in &peers {
        print!("{n:<32}");
        let mut g = 0.0; let mut k = 0.0;
        for load in [0.5, 0.7, 0.9] {
            for sc in [Scenario::Steady, Scenario::Mixed] {
                let mut m = 0.0;
                for seed in [1, 2] {
                    let mut shape = Shape::new(load, sc);
                    shape.length = length * MS;
                    shape.publish = publish * MS;
                    m += simulate(&shape, *p, seed).quantile(0.99) as f64 / 2e6;
                }
                print!(" {m:7.1}");
                g += m.ln(); k += 1.0;
            }
        }
        println!("  | {:7.1}", (g / k as f64).exp());
    }
}
