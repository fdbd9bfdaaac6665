//! The program: reads its arguments, and turns with the terminal and the daemon.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crossterm::event::{Event, EventStream, KeyEventKind};
use futures_util::StreamExt;
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedSender;
use tt_client::connect::{Client, Settings};
use tt_client::text::render::now;
use tt_proto::escape::escape_text;
use tt_proto::paths::Environment;

use crate::exchange::Request;
use crate::model::{Action, Model};
use crate::terminal::{self, Screen};
use crate::{connection, view};

const HELP: &str = "Rooms, members and messages on one screen. Press ? in it for its keys.

Usage: tt console [PATH]

  PATH  any path in the workspace whose room is shown first [default: the current directory]
";

/// The whole program. Returns the status it exits with.
pub fn main() -> u8 {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let path = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--help" | "-h"] => return write(&mut std::io::stdout(), HELP, 0),
        ["--version" | "-V"] => {
            return write(&mut std::io::stdout(), &format!("tt-console {}\n", tt_proto::VERSION), 0);
        }
        [] => ".",
        [path] if !path.starts_with('-') => path,
        _ => return write(&mut std::io::stderr(), HELP, 2),
    };
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        let text = "error: the console needs a terminal\nfix: tt watch writes a room's events to a pipe or a file\n";
        return write(&mut std::io::stderr(), text, 2);
    }
    match run(path) {
        Ok(()) => 0,
        Err(problem) => write(&mut std::io::stderr(), &format!("error: {}\n", escape_text(&problem)), 1),
    }
}

fn write(to: &mut dyn Write, text: &str, status: u8) -> u8 {
    let _ = to.write_all(text.as_bytes());
    status
}

fn run(path: &str) -> Result<(), String> {
    let env = Environment::of_this_process();
    let settings = Settings::from_environment(env.clone()).map_err(|e| connection::describe(&e))?;
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let runtime = runtime.map_err(|e| format!("the runtime could not be started: {e}"))?;
    let result = runtime.block_on(async {
        let mut screen = terminal::enter().map_err(|e| format!("the terminal cannot be used: {e}"))?;
        let result = turn(&mut screen, &env, settings, path).await;
        terminal::leave();
        result.map_err(|e| format!("the terminal cannot be used: {e}"))
    });
    // A thread that reads the terminal is not waited for.
    runtime.shutdown_background();
    result
}

/// Shows what is known, waits for what changes it, and so on until a person has had enough.
async fn turn(screen: &mut Screen, env: &Environment, settings: Settings, path: &str) -> std::io::Result<()> {
    let mut model = Model::new(now());
    let palette = view::Palette::of(env);
    let home = Settings { context_path: Some(path.to_owned()), ..settings.clone() };
    let (requests, mut updates) = connection::start(settings);
    let mut home =
        Box::pin(async { Client::connect(home).await.ok().and_then(|client| client.welcome().room_id.clone()) });
    let mut is_home_known = false;
    let (mut terminate, mut hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let mut events = Some(EventStream::new());
    loop {
        model.now = now();
        let mut shown = None;
        screen.draw(|frame| shown = Some(view::draw(&model, &palette, frame)))?;
        let mut actions = model.was_shown(shown.unwrap_or_default());
        if actions.is_empty() {
            let next_change = model.next_change();
            let minute = async {
                match next_change {
                    Some(after) => tokio::time::sleep(after).await,
                    None => std::future::pending().await,
                }
            };
            let stream = events.get_or_insert_with(EventStream::new);
            tokio::select! {
                update = updates.recv() => {
                    let Some(update) = update else { return Ok(()) };
                    actions.extend(model.apply(update));
                    while let Ok(update) = updates.try_recv() {
                        actions.extend(model.apply(update));
                    }
                }
                event = stream.next() => match event {
                    // The terminal is gone.
                    None | Some(Err(_)) => return Ok(()),
                    Some(Ok(event)) => actions.extend(typed(&mut model, event)),
                },
                room = &mut home, if !is_home_known => {
                    is_home_known = true;
                    actions.extend(model.set_home(room));
                }
                () = minute => {}
                _ = terminate.recv() => return Ok(()),
                _ = hangup.recv() => return Ok(()),
            }
        }
        for action in actions {
            match action {
                Action::Quit => return Ok(()),
                Action::Suspend | Action::Shell { .. } | Action::RunTt { .. } => {
                    // What is typed now is not for us.
                    events = None;
                    terminal::lend(screen, || give_way(env, &action))?;
                }
                action => perform(screen, env, &requests, action)?,
            }
        }
    }
}

fn typed(model: &mut Model, event: Event) -> Vec<Action> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => model.key(key),
        Event::Mouse(mouse) => model.mouse(mouse),
        Event::Paste(text) => model.paste(&text),
        Event::Key(_) | Event::Resize(..) | Event::FocusGained | Event::FocusLost => Vec::new(),
    }
}

fn perform(
    screen: &mut Screen,
    env: &Environment,
    requests: &UnboundedSender<Request>,
    action: Action,
) -> std::io::Result<()> {
    match action {
        Action::Ask(request) => {
            let _ = requests.send(request);
        }
        Action::Copy(text) => terminal::copy(&text)?,
        Action::Alert(text) => terminal::alert(env, &text)?,
        Action::Redraw => terminal::renew(screen)?,
        Action::Suspend | Action::Shell { .. } | Action::RunTt { .. } | Action::Quit => {}
    }
    Ok(())
}

/// Something else has the terminal for a while.
fn give_way(env: &Environment, action: &Action) {
    match action {
        Action::Suspend => terminal::stop(),
        Action::Shell { dir } => {
            let shell = env.get_str("SHELL").unwrap_or("/bin/sh");
            terminal::run(Command::new(shell).current_dir(dir));
        }
        Action::RunTt { args, dir } => terminal::run(Command::new(tt()).args(args).current_dir(dir)),
        _ => {}
    }
}

/// `tt` beside this program, else the one on the path.
fn tt() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join("tt")));
    beside.filter(|tt| tt.is_file()).unwrap_or_else(|| Path::new("tt").to_owned())
}
