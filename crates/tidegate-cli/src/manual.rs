//! `tidegate completions` and `tidegate man`.

use std::io;
use std::path::Path;

use clap::CommandFactory;

use crate::args::{CompletionsArgs, ManArgs, Tidegate};
use crate::io::{Exit, Io};

pub(crate) fn completions(args: &CompletionsArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    // The generator panics when it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Tidegate::command(), "tidegate", &mut script);
    io.stdout.write_all(&script)?;
    Ok(Exit::Success)
}

pub(crate) fn pages(args: &ManArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let Some(directory) = &args.directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Tidegate::command()).render(&mut page)?;
        io.stdout.write_all(&page)?;
        return Ok(Exit::Success);
    };
    match write_pages(directory) {
        Ok(()) => {
            writeln!(io.stderr, "wrote the man pages to `{}`", directory.display())?;
            Ok(Exit::Success)
        }
        Err(error) => {
            let directory = directory.display();
            writeln!(io.stderr, "error: cannot write man pages to `{directory}`: {error}")?;
            Ok(Exit::Error)
        }
    }
}

fn write_pages(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Tidegate::command(), directory)
}
