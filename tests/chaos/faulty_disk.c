/* A disk that is slow, takes nothing, fails or lies, for the files under one folder: preloaded by faulty_disks.py,
   which replaces the two names in capitals. The file MODE holds one word, and for "slow" a number of milliseconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum mode { SOUND, SLOW, READ_ONLY, FAILING, LYING };

static enum mode now(long *pause_ms) {
    char text[64] = {0};
    int file = syscall(SYS_openat, AT_FDCWD, "@MODE@", O_RDONLY | O_CLOEXEC);
    if (file < 0) return SOUND;
    long size = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    if (size <= 0) return SOUND;
    if (!strncmp(text, "slow ", 5)) { *pause_ms = atol(text + 5); return SLOW; }
    if (!strncmp(text, "read-only", 9)) return READ_ONLY;
    if (!strncmp(text, "failing", 7)) return FAILING;
    if (!strncmp(text, "lying", 5)) return LYING;
    return SOUND;
}

static int under(const char *path) { return !strncmp(path, "@DISK@/", strlen("@DISK@/")); }

static int named(int folder, const char *path) {
    char base[PATH_MAX] = {0}, whole[2 * PATH_MAX], link[64];
    if (path[0] == '/') return under(path);
    if (folder == AT_FDCWD) { if (syscall(SYS_getcwd, base, sizeof base) < 0) return 0; }
    else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        if (readlink(link, base, sizeof base - 1) < 0) return 0;
    }
    snprintf(whole, sizeof whole, "%s/%s", base, path);
    return under(whole);
}

static int held(int file) {
    char link[64], path[PATH_MAX] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    return readlink(link, path, sizeof path - 1) > 0 && under(path);
}

/* What a change of the disk comes to: 0, it goes on; else the error. */
static int trouble(enum mode mode, long pause_ms) {
    if (mode == SLOW) {
        struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000};
        nanosleep(&pause, NULL);
    }
    return mode == READ_ONLY ? EROFS : mode == FAILING ? EIO : 0;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define CHECK(mine) do { \
    long pause_ms = 0; int kept = errno, error; enum mode mode = now(&pause_ms); \
    if (mode != SOUND && mode != LYING && (mine) && (error = trouble(mode, pause_ms))) { errno = error; return -1; } \
    errno = kept; } while (0)

ssize_t write(int file, const void *data, size_t size) { REAL(write); CHECK(held(file)); return real(file, data, size); }
ssize_t writev(int file, const struct iovec *data, int count) { REAL(writev); CHECK(held(file)); return real(file, data, count); }
ssize_t pwrite(int file, const void *data, size_t size, off_t at) { REAL(pwrite); CHECK(held(file)); return real(file, data, size, at); }
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) { REAL(pwrite64); CHECK(held(file)); return real(file, data, size, at); }
int ftruncate(int file, off_t size) { REAL(ftruncate); CHECK(held(file)); return real(file, size); }
int ftruncate64(int file, off64_t size) { REAL(ftruncate64); CHECK(held(file)); return real(file, size); }
int mkdir(const char *path, mode_t rights) { REAL(mkdir); CHECK(named(AT_FDCWD, path)); return real(path, rights); }
int unlink(const char *path) { REAL(unlink); CHECK(named(AT_FDCWD, path)); return real(path); }
int rmdir(const char *path) { REAL(rmdir); CHECK(named(AT_FDCWD, path)); return real(path); }
int unlinkat(int folder, const char *path, int flags) { REAL(unlinkat); CHECK(named(folder, path)); return real(folder, path, flags); }
int rename(const char *from, const char *to) { REAL(rename); CHECK(named(AT_FDCWD, to)); return real(from, to); }

#define SYNC(name) int name(int file) { \
    REAL(name); long pause_ms = 0; \
    if (now(&pause_ms) == LYING && held(file)) return 0; \
    CHECK(held(file)); return real(file); }
SYNC(fsync)
SYNC(fdatasync)
SYNC(syncfs)

#define CHANGES (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
#define OPEN(name) int name(const char *path, int flags, ...) { \
    REAL(name); mode_t rights = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); rights = va_arg(more, mode_t); va_end(more); } \
    if (flags & CHANGES) CHECK(named(AT_FDCWD, path)); \
    return real(path, flags, rights); }
#define OPEN_AT(name) int name(int folder, const char *path, int flags, ...) { \
    REAL(name); mode_t rights = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); rights = va_arg(more, mode_t); va_end(more); } \
    if (flags & CHANGES) CHECK(named(folder, path)); \
    return real(folder, path, flags, rights); }
OPEN(open)
OPEN(open64)
OPEN_AT(openat)
OPEN_AT(openat64)
