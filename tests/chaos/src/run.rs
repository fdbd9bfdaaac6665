//! Runs a plan: faults begin and end, actors that were killed are started again, and between the rounds everything must work.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::control::Field;
use crate::dice::Dice;
use crate::plan::{Fault, Round};
use crate::stage::Stage;
use crate::world::World;
use crate::{Fallible, actors, evidence, processes, say};

/// How often the run looks at what is due.
const TICK: Duration = Duration::from_millis(10);

/// Without a fault every command works within this time: a call has ten seconds, and a start thirty.
const CALM_LIMIT: Duration = Duration::from_secs(40);

/// What a run counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub faults: BTreeMap<&'static str, usize>,
    pub daemon_starts: usize,
    pub broken: Vec<String>,
}

/// How a fault ends.
enum Ending {
    ContinueDaemon,
    ContinueActor(u64),
    FastDisk,
    GoodDisk,
    EmptyDisk,
    ManyDescriptors,
}

pub(crate) struct Run<'a> {
    world: &'a mut World,
    dice: Dice,
    endings: Vec<(Instant, Ending)>,
    daemons: Vec<u32>,
    pub counts: Counts,
}

impl<'a> Run<'a> {
    pub(crate) fn new(world: &'a mut World, seed: u64) -> Self {
        let dice = Dice::new(seed, "run");
        Self { world, dice, endings: Vec::new(), daemons: Vec::new(), counts: Counts::default() }
    }

    /// Runs one round and returns to calm.
    pub(crate) fn round(&mut self, round: &Round) -> Fallible<()> {
        let began = Instant::now();
        let mut faults = round.faults.iter().peekable();
        while began.elapsed() < Duration::from_millis(round.lasts) || faults.peek().is_some() {
            while let Some((at, fault)) = faults.peek() {
                if began.elapsed() < Duration::from_millis(*at) {
                    break;
                }
                self.begin(*fault)?;
                faults.next();
            }
            self.end_due(Some(Instant::now()))?;
            self.look()?;
            std::thread::sleep(TICK);
        }
        self.end_due(None)?;
        self.check_calm()
    }

    /// Starts actors again, and counts daemons.
    fn look(&mut self) -> Fallible<()> {
        let broken = self.world.keep_playing()?;
        self.counts.broken.extend(broken);
        self.count_daemons();
        Ok(())
    }

    fn count_daemons(&mut self) {
        let daemons = self.world.daemons();
        self.counts.daemon_starts += daemons.iter().filter(|pid| !self.daemons.contains(pid)).count();
        self.daemons = daemons;
    }

    fn begin(&mut self, fault: Fault) -> Fallible<()> {
        *self.counts.faults.entry(fault.name()).or_default() += 1;
        let control = self.world.control.as_ref();
        let set = |field: Field, value: i64| control.map_or(Ok(()), |control| control.set(field, value));
        let ending = match fault {
            Fault::KillDaemon => {
                self.world.signal_daemons(Signal::SIGKILL);
                None
            }
            Fault::KillDaemonTwice => {
                self.world.signal_daemons(Signal::SIGKILL);
                let give_up = Instant::now() + Duration::from_secs(1);
                let pause = Duration::from_millis(self.dice.between(0, 15));
                let old = self.daemons.clone();
                while Instant::now() < give_up {
                    let new: Vec<u32> = self.world.daemons().into_iter().filter(|pid| !old.contains(pid)).collect();
                    if !new.is_empty() {
                        std::thread::sleep(pause);
                        new.into_iter().for_each(|pid| processes::signal(pid, Signal::SIGKILL));
                        break;
                    }
                }
                None
            }
            Fault::StopDaemon { lasts } => {
                self.world.signal_daemons(Signal::SIGSTOP);
                Some((lasts, Ending::ContinueDaemon))
            }
            Fault::KillActor { which } => {
                let pause = Duration::from_millis(self.dice.between(0, 800));
                self.world.kill_actor(which, pause)?;
                None
            }
            Fault::StopActor { which, lasts } => {
                self.world.signal_actor(which, Signal::SIGSTOP)?;
                Some((lasts, Ending::ContinueActor(which)))
            }
            Fault::KillClient { which } => {
                let clients = processes::running(&self.world.places.tt());
                if let Some(count) = u64::try_from(clients.len()).ok().filter(|count| *count > 0) {
                    processes::signal(clients[usize::try_from(which % count)?], Signal::SIGKILL);
                }
                None
            }
            Fault::SlowDisk { lasts, delay } => {
                set(Field::SyncDelayMs, i64::try_from(delay)?)?;
                Some((lasts, Ending::FastDisk))
            }
            Fault::FailingDisk { lasts, percent } => {
                set(Field::Error, i64::from(nix::errno::Errno::EIO as i32))?;
                set(Field::Percent, i64::try_from(percent)?)?;
                Some((lasts, Ending::GoodDisk))
            }
            Fault::FullDisk { lasts } if self.world.has_own_disk => {
                self.fill_disk();
                Some((lasts, Ending::EmptyDisk))
            }
            Fault::FullDisk { lasts } => {
                set(Field::Error, i64::from(nix::errno::Errno::ENOSPC as i32))?;
                set(Field::Percent, 100)?;
                Some((lasts, Ending::GoodDisk))
            }
            Fault::SetClock { ahead } => {
                set(Field::WallMs, ahead)?;
                None
            }
            Fault::Suspend { lasts } => {
                let before = control.map_or(Ok(0), |control| control.get(Field::BootMs))?;
                set(Field::BootMs, before + lasts)?;
                None
            }
            Fault::FewDescriptors { lasts, spare } => {
                for pid in self.world.daemons() {
                    // A daemon that ends at this moment has none.
                    if let Ok(open) = processes::descriptors(pid) {
                        let _ = processes::limit_descriptors(pid, Some(open + usize::try_from(spare)?));
                    }
                }
                Some((lasts, Ending::ManyDescriptors))
            }
        };
        if let Some((lasts, ending)) = ending {
            self.endings.push((Instant::now() + Duration::from_millis(lasts), ending));
        }
        Ok(())
    }

    fn filler(&self) -> std::path::PathBuf {
        self.world.places.data().join("filler")
    }

    /// Writes a file until the disk is full.
    fn fill_disk(&self) {
        use std::io::Write;
        let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(self.filler()) else { return };
        for size in [1 << 20, 4096, 512] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Ends the faults that are over, or all of them.
    fn end_due(&mut self, now: Option<Instant>) -> Fallible<()> {
        let (due, rest) =
            std::mem::take(&mut self.endings).into_iter().partition(|(at, _)| now.is_none_or(|now| *at <= now));
        self.endings = rest;
        let due: Vec<(Instant, Ending)> = due;
        let control = self.world.control.as_ref();
        let set = |field: Field, value: i64| control.map_or(Ok(()), |control| control.set(field, value));
        for (_, ending) in due {
            match ending {
                Ending::ContinueDaemon => self.world.signal_daemons(Signal::SIGCONT),
                Ending::ContinueActor(which) => self.world.signal_actor(which, Signal::SIGCONT)?,
                Ending::FastDisk => set(Field::SyncDelayMs, 0)?,
                Ending::GoodDisk => set(Field::Percent, 0)?,
                Ending::EmptyDisk => drop(std::fs::remove_file(self.filler())),
                Ending::ManyDescriptors => {
                    for pid in self.world.daemons() {
                        let _ = processes::limit_descriptors(pid, None);
                    }
                }
            }
        }
        Ok(())
    }

    /// Without faults the next command of somebody who has waited for it works.
    fn check_calm(&mut self) -> Fallible<()> {
        let mut stage = self.probe()?;
        let began = Instant::now();
        loop {
            let body = "is everything well?";
            let sent = stage.run(&["msg", "send", "room", body, "--json"], None)?;
            self.look()?;
            if sent.status.success() {
                break;
            }
            if began.elapsed() > CALM_LIMIT {
                self.counts.broken.push(format!("without a fault tt msg send fails: {}", sent.stderr));
                break;
            }
        }
        Ok(())
    }

    /// Ends the play, and hands over every message that still waits, so that it can be seen that none is missing.
    pub(crate) fn finish(&mut self) -> Fallible<()> {
        let stuck = self.world.end_play(CALM_LIMIT)?;
        self.counts.broken.extend(stuck);
        self.check_nobody_lives_on()?;
        for (actor, number) in actors::members() {
            let mut stage = self.world.stage(actor, number, "rest")?;
            if !empty_inbox(&mut stage)? {
                self.counts.broken.push(format!("the inbox of {} cannot be read", actor.agent_id(number)));
            }
        }
        // Conversations are members that the actors were in turn. There may be more of them than any command lists. Again, because a
        // reminder may fall due meanwhile.
        let (mut stages, began) = (BTreeMap::new(), Instant::now());
        loop {
            let unread = evidence::who_has_unread(&self.world.places.data())?;
            if unread.is_empty() || began.elapsed() > CALM_LIMIT {
                break;
            }
            for agent_id in unread {
                let stage = match stages.entry(agent_id) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => {
                        let stage = self.world.stage_of_member(new.key())?;
                        new.insert(stage)
                    }
                };
                if !empty_inbox(stage)? {
                    self.counts.broken.push(format!("the inbox of {} cannot be read", stage.name));
                }
            }
        }
        self.count_daemons();
        Ok(())
    }

    fn probe(&self) -> Fallible<Stage> {
        let (actor, number) = actors::members().next().ok_or("no actors")?;
        self.world.stage(actor, number, "probe")
    }

    /// Every process of a session has ended, so no session is alive.
    fn check_nobody_lives_on(&mut self) -> Fallible<()> {
        let mut stage = self.probe()?;
        let began = Instant::now();
        loop {
            let sessions = stage.run(&["sessions", "--json"], None)?.json().unwrap_or_default();
            let known = sessions["sessions"].as_array().cloned().unwrap_or_default();
            let living: Vec<_> = known.into_iter().filter(|session| session["liveness"] == "alive").collect();
            if sessions["sessions"].is_array() && living.is_empty() {
                return Ok(());
            }
            if began.elapsed() > CALM_LIMIT {
                self.counts.broken.push(format!("nobody plays any more, and these live: {living:?}"));
                return Ok(());
            }
            std::thread::sleep(TICK);
        }
    }
}

/// Reads an inbox until it is empty.
fn empty_inbox(stage: &mut Stage) -> Fallible<bool> {
    let mut failures = 0;
    loop {
        let read = stage.run(&["msg", "recv", "--json", "--max-replay", "1000000"], Some("recv"))?;
        match (read.status.success(), read.stdout.is_empty()) {
            (true, true) => return Ok(true),
            (true, false) => {}
            (false, _) if failures < 3 => failures += 1,
            (false, _) => return Ok(false),
        }
    }
}

/// Prints what was counted.
pub(crate) fn print(counts: &Counts) {
    let faults: Vec<String> = counts.faults.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let all: usize = counts.faults.values().sum();
    say(&format!("faults: {all} ({})", faults.join(", ")));
}
