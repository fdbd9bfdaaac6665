//! The sections of the documentation that explain errors, for someone who has only the program.

use tt_proto::ErrorCode;

const TROUBLESHOOTING: &str = include_str!("../docs/troubleshooting.md");

/// The section about an error code.
pub(crate) fn error_section(code: &str) -> Option<&'static str> {
    let heading = format!("\n### {code}\n");
    let from = TROUBLESHOOTING.find(&heading)? + "\n### ".len();
    let section = &TROUBLESHOOTING[from..];
    let end = ["\n## ", "\n### "].into_iter().filter_map(|next| section.find(next)).min();
    Some(section[..end.unwrap_or(section.len())].trim_end())
}

/// All codes, one a line.
pub(crate) fn error_codes() -> String {
    ErrorCode::ALL.iter().map(|code| format!("{code}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_section_and_nothing_else_of_the_page() {
        for code in ErrorCode::ALL {
            let section = error_section(code.as_str()).unwrap_or_else(|| panic!("{code} is not explained"));
            assert!(section.starts_with(code.as_str()) && section.lines().count() >= 3, "{section}");
            assert_eq!(section.matches("\n#").count(), 0, "{section}");
        }
        assert_eq!(error_section("no_such_code"), None);
    }
}
