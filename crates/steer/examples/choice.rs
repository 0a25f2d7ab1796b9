//! Compares ways to choose among replicas.
use std::time::Duration;
use skopos_steer::rank::Settings;
use skopos_steer::simulate::{Peer, SCENARIOS, Shape, simulate, MS, Scenario};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let seeds: Vec<u64> = vec![1, 2];
    let quick = args.iter().any(|a| a == "quick");
    let s = |exp: f64, clients: f64, qh: u64, sh: u64, slots: f64, own: f64| Settings { clients, exponent: exp, queue_half_life: Duration::from_millis(qh), service_half_life: Duration::from_millis(sh), slots, own_share: own, ..Settings::default() };
    let mut peers: Vec<(String, Peer)> = vec![("rr".into(), Peer::RoundRobin), ("po2".into(), Peer::RandomOfTwo), ("c3".into(), Peer::C3), ("prequal".into(), Peer::Prequal), ("oracle".into(), Peer::Oracle)];
    for (e, c, qh, sh, sl, own) in [(3., 100., 50, 200, 1., 0.), (3., 100., 10, 200, 1., 0.), (3., 100., 200, 200, 1., 0.), (3., 100., 50, 200, 4., 0.), (3., 10., 50, 200, 1., 0.), (2., 100., 50, 200, 1., 0.), (3., 100., 50, 200, 1., 1.)] {
        peers.push((format!("sk e{e} c{c} q{qh} s{sh} sl{sl} o{own}"), Peer::Skopos(s(e, c, qh, sh, sl, own))));
        peers.push((format!("skR e{e} c{c} q{qh} s{sh} sl{sl} o{own}"), Peer::SkoposReports(s(e, c, qh, sh, sl, own))));
    }
    let scen: &[Scenario] = if quick { &[Scenario::Steady, Scenario::Mixed] } else { &SCENARIOS };
    for load in [0.5, 0.7, 0.9] {
        for sc in scen {
            for (n, p) in &peers {
                let mut v = vec![];
                for seed in &seeds {
                    let mut shape = Shape::new(load, *sc);
                    shape.length = 5000 * MS;
                    let o = simulate(&shape, *p, *seed);
                    v.push((o.quantile(0.5) as f64 / 1e6, o.quantile(0.99) as f64 / 1e6, o.timeouts, o.unfinished));
                }
                let m = v.iter().map(|x| x.1).sum::<f64>() / v.len() as f64;
                let m50 = v.iter().map(|x| x.0).sum::<f64>() / v.len() as f64;
                println!("{load} {sc:?} {n:<34} p50 {m50:6.1} p99 {m:7.1} to {} unf {}", v[0].2, v[0].3);
            }
        }
    }
}
