//! Random histories, and making a failing one small.

/// Who does something: a fixed agent, or the one that has the stick (or its reservation) at that moment.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    Agent(usize),
    Holder,
    Recipient,
}

/// Which proof of the turn a call carries.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Token {
    /// The lease and number of the turn under way.
    Right,
    /// Both of an earlier turn.
    Earlier,
    /// An earlier lease with the right turn.
    EarlierLease,
    /// The right lease with the turn before or after.
    OtherTurn(i64),
    Invented,
}

/// Which messages a surface confirms or returns.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    /// Everything it holds, and what it skipped.
    Held,
    /// The first one it holds.
    First,
    /// Every message of the history, its own or not.
    Everything,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Listen,
    Alone,
    Park,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    Join(usize),
    Wait(Who, Kind),
    /// The patience of a wait runs out.
    EndWait(usize),
    /// The connection of a wait is cut.
    Hang(usize),
    Release(Who, Token),
    Pass(Who, usize, Token),
    /// A handoff that says nothing.
    BadHandoff(Who),
    Takeover {
        by: Who,
        turn: Token,
        operator: bool,
    },
    Kick {
        by: usize,
        target: Who,
        force: bool,
    },
    Leave(Who),
    /// Deletes the room, unless another member is there.
    Delete(usize),
    /// Nothing has happened for long: an empty room in which nobody lives is deleted.
    Purge,
    /// The person opens another terminal and goes on there.
    OpenTerminal,
    Heartbeat(Who, Token),
    Note(usize),
    /// The agent's process ends. It is reported at once, or only when the daemon next looks.
    Die {
        who: Who,
        reported: bool,
    },
    Step(i64),
    /// A message, to one agent or to everybody, perhaps with a time to live in milliseconds.
    Send {
        by: usize,
        to: Option<usize>,
        ttl: Option<i64>,
    },
    /// A surface of an agent takes messages.
    Take {
        who: usize,
        surface: usize,
        max_replay: Option<usize>,
        limit: usize,
    },
    Confirm {
        who: usize,
        surface: usize,
        which: Which,
    },
    Return {
        who: usize,
        surface: usize,
        which: Which,
    },
    /// The connection of a surface ends.
    Close {
        who: usize,
        surface: usize,
    },
    /// The daemon is killed right after the next command is committed.
    Crash,
    /// The daemon ends, in order or not, and another starts.
    Restart {
        killed: bool,
    },
}

/// SplitMix64: enough, and the same everywhere.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A history of one room among two to five agents.
pub(crate) fn generate(random: &mut Random, length: usize) -> Vec<Op> {
    let agents = 2 + random.below(4) as usize;
    let mut ops = Vec::new();
    if random.one_in(10) {
        // A room in which nothing is written before everybody is gone, for longer than it is kept.
        ops.extend([Op::Join(0), Op::Die { who: Who::Agent(0), reported: true }, Op::Step(300_000), Op::Purge]);
    }
    ops.extend((0..agents.min(3)).map(Op::Join));
    while ops.len() < length {
        ops.push(op(random, agents));
    }
    ops
}

/// A history in which agents talk, too, and daemons are killed in the middle of it.
pub(crate) fn generate_with_messages(random: &mut Random, length: usize) -> Vec<Op> {
    let agents = 2 + random.below(4) as usize;
    let mut ops: Vec<Op> = (0..agents.min(3)).map(Op::Join).collect();
    while ops.len() < length {
        ops.push(if random.one_in(2) { op(random, agents) } else { message_op(random, agents) });
    }
    ops
}

fn message_op(random: &mut Random, agents: usize) -> Op {
    let who = random.below(agents as u64) as usize;
    let other = random.below(agents as u64) as usize;
    let surface = random.below(2) as usize;
    let which = |random: &mut Random| match random.below(5) {
        0 => Which::First,
        1 => Which::Everything,
        _ => Which::Held,
    };
    match random.below(100) {
        0..35 => {
            let ttl = random.one_in(4).then(|| 1 + random.below(60_000) as i64);
            Op::Send { by: who, to: (!random.one_in(3)).then_some(other), ttl }
        }
        35..60 => {
            let max_replay = random.one_in(4).then(|| random.below(4) as usize);
            let limit = if random.one_in(3) { 1 + random.below(3) as usize } else { 200 };
            Op::Take { who, surface, max_replay, limit }
        }
        60..80 => Op::Confirm { who, surface, which: which(random) },
        80..88 => Op::Return { who, surface, which: which(random) },
        88..94 => Op::Close { who, surface },
        94..98 => Op::Step(1 + random.below(20_000) as i64),
        _ => Op::Crash,
    }
}

fn op(random: &mut Random, agents: usize) -> Op {
    let agent = random.below(agents as u64) as usize;
    let other = random.below(agents as u64) as usize;
    let holder = |random: &mut Random| if random.one_in(5) { Who::Agent(agent) } else { Who::Holder };
    match random.below(100) {
        0..9 => Op::Join(agent),
        9..32 => {
            let who = if random.one_in(6) { Who::Recipient } else { Who::Agent(agent) };
            Op::Wait(who, [Kind::Listen, Kind::Listen, Kind::Alone, Kind::Alone, Kind::Park][random.below(5) as usize])
        }
        32..34 => Op::EndWait(agent),
        34..36 => Op::Hang(agent),
        36..50 => Op::Release(holder(random), token(random)),
        50..58 => Op::Pass(holder(random), other, token(random)),
        58..59 => Op::BadHandoff(holder(random)),
        59..67 => {
            let turn = if random.one_in(4) { token(random) } else { Token::Right };
            let by = if random.one_in(8) { Who::Recipient } else { Who::Agent(agent) };
            Op::Takeover { by, turn, operator: random.one_in(5) }
        }
        67..69 => {
            let target = [Who::Agent(other), Who::Holder, Who::Recipient][random.below(3) as usize];
            Op::Kick { by: agent, target, force: random.one_in(2) }
        }
        69..70 => match random.below(6) {
            0 => Op::Delete(agent),
            1 => Op::Purge,
            2 | 3 => Op::OpenTerminal,
            _ => Op::Leave([Who::Agent(agent), Who::Holder, Who::Recipient][random.below(3) as usize]),
        },
        70..78 => Op::Heartbeat(holder(random), token(random)),
        78..79 => Op::Note(agent),
        79..84 => {
            let who = [Who::Agent(agent), Who::Holder, Who::Recipient][random.below(3) as usize];
            Op::Die { who, reported: !random.one_in(3) }
        }
        84..98 => Op::Step(match random.below(10) {
            0..5 => 1 + random.below(12_000) as i64,
            5..9 => 1 + random.below(110_000) as i64,
            _ => 1 + random.below(2_000_000) as i64,
        }),
        _ => Op::Restart { killed: !random.one_in(3) },
    }
}

fn token(random: &mut Random) -> Token {
    match random.below(20) {
        0 => Token::Earlier,
        1 => Token::EarlierLease,
        2 => Token::OtherTurn(-1),
        3 => Token::OtherTurn(1),
        4 => Token::Invented,
        _ => Token::Right,
    }
}

/// The smallest history found that still fails: ever smaller pieces are left out for as long as that keeps it failing.
pub(crate) fn shrink(mut ops: Vec<Op>, fails: impl Fn(&[Op]) -> bool) -> Vec<Op> {
    let mut piece = ops.len().div_ceil(2);
    loop {
        let mut at = 0;
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + piece).min(ops.len()));
            if fails(&fewer) {
                ops = fewer;
            } else {
                at += piece;
            }
        }
        if piece == 1 {
            return ops;
        }
        piece = piece.div_ceil(2);
    }
}
