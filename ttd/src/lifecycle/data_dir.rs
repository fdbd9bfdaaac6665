//! The directory that holds the database, the socket and the log.

use std::path::Path;

use tt_proto::filesystem::Filesystem;
use tt_proto::paths::{Paths, ensure_private_dir};
use tt_proto::{Error, ErrorCode};

/// Creates the data directory or checks the one that is there. A network filesystem is refused: SQLite's locks and its
/// write-ahead log do not work there.
pub fn prepare(paths: &Paths, filesystem: fn(&Path) -> Filesystem) -> Result<(), Error> {
    ensure_private_dir(&paths.data_dir)?;
    if let Filesystem::Network(kind) = filesystem(&paths.data_dir) {
        let shown = paths.data_dir.display();
        return Err(Error::new(
            ErrorCode::StorageUnavailable,
            format!("{shown} is on a network filesystem ({kind}), where a database can be corrupted"),
        )
        .hint("set TALKING_STICK_DATA_DIR to a private directory on a local disk")
        .detail("path", shown.to_string()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tt_proto::filesystem::filesystem;

    use super::*;

    #[test]
    fn a_network_filesystem_is_refused_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data");
        let paths = Paths { socket: data_dir.join("ttd.sock"), config_dir: data_dir.clone(), data_dir };
        let error = prepare(&paths, |_| Filesystem::Network("nfs")).unwrap_err();
        assert_eq!(error.code, ErrorCode::StorageUnavailable);
        assert!(error.message.contains("nfs") && error.hint.contains("TALKING_STICK_DATA_DIR"));
        prepare(&paths, |_| Filesystem::Local).unwrap();
        prepare(&paths, filesystem).unwrap();
    }
}
