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
    /// A message or a question, to one agent or to everybody, perhaps with a time to live in milliseconds.
    Send {
        by: usize,
        to: Option<usize>,
        ttl: Option<i64>,
        extras: Extras,
    },
    /// An answer to a message. With a recipient it makes no sense.
    Reply {
        by: usize,
        to: Pick,
        named: Option<usize>,
        extras: Extras,
    },
    Withdraw {
        by: usize,
        which: Pick,
    },
    Remind {
        by: usize,
        to: usize,
        after: i64,
        every: Option<i64>,
        times: i64,
    },
    /// Cancels the newest reminder but this many.
    Cancel {
        by: usize,
        back: usize,
    },
    /// A surface of an agent takes messages.
    Take {
        who: usize,
        surface: usize,
        max_replay: Option<usize>,
        limit: usize,
        mid_turn: bool,
        about: Option<Pick>,
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
    /// The newest messages to an agent, at most this many, are about to be handed to it in a way that cannot be recalled.
    Begin {
        to: usize,
        count: usize,
    },
    /// It is known what became of the hand-over that began last but this many.
    End {
        back: usize,
        arrived: bool,
    },
    /// The connection of a surface ends.
    Close {
        who: usize,
        surface: usize,
    },
    /// Somebody edits a file.
    Edit {
        who: Who,
        overridden: bool,
    },
    /// Somebody commits, by a process of git that can be seen or not.
    Commit {
        who: Who,
        seen: bool,
        overridden: bool,
    },
    Push(Who, bool),
    /// The process of a commit ends.
    EndCommit,
    /// The holder's session is done with its turn, or does not know of it.
    /// `late`: it is about an earlier turn.
    GiveBack {
        who: Who,
        cause: Cause,
        late: bool,
    },
    /// The daemon is killed right after the next command is committed.
    Crash,
    /// The daemon ends, in order or not, and another starts, at once or so many milliseconds later.
    Restart {
        killed: bool,
        down: i64,
    },
}

/// Why a stick is given back by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    TurnEnded,
    BrokenOff,
    Asking,
    Forgotten,
    SessionEnded,
    Committed,
}

impl Cause {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::TurnEnded => "turn_ended",
            Self::BrokenOff => "broken_off",
            Self::Asking => "asking",
            Self::Forgotten => "forgotten",
            Self::SessionEnded => "session_ended",
            Self::Committed => "committed",
        }
    }

    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::TurnEnded => "its turn ended",
            Self::BrokenOff => "its turn was broken off",
            Self::Asking => "it waits for an answer of its user",
            Self::Forgotten => "its session went on to another conversation, which does not know of it",
            Self::SessionEnded => "its session ended",
            Self::Committed => "its commit is done",
        }
    }
}

/// What a sender wants beyond the words.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extras {
    pub(crate) is_question: bool,
    pub(crate) urgency: u8,
    pub(crate) tell_delivery: bool,
    pub(crate) tell_silence: Option<i64>,
}

/// Which message something is about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pick {
    /// The newest to the one who does it, but this many.
    ToMe(usize),
    /// The newest from the one who does it, but this many.
    FromMe(usize),
    /// The newest of all, but this many.
    Any(usize),
    /// A number that no message has.
    Unknown,
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
        0..19 => {
            let ttl = random.one_in(4).then(|| random.below(60_000) as i64);
            Op::Send { by: who, to: (!random.one_in(3)).then_some(other), ttl, extras: extras(random) }
        }
        19..31 => {
            let named = random.one_in(20).then_some(other);
            let to = if random.one_in(8) { pick(random) } else { Pick::ToMe(random.below(4) as usize) };
            let extras = if random.one_in(4) { extras(random) } else { Extras { urgency: 1, ..Extras::default() } };
            Op::Reply { by: who, to, named, extras }
        }
        31..36 => {
            let which = if random.one_in(4) { pick(random) } else { Pick::FromMe(random.below(3) as usize) };
            Op::Withdraw { by: who, which }
        }
        36..40 => {
            let every = random.one_in(2).then(|| 9_000 + random.below(40_000) as i64);
            let times = if every.is_some() { random.below(5) as i64 } else { 1 + i64::from(random.one_in(10)) };
            Op::Remind { by: who, to: other, after: random.below(60_000) as i64, every, times }
        }
        40..42 => Op::Cancel { by: who, back: random.below(4) as usize },
        42..46 => Op::Begin { to: who, count: 1 + random.below(4) as usize },
        46..49 => Op::End { back: random.below(4) as usize, arrived: random.one_in(2) },
        49..65 => {
            let max_replay = random.one_in(4).then(|| random.below(4) as usize);
            let limit = if random.one_in(3) { 1 + random.below(3) as usize } else { 200 };
            let about = random.one_in(5).then(|| pick(random));
            Op::Take { who, surface, max_replay, limit, mid_turn: random.one_in(4), about }
        }
        65..79 => Op::Confirm { who, surface, which: which(random) },
        79..84 => Op::Return { who, surface, which: which(random) },
        84..88 => Op::Close { who, surface },
        88..96 => Op::Step(1 + random.below(20_000) as i64),
        96..97 => Op::Restart { killed: random.one_in(2), down: random.below(100_000) as i64 },
        _ => Op::Crash,
    }
}

fn pick(random: &mut Random) -> Pick {
    let back = random.below(6) as usize;
    match random.below(10) {
        0..4 => Pick::FromMe(back),
        4..6 => Pick::ToMe(back),
        6..9 => Pick::Any(back),
        _ => Pick::Unknown,
    }
}

fn extras(random: &mut Random) -> Extras {
    Extras {
        is_question: random.one_in(2),
        urgency: [1, 1, 1, 0, 2, 3][random.below(6) as usize],
        tell_delivery: random.one_in(4),
        tell_silence: random.one_in(4).then(|| random.below(40_000) as i64),
    }
}

fn op(random: &mut Random, agents: usize) -> Op {
    let agent = random.below(agents as u64) as usize;
    let other = random.below(agents as u64) as usize;
    let holder = |random: &mut Random| if random.one_in(5) { Who::Agent(agent) } else { Who::Holder };
    if random.one_in(6) {
        return guarded_op(random, agent);
    }
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
        _ => Op::Restart { killed: !random.one_in(3), down: 0 },
    }
}

fn guarded_op(random: &mut Random, agent: usize) -> Op {
    let who = if random.one_in(5) { Who::Holder } else { Who::Agent(agent) };
    let overridden = random.one_in(6);
    match random.below(20) {
        0..9 => Op::Edit { who, overridden },
        9..12 => Op::Commit { who, seen: !random.one_in(6), overridden },
        12 => Op::Push(who, overridden),
        13 => Op::EndCommit,
        _ => {
            let cause =
                [Cause::TurnEnded, Cause::TurnEnded, Cause::BrokenOff, Cause::Asking, Cause::Asking, Cause::Forgotten];
            let who = if random.one_in(5) { Who::Agent(agent) } else { Who::Holder };
            Op::GiveBack { who, cause: cause[random.below(6) as usize], late: random.one_in(8) }
        }
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
