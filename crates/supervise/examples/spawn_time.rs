//! How long it takes to start a child and see it end:
//! `spawn_time [PROGRAM [ROUNDS [LIVING [RESTRICTION,...]]]]`.
//!
//! `LIVING` children sleep meanwhile, to show what a crowded spawner costs. The restrictions are
//! `files`, `calls`, `network`, `user` and `cgroup`.

use std::time::{Duration, Instant};

use pontoon_supervise::{
    Cgroup, Child, Command, Confinement, FileRules, Limits, Network, SpawnError, Spawner, User,
};

const AT_ONCE: usize = 32;

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let began = Instant::now();
    let starting = Spawner::start()?;
    print("start of the spawner", vec![began.elapsed()]);
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().unwrap_or("/bin/true".into());
    let rounds = arguments.next().map_or(Ok(2000), |rounds: String| rounds.parse())?;
    let living: usize = arguments.next().map_or(Ok(0), |living| living.parse())?;
    let restrictions = arguments.next().unwrap_or_default();
    let runtime = tokio::runtime::Runtime::new()?;
    // In a task, as a server would: the thread of `block_on` costs another hop.
    let measure = async move {
        let spawner = starting.attach()?;
        let mut crowd = Vec::new();
        for _ in 0..living {
            crowd.push(spawner.spawn(&Command::new("/bin/cat")).await?);
        }
        let command = restrict(Command::new(program), &restrictions);
        let (mut started, mut ended) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let began = Instant::now();
            let child = spawner.spawn(&command).await?;
            started.push(began.elapsed());
            child.exited().await;
            ended.push(began.elapsed());
        }
        print("spawn", started);
        print("spawn and exit", ended);

        let began = Instant::now();
        let tasks: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let (spawner, command) = (spawner.clone(), command.clone());
                tokio::spawn(async move {
                    for _ in 0..rounds / AT_ONCE {
                        spawner.spawn(&command).await?.exited().await;
                    }
                    Ok::<_, SpawnError>(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        print_rate(rounds, began.elapsed());

        let began = Instant::now();
        crowd.iter().for_each(Child::kill);
        for child in &crowd {
            child.exited().await;
        }
        print("kill of all", vec![began.elapsed()]);
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    runtime.block_on(runtime.spawn(measure))?
}

fn restrict(command: Command, restrictions: &str) -> Command {
    let has = |word: &str| restrictions.split(',').any(|it| it == word);
    let confinement = Confinement {
        files: has("files").then(FileRules::system),
        deny_calls: has("calls"),
        network: if has("network") { Network::None } else { Network::Open },
        user: has("user").then_some(User { uid: 61_000, gid: 61_000 }),
        cgroup: has("cgroup").then(Cgroup::default),
    };
    let most = |count: u64| has("cgroup").then_some(count);
    let limits = Limits { memory_bytes: most(1 << 30), processes: most(100), ..Limits::default() };
    Command { limits, confinement, ..command }
}

#[expect(clippy::print_stdout, reason = "the point of the program")]
fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_micros();
    println!("{what}: min {} us, p50 {} us, p99 {} us", at(0), at(50), at(99));
}

#[expect(clippy::print_stdout, reason = "the point of the program")]
fn print_rate(rounds: usize, time: Duration) {
    println!(
        "{AT_ONCE} at once: {:.0} spawns and exits a second",
        rounds as f64 / time.as_secs_f64()
    );
}
