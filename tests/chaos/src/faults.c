/* Loaded into the daemon with LD_PRELOAD: disks that fail or are slow, and clocks that jump. What happens is read from a file
 * that tt-chaos writes (src/control.rs has the same layout), mapped into memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    int64_t error;          /* the errno of calls that fail */
    int64_t percent;        /* how many of the calls fail */
    int64_t sync_delay_ms;  /* how long a sync takes longer */
    int64_t wall_ms;        /* how far the wall clock was set */
    int64_t boot_ms;        /* how long the machine was suspended */
    uint64_t failed;        /* how many calls have failed */
};

static volatile struct control *control;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("TT_CHAOS_CONTROL");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *at = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) control = at;
    close(fd);
}

static int is_file(int fd) {
    struct stat about;
    return fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
}

/* Whether a call on this descriptor fails now; errno says why. */
static int fails(int fd) {
    static __thread uint64_t state;
    if (!control || control->percent <= 0 || !is_file(fd)) return 0;
    if (state == 0) state = (uint64_t)(uintptr_t)&state ^ 0x9e3779b97f4a7c15u;
    state = state * 6364136223846793005u + 1442695040888963407u;
    if ((int64_t)((state >> 33) % 100) >= control->percent) return 0;
    __sync_fetch_and_add((uint64_t *)&control->failed, 1);
    errno = (int)control->error;
    return 1;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *bytes, size_t count) {
    REAL(write);
    return fails(fd) ? -1 : real(fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    return fails(fd) ? -1 : real(fd, parts, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    REAL(pwrite);
    /* Sometimes only a part is written before it fails. */
    if (fails(fd)) return (count > 1 && (control->failed & 1)) ? real(fd, bytes, count / 2, offset) : -1;
    return real(fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    REAL(pwrite64);
    if (fails(fd)) return (count > 1 && (control->failed & 1)) ? real(fd, bytes, count / 2, offset) : -1;
    return real(fd, bytes, count, offset);
}

int ftruncate(int fd, off_t length) {
    REAL(ftruncate);
    return fails(fd) ? -1 : real(fd, length);
}

int ftruncate64(int fd, off64_t length) {
    REAL(ftruncate64);
    return fails(fd) ? -1 : real(fd, length);
}

static void delay(void) {
    if (!control || control->sync_delay_ms <= 0) return;
    struct timespec pause = { control->sync_delay_ms / 1000, (control->sync_delay_ms % 1000) * 1000000 };
    nanosleep(&pause, NULL);
}

int fsync(int fd) {
    REAL(fsync);
    delay();
    return fails(fd) ? -1 : real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    delay();
    return fails(fd) ? -1 : real(fd);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result != 0 || !control) return result;
    int64_t ahead = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? control->wall_ms
        : clock == CLOCK_BOOTTIME ? control->boot_ms : 0;
    time->tv_sec += ahead / 1000;
    time->tv_nsec += (ahead % 1000) * 1000000;
    if (time->tv_nsec < 0) { time->tv_nsec += 1000000000; time->tv_sec -= 1; }
    if (time->tv_nsec >= 1000000000) { time->tv_nsec -= 1000000000; time->tv_sec += 1; }
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}
