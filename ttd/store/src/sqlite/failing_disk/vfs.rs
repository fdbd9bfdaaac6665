//! A file system for SQLite in front of the operating system's. On directories that a test has named it counts the calls
//! and fails one of them; everywhere else it does nothing.
#![expect(unsafe_code, reason = "SQLite calls a file system through C functions")]

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, OnceLock, PoisonError};

use rusqlite::ffi;

/// A call of SQLite that reaches the disk and can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    Open,
    Delete,
    Access,
    Read,
    Write,
    Truncate,
    Sync,
    FileSize,
    Lock,
    MapSharedMemory,
    LockSharedMemory,
}

impl Call {
    /// What SQLite is told when the call fails.
    fn error(self) -> c_int {
        match self {
            Call::Open => ffi::SQLITE_CANTOPEN,
            Call::Delete => ffi::SQLITE_IOERR_DELETE,
            Call::Access => ffi::SQLITE_IOERR_ACCESS,
            Call::Read => ffi::SQLITE_IOERR_READ,
            Call::Write => ffi::SQLITE_IOERR_WRITE,
            Call::Truncate => ffi::SQLITE_IOERR_TRUNCATE,
            Call::Sync => ffi::SQLITE_IOERR_FSYNC,
            Call::FileSize => ffi::SQLITE_IOERR_FSTAT,
            Call::Lock => ffi::SQLITE_IOERR_LOCK,
            Call::MapSharedMemory => ffi::SQLITE_IOERR_SHMMAP,
            Call::LockSharedMemory => ffi::SQLITE_IOERR_SHMLOCK,
        }
    }
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// This one call fails.
    Error,
    /// Half of it is written, and the call fails.
    ShortWrite,
    /// From here on nothing can be written, until there is space again.
    Full,
    /// From here on every call fails. Of what was written and not synced, this much reaches the disk.
    PowerCut(Kept),
}

/// Which of the writes that were not synced survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    All,
    None,
    /// The disk wrote them in an order of its own.
    EverySecond,
}

impl Fault {
    pub(super) const ALL: [Fault; 6] = [
        Fault::Error,
        Fault::ShortWrite,
        Fault::Full,
        Fault::PowerCut(Kept::All),
        Fault::PowerCut(Kept::None),
        Fault::PowerCut(Kept::EverySecond),
    ];

    /// Whether the fault makes a difference at this call.
    pub(super) fn applies_to(self, call: Call) -> bool {
        match self {
            Fault::Error | Fault::PowerCut(Kept::All) => true,
            Fault::ShortWrite | Fault::Full => call == Call::Write,
            // Only where something was written since.
            Fault::PowerCut(_) => matches!(call, Call::Write | Call::Truncate | Call::Sync | Call::Delete),
        }
    }
}

/// A change of a file that was not synced.
#[derive(Debug)]
struct Change {
    file: PathBuf,
    offset: u64,
    before: Vec<u8>,
    /// None: the file was cut off at the offset.
    after: Option<Vec<u8>>,
    length_before: u64,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
    fault: Option<(usize, Fault)>,
    has_fired: bool,
    is_full: bool,
    is_cut: bool,
    unsynced: Vec<Change>,
    open_files: usize,
}

/// The disk below one directory.
#[derive(Debug)]
pub(super) struct Disk {
    dir: PathBuf,
    state: Mutex<State>,
    closed: Condvar,
}

/// How a call goes on.
enum Verdict {
    Proceed,
    WriteHalf,
    Fail(c_int),
}

thread_local! {
    /// Whether what this thread does is no part of the story.
    static UNCOUNTED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn disks() -> &'static Mutex<BTreeMap<PathBuf, Arc<Disk>>> {
    static DISKS: OnceLock<Mutex<BTreeMap<PathBuf, Arc<Disk>>>> = OnceLock::new();
    DISKS.get_or_init(Mutex::default)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// Puts itself in front of every database that is opened below this directory from now on.
    pub(super) fn below(dir: &Path) -> Arc<Self> {
        register();
        let dir = dir.canonicalize().unwrap();
        let disk = Arc::new(Self { dir: dir.clone(), state: Mutex::default(), closed: Condvar::new() });
        locked(disks()).insert(dir, disk.clone());
        disk
    }

    fn of(file: &Path) -> Option<Arc<Self>> {
        locked(disks()).get(file.parent()?).cloned()
    }

    /// Fails the call with this number, counted from now.
    pub(super) fn fail_at(&self, call: usize, fault: Fault) {
        let mut state = locked(&self.state);
        state.calls.clear();
        state.fault = Some((call, fault));
    }

    /// The calls so far.
    pub(super) fn calls(&self) -> Vec<Call> {
        locked(&self.state).calls.clone()
    }

    pub(super) fn has_fired(&self) -> bool {
        locked(&self.state).has_fired
    }

    pub(super) fn is_cut(&self) -> bool {
        locked(&self.state).is_cut
    }

    /// Space was made.
    pub(super) fn make_space(&self) {
        locked(&self.state).is_full = false;
    }

    /// Waits until no file is open: connections of a pool are closed on a thread of their own.
    pub(super) fn wait_until_closed(&self) {
        let state = locked(&self.state);
        let limit = std::time::Duration::from_secs(60);
        let (state, waited) = self
            .closed
            .wait_timeout_while(state, limit, |state| state.open_files > 0)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "{} files stay open", state.open_files);
    }

    /// The machine starts again: after a power cut, with what reached the disk. From here on nothing fails.
    pub(super) fn restart(&self) {
        let mut state = locked(&self.state);
        assert_eq!(state.open_files, 0, "a file is open");
        let changes = std::mem::take(&mut state.unsynced);
        if let Some((_, Fault::PowerCut(kept))) = state.fault.filter(|_| state.is_cut) {
            changes.iter().rev().for_each(Change::undo);
            let survives = |index: usize| match kept {
                Kept::All => true,
                Kept::None => false,
                Kept::EverySecond => index.is_multiple_of(2),
            };
            changes.iter().enumerate().filter(|(index, _)| survives(*index)).for_each(|(_, change)| change.redo());
        }
        *state = State { has_fired: state.has_fired, ..State::default() };
    }

    /// Stops watching the directory.
    pub(super) fn forget(&self) {
        locked(disks()).remove(&self.dir);
    }

    /// Runs a look at the database that is no part of the story: it is not counted and does not fail.
    pub(super) fn without_faults<T>(&self, look: impl FnOnce() -> T) -> T {
        UNCOUNTED.set(true);
        let result = look();
        UNCOUNTED.set(false);
        result
    }

    fn begin(&self, call: Call) -> Verdict {
        if UNCOUNTED.get() {
            return Verdict::Proceed;
        }
        let mut state = locked(&self.state);
        if state.is_cut {
            return Verdict::Fail(call.error());
        }
        let number = state.calls.len();
        state.calls.push(call);
        let fault = state.fault.filter(|(at, _)| *at == number).map(|(_, fault)| fault);
        state.has_fired |= fault.is_some();
        match fault {
            Some(Fault::Error) => return Verdict::Fail(call.error()),
            Some(Fault::ShortWrite) => return Verdict::WriteHalf,
            Some(Fault::Full) => state.is_full = true,
            Some(Fault::PowerCut(_)) => {
                state.is_cut = true;
                return Verdict::Fail(call.error());
            }
            None => {}
        }
        if state.is_full && call == Call::Write { Verdict::Fail(ffi::SQLITE_FULL) } else { Verdict::Proceed }
    }

    fn changed(&self, change: Change) {
        locked(&self.state).unsynced.push(change);
    }

    /// What was written to the file is on the disk, or the file is gone.
    fn settled(&self, file: &Path) {
        locked(&self.state).unsynced.retain(|change| change.file != file);
    }

    fn opened(&self) {
        locked(&self.state).open_files += 1;
    }

    fn closed(&self) {
        locked(&self.state).open_files -= 1;
        self.closed.notify_all();
    }
}

impl Change {
    fn open(&self) -> Option<std::fs::File> {
        // A file that was deleted since has nothing to lose.
        std::fs::OpenOptions::new().write(true).open(&self.file).ok()
    }

    fn undo(&self) {
        let Some(file) = self.open() else { return };
        file.set_len(self.length_before).unwrap();
        file.write_all_at(&self.before, self.offset).unwrap();
    }

    fn redo(&self) {
        let Some(file) = self.open() else { return };
        match &self.after {
            Some(bytes) => file.write_all_at(bytes, self.offset).unwrap(),
            None => file.set_len(self.offset).unwrap(),
        }
    }
}

/// A file as SQLite sees it. The operating system's follows it in memory.
#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    watched: *mut Watched,
}

/// A file on a disk that a test has named.
struct Watched {
    disk: Arc<Disk>,
    path: PathBuf,
}

/// The operating system's file system.
fn system() -> *mut ffi::sqlite3_vfs {
    static SYSTEM: OnceLock<usize> = OnceLock::new();
    // SAFETY: a null name asks for the default, which SQLite has and never frees.
    let find = || unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) } as usize;
    *SYSTEM.get_or_init(find) as *mut ffi::sqlite3_vfs
}

fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        let system = system();
        // SAFETY: `system` is valid for ever. What is registered is leaked, so it is as well; it differs from the copied
        // structure in functions that keep the contract of those they replace.
        unsafe {
            let mut vfs = *system;
            vfs.szOsFile += c_int::try_from(size_of::<File>()).unwrap();
            vfs.pNext = std::ptr::null_mut();
            vfs.zName = c"failing_disk".as_ptr();
            vfs.xOpen = Some(open);
            vfs.xDelete = Some(delete);
            vfs.xAccess = Some(access);
            assert_eq!(ffi::sqlite3_vfs_register(Box::leak(Box::new(vfs)), 1), ffi::SQLITE_OK);
        }
    });
}

/// The path that SQLite names.
///
/// # Safety
/// The name is null or a C string.
unsafe fn path_of(name: *const c_char) -> Option<PathBuf> {
    if name.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    Some(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// The operating system's file behind one of ours, with its functions.
///
/// # Safety
/// The file was opened by [`open`] and not closed.
unsafe fn inner(file: *mut ffi::sqlite3_file) -> (*mut ffi::sqlite3_file, &'static ffi::sqlite3_io_methods) {
    // SAFETY: SQLite allocates `szOsFile` bytes, ours and the system's; the functions of an open file live for ever.
    unsafe {
        let inner = file.byte_add(size_of::<File>());
        (inner, &*(*inner).pMethods)
    }
}

/// # Safety
/// The file was opened by [`open`] and not closed.
unsafe fn watched<'a>(file: *mut ffi::sqlite3_file) -> Option<&'a Watched> {
    // SAFETY: a file of ours, whose pointer is null or owned by it until it is closed.
    unsafe { (*file.cast::<File>()).watched.as_ref() }
}

/// Whether a call on a file goes on.
///
/// # Safety
/// The file was opened by [`open`] and not closed.
unsafe fn begin(file: *mut ffi::sqlite3_file, call: Call) -> Verdict {
    // SAFETY: by the caller's promise.
    unsafe { watched(file) }.map_or(Verdict::Proceed, |watched| watched.disk.begin(call))
}

fn begin_by_name(path: Option<&Path>, call: Call) -> Verdict {
    path.and_then(Disk::of).map_or(Verdict::Proceed, |disk| disk.begin(call))
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes a name that is null or a C string, and `szOsFile` bytes for the file.
    unsafe {
        (*file).pMethods = std::ptr::null();
        let path = path_of(name);
        if let Verdict::Fail(code) = begin_by_name(path.as_deref(), Call::Open) {
            return code;
        }
        let Some(open) = (*system()).xOpen else { return ffi::SQLITE_CANTOPEN };
        let code = open(system(), name, file.byte_add(size_of::<File>()), flags, flags_out);
        if code == ffi::SQLITE_OK {
            let watched = path.and_then(|path| Some(Watched { disk: Disk::of(&path)?, path }));
            if let Some(watched) = &watched {
                watched.disk.opened();
            }
            let watched = watched.map_or(std::ptr::null_mut(), |watched| Box::into_raw(Box::new(watched)));
            file.cast::<File>().write(File { base: ffi::sqlite3_file { pMethods: &METHODS }, watched });
        }
        code
    }
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    // SAFETY: SQLite passes a C string.
    unsafe {
        let path = path_of(name);
        if let Verdict::Fail(code) = begin_by_name(path.as_deref(), Call::Delete) {
            return code;
        }
        if let Some(path) = path
            && let Some(disk) = Disk::of(&path)
        {
            disk.settled(&path);
        }
        (*system()).xDelete.map_or(ffi::SQLITE_IOERR_DELETE, |delete| delete(system(), name, sync_dir))
    }
}

unsafe extern "C" fn access(_: *mut ffi::sqlite3_vfs, name: *const c_char, flags: c_int, found: *mut c_int) -> c_int {
    // SAFETY: SQLite passes a C string and a place for the result.
    unsafe {
        if let Verdict::Fail(code) = begin_by_name(path_of(name).as_deref(), Call::Access) {
            return code;
        }
        (*system()).xAccess.map_or(ffi::SQLITE_IOERR_ACCESS, |access| access(system(), name, flags, found))
    }
}

/// Defines the function of a file that asks first and then calls the operating system's.
macro_rules! forward {
    ($name:ident, $method:ident, $call:expr, ($($argument:ident: $type:ty),*)) => {
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file, $($argument: $type),*) -> c_int {
            // SAFETY: SQLite calls this for a file that `open` opened, with arguments that fit the operating system's.
            unsafe {
                let call: Option<Call> = $call;
                if let Some(call) = call
                    && let Verdict::Fail(code) = begin(file, call)
                {
                    return code;
                }
                let (inner, methods) = inner(file);
                methods.$method.map_or(ffi::SQLITE_ERROR, |method| method(inner, $($argument),*))
            }
        }
    };
}

forward!(read, xRead, Some(Call::Read), (buffer: *mut c_void, amount: c_int, offset: i64));
forward!(file_size, xFileSize, Some(Call::FileSize), (size: *mut i64));
forward!(lock, xLock, Some(Call::Lock), (level: c_int));
// Giving a lock back cannot fail: a process that ends has given back all of them.
forward!(unlock, xUnlock, None, (level: c_int));
forward!(check_reserved_lock, xCheckReservedLock, None, (found: *mut c_int));
forward!(file_control, xFileControl, None, (operation: c_int, argument: *mut c_void));
forward!(sector_size, xSectorSize, None, ());
forward!(device_characteristics, xDeviceCharacteristics, None, ());
forward!(
    map_shared_memory, xShmMap, Some(Call::MapSharedMemory),
    (page: c_int, page_size: c_int, extend: c_int, at: *mut *mut c_void)
);
forward!(
    lock_shared_memory, xShmLock, (flags & ffi::SQLITE_SHM_LOCK != 0).then_some(Call::LockSharedMemory),
    (offset: c_int, count: c_int, flags: c_int)
);
forward!(unmap_shared_memory, xShmUnmap, None, (remove: c_int));

unsafe extern "C" fn shared_memory_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: SQLite calls this for a file that `open` opened.
    unsafe {
        let (inner, methods) = inner(file);
        if let Some(barrier) = methods.xShmBarrier {
            barrier(inner);
        }
    }
}

/// The length of a file, and its bytes in a range.
///
/// # Safety
/// The file was opened by [`open`] and not closed.
unsafe fn contents(file: *mut ffi::sqlite3_file, offset: i64, amount: Option<c_int>) -> (u64, Vec<u8>) {
    // SAFETY: the buffer is as long as the read.
    unsafe {
        let (inner, methods) = inner(file);
        let mut length = 0;
        methods.xFileSize.unwrap()(inner, &mut length);
        let end = amount.map_or(length, |amount| (offset + i64::from(amount)).min(length));
        let mut bytes = vec![0; usize::try_from((end - offset).max(0)).unwrap()];
        if !bytes.is_empty() {
            let amount = c_int::try_from(bytes.len()).unwrap();
            assert_eq!(methods.xRead.unwrap()(inner, bytes.as_mut_ptr().cast(), amount, offset), ffi::SQLITE_OK);
        }
        (u64::try_from(length).unwrap(), bytes)
    }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, bytes: *const c_void, amount: c_int, offset: i64) -> c_int {
    // SAFETY: SQLite calls this for a file that `open` opened, with as many bytes as it says.
    unsafe {
        let verdict = begin(file, Call::Write);
        let amount = match verdict {
            Verdict::Fail(code) => return code,
            Verdict::WriteHalf => amount / 2,
            Verdict::Proceed => amount,
        };
        if let Some(watched) = watched(file) {
            let (length_before, before) = contents(file, offset, Some(amount));
            let after = std::slice::from_raw_parts(bytes.cast::<u8>(), usize::try_from(amount).unwrap()).to_vec();
            let (file, offset) = (watched.path.clone(), u64::try_from(offset).unwrap());
            watched.disk.changed(Change { file, offset, before, after: Some(after), length_before });
        }
        let (inner, methods) = inner(file);
        let code = methods.xWrite.unwrap()(inner, bytes, amount, offset);
        if matches!(verdict, Verdict::WriteHalf) { Call::Write.error() } else { code }
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite calls this for a file that `open` opened.
    unsafe {
        if let Verdict::Fail(code) = begin(file, Call::Truncate) {
            return code;
        }
        if let Some(watched) = watched(file) {
            let (length_before, before) = contents(file, size, None);
            let (file, offset) = (watched.path.clone(), u64::try_from(size).unwrap());
            watched.disk.changed(Change { file, offset, before, after: None, length_before });
        }
        let (inner, methods) = inner(file);
        methods.xTruncate.unwrap()(inner, size)
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite calls this for a file that `open` opened.
    unsafe {
        if let Verdict::Fail(code) = begin(file, Call::Sync) {
            return code;
        }
        match watched(file) {
            // The machine will not lose power for real, and a real sync would make the test slow.
            Some(watched) => {
                watched.disk.settled(&watched.path);
                ffi::SQLITE_OK
            }
            None => {
                let (inner, methods) = inner(file);
                methods.xSync.unwrap()(inner, flags)
            }
        }
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file that `open` opened, once.
    unsafe {
        let (inner, methods) = inner(file);
        let code = methods.xClose.unwrap()(inner);
        let watched = (*file.cast::<File>()).watched;
        if !watched.is_null() {
            Box::from_raw(watched).disk.closed();
        }
        code
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // The second version: shared memory, and no memory-mapped files.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(map_shared_memory),
    xShmLock: Some(lock_shared_memory),
    xShmBarrier: Some(shared_memory_barrier),
    xShmUnmap: Some(unmap_shared_memory),
    xFetch: None,
    xUnfetch: None,
};
