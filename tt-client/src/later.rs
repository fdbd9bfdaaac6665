//! A command described to the argument parser only once it is the one that was given. Describing all of them costs a short
//! command more than parsing its own words does.

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

#[derive(Debug)]
pub(crate) struct Later<T>(pub T);

impl<T: FromArgMatches> FromArgMatches for Later<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches(matches).map(Later)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Later<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(T::augment_args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(T::augment_args_for_update)
    }
}

impl<T: Subcommand> Subcommand for Later<T> {
    fn augment_subcommands(command: Command) -> Command {
        command.defer(T::augment_subcommands)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        command.defer(T::augment_subcommands_for_update)
    }

    fn has_subcommand(name: &str) -> bool {
        T::has_subcommand(name)
    }
}
