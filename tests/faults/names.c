/* A name service that can hang: preloaded into a process, it knows the host "redis.test", whose
 * address is the content of the file that PLIMSOLL_TEST_ADDRESS names. While that file is empty, a
 * resolution gets no answer; like the usual resolver, it asks again after five seconds, and gives up
 * after ten. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int resolve(const char *, const char *, const struct addrinfo *, struct addrinfo **);

static int address(char *text, int size) {
    const char *path = getenv("PLIMSOLL_TEST_ADDRESS");
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    int found = file != NULL && fgets(text, size, file) != NULL;
    if (file != NULL)
        fclose(file);
    return found;
}

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    resolve *real = (resolve *)dlsym(RTLD_NEXT, "getaddrinfo");
    if (host == NULL || strcmp(host, "redis.test") != 0)
        return real(host, service, hints, found);
    char text[64];
    for (int tries = 0; !address(text, sizeof text); tries++) {
        if (tries == 2)
            return EAI_AGAIN;
        sleep(5);
    }
    return real(text, service, hints, found);
}
