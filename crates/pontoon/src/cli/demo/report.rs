//! The report of the demo server: a file in the work directory.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes a report of this format; tells where it is and how many bytes it has.
pub(super) fn write(
    dir: &Path,
    name: &str,
    format: &str,
    title: &str,
    lines: &[&str],
) -> io::Result<(PathBuf, usize)> {
    let content = match format {
        "csv" => csv(lines),
        "md" => markdown(title, lines),
        _ => html(title, lines),
    };
    let name = name.strip_suffix(&format!(".{format}")).unwrap_or(name);
    let path = write_new(dir, &safe_name(name), format, content.as_bytes())?;
    Ok((path, content.len()))
}

fn html(title: &str, lines: &[&str]) -> String {
    let safe = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let items: String = lines.iter().map(|line| format!("<li>{}</li>\n", safe(line))).collect();
    let title = safe(title);
    format!(
        "<!doctype html>\n<html lang=\"\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>body {{ font: 1.1rem/1.6 system-ui; max-width: 40rem; margin: 3rem auto }}</style>\n\
         <h1>{title}</h1>\n<ul>\n{items}</ul>\n</html>\n"
    )
}

/// With a byte order mark, without which Excel takes UTF-8 for something else.
fn csv(lines: &[&str]) -> String {
    let mut csv = String::from("\u{feff}\"number\",\"text\"\r\n");
    for (line, number) in lines.iter().zip(1_u32..) {
        // A cell that begins like a formula would be run when the file is opened.
        let guard = if line.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
        csv += &format!("{number},\"{guard}{}\"\r\n", line.replace('"', "\"\""));
    }
    csv
}

fn markdown(title: &str, lines: &[&str]) -> String {
    let items: String = lines.iter().map(|line| format!("- {line}\n")).collect();
    format!("# {title}\n\n{items}")
}

/// Letters and digits of any script, with a hyphen for each run of something else.
fn safe_name(text: &str) -> String {
    let words =
        text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let name: String = words.collect::<Vec<_>>().join("-").chars().take(60).collect();
    if name.is_empty() { "report".into() } else { name }
}

/// Writes a file that was not there before; a name in use gets a number.
fn write_new(dir: &Path, name: &str, format: &str, content: &[u8]) -> io::Result<PathBuf> {
    for number in 1..1000 {
        let number = if number == 1 { String::new() } else { format!("-{number}") };
        let path = dir.join(format!("{name}{number}.{format}"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(content)?;
                return path.canonicalize();
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("there are too many files called {name}")))
}
