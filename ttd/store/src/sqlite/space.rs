//! Giving back the space of deleted rows. The pages they leave behind are moved to the end of the file, which then becomes
//! shorter: in small steps, between the commits that callers wait for.

use rusqlite::Connection;
use tt_proto::Error;

use super::query_failed;

/// Free pages that are kept for the next rows. Few in tests, so that they need not write much to leave more.
const KEPT_PAGES: i64 = if cfg!(test) { 4 } else { 256 };

/// Free pages that one step gives back: a megabyte.
const STEP_PAGES: i64 = 256;

/// What `PRAGMA auto_vacuum` says of a database whose pages can be given back in steps.
const INCREMENTAL: i64 = 2;

/// Whether the database can give back space.
pub(super) fn is_given_back(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(pragma(connection, "auto_vacuum")? == INCREMENTAL)
}

/// Has to come before the first table, or before a rebuild.
pub(super) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")
}

/// Rebuilds a database of an earlier version, once, so that it can give back space from then on. It works without, too.
pub(super) fn rebuild_if_needed(connection: &Connection) {
    let rebuild = || match is_given_back(connection)? {
        true => Ok(()),
        false => connection.execute_batch("VACUUM"),
    };
    if let Err(e) = rebuild() {
        tracing::warn!("the database cannot be rebuilt now, and does not become smaller: {e}");
    }
}

/// Whether there is enough free space to give back.
pub(super) fn is_reclaimable(connection: &Connection) -> Result<bool, Error> {
    let free = || Ok(is_given_back(connection)? && pragma(connection, "freelist_count")? > KEPT_PAGES);
    free().map_err(query_failed)
}

/// Gives back some free space, if there is much.
pub(super) fn reclaim(connection: &Connection) -> Result<(), Error> {
    if !is_reclaimable(connection)? {
        return Ok(());
    }
    let step = || {
        let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({STEP_PAGES})"))?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        Ok(())
    };
    step().map_err(query_failed)
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY_ROWS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
                             INSERT INTO t SELECT randomblob(4000) FROM n";

    #[test]
    fn what_was_deleted_is_given_back_in_steps() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("db");
        let connection = Connection::open(&file).unwrap();
        prepare(&connection).unwrap();
        connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (b)").unwrap();
        connection.execute_batch(MANY_ROWS).unwrap();
        let pages = || pragma(&connection, "page_count").unwrap();
        let full = pages();
        assert!(!is_reclaimable(&connection).unwrap());
        connection.execute("DELETE FROM t", []).unwrap();
        let mut steps = 0;
        while is_reclaimable(&connection).unwrap() {
            let before = pages();
            reclaim(&connection).unwrap();
            // With the page that says where these were.
            assert!((1..=STEP_PAGES + 1).contains(&(before - pages())), "{before} pages became {}", pages());
            steps += 1;
        }
        assert!(steps > 3 && pages() < full / 4, "{full} pages became {} in {steps} steps", pages());
    }

    #[test]
    fn a_database_of_an_earlier_version_is_rebuilt_once() {
        let dir = tempfile::tempdir().unwrap();
        let connection = Connection::open(dir.path().join("db")).unwrap();
        connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (b)").unwrap();
        connection.execute_batch(MANY_ROWS).unwrap();
        assert!(!is_given_back(&connection).unwrap());
        connection.execute("DELETE FROM t", []).unwrap();
        assert!(!is_reclaimable(&connection).unwrap());
        reclaim(&connection).unwrap();
        prepare(&connection).unwrap();
        rebuild_if_needed(&connection);
        assert!(is_given_back(&connection).unwrap());
        assert!(pragma(&connection, "page_count").unwrap() < 10);
    }
}
