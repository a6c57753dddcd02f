/* A name service that can hang: preloaded into a process, it knows the host "redis.test". While the
 * file exists that STALLED names, a question gets no answer; like the usual resolver, it is asked a
 * second time after five seconds, and given up after ten. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    lookup *real = (lookup *)dlsym(RTLD_NEXT, "getaddrinfo");
    if (host == NULL || strcmp(host, "redis.test") != 0)
        return real(host, service, hints, found);
    const char *stalled = getenv("TOLLGATE_TEST_STALLED");
    for (int asked = 0; stalled != NULL && access(stalled, F_OK) == 0; asked++) {
        if (asked == 2)
            return EAI_AGAIN;
        sleep(5);
    }
    return real("127.0.0.1", service, hints, found);
}
