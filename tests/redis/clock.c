/* A clock that can be set and that drifts: preloaded into a process, it moves the time of day ahead. The file that
 * PLIMSOLL_TEST_CLOCK names has the number of microseconds, and perhaps the drift in parts per million and the time in
 * microseconds since which there is one. Like the real one, the monotonic clock goes on. (libfaketime does not start with
 * the memory allocator of Redis.) */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long ahead(long long now) {
    char text[80] = {0};
    const char *path = getenv("PLIMSOLL_TEST_CLOCK");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    long long offset = 0, drift = 0, since = now;
    if (length > 0)
        sscanf(text, "%lld %lld %lld", &offset, &drift, &since);
    return offset + (now - since) * drift / 1000000;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (syscall(SYS_clock_gettime, clock, time) != 0)
        return -1;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        long long micros = time->tv_sec * 1000000LL + time->tv_nsec / 1000;
        micros += ahead(micros);
        time->tv_nsec = micros % 1000000 * 1000 + time->tv_nsec % 1000;
        time->tv_sec = micros / 1000000;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds != NULL)
        *seconds = now.tv_sec;
    return now.tv_sec;
}
