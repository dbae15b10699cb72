//! The program `meltemi`: reads its arguments, runs one command, turns the outcome into an exit code.

mod serve;

use std::process::ExitCode;

use anyhow::Result;

use commands::CommandOutcome;
use settings::Settings;
use settings::args::{self, Args, Command, Env, TokenCommand};

/// Its settings are in `.cargo/config.toml`: they are built in.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let (args, ignored) = match args::parse(std::env::args_os()) {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help goes to stdout with code 0, wrong arguments to stderr with code 2.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    for flag in ignored {
        eprintln!("warning: {flag} is not a flag of this version; it is ignored");
    }
    match run(args) {
        Ok(CommandOutcome::Done) => ExitCode::SUCCESS,
        Ok(CommandOutcome::Found) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: Args) -> Result<CommandOutcome> {
    let env = Env::read();
    match args.command {
        Command::Serve(args) => {
            let (settings, warnings) = Settings::new(*args, &env)?;
            for warning in warnings {
                eprintln!("warning: {warning}");
            }
            serve::run(settings)
        }
        Command::Check(args) => commands::check::run(args, &env),
        Command::Render(args) => commands::render::run(args, &env),
        Command::Plan(args) => commands::plan::run(&args, &env),
        Command::Wait(args) => commands::wait::run(&args),
        Command::Bootstrap(args) => commands::bootstrap::run(*args, &env),
        Command::Agent(args) => commands::agent::run(*args, &env),
        Command::InstallAgent(args) => commands::install_agent::run(&args),
        Command::Demo(args) => commands::demo::run(&args),
        Command::Ca(command) => commands::root_rotation::run(&command),
        Command::Proxies(args) => commands::proxies::run(&args),
        Command::Explain(command) => commands::explain::run(*command, &env),
        Command::Nacks(args) => commands::nacks::run(&args),
        Command::History(args) => commands::history::run(&args),
        Command::Diff(args) => commands::history::diff::run(&args),
        Command::Blame(args) => commands::history::blame::run(&args),
        Command::Replicas(args) => commands::replicas::run(&args),
        Command::Request(args) => commands::request::run(&args),
        Command::Scope(command) => commands::scope::run(command, &env),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Pushes(args) => commands::pushes::run(&args),
        Command::Token(TokenCommand::Create(args)) => commands::token::create(&args, &env),
        Command::AdmissionPolicy => Ok(commands::admission::run()),
        Command::Inject(args) => commands::inject::run(args, &env),
        Command::CheckInject(args) => commands::check_inject::run(&args, &env),
        Command::ServiceEntries(args) => commands::service_entries::run(args, &env),
        Command::Values(args) => commands::values::run(&args),
        Command::Version(args) => Ok(commands::show_version(&args)),
    }
}
