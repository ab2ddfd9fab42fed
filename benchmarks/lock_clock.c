/* A clock of Python's lock, put in front of libpython by LD_PRELOAD (Linux): for how long has this thread not held it?

   All code that gives the lock away calls one of four functions. These call the real ones, and note the time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

static __thread long long since, total;   /* nanoseconds: when it was given away; how long in all */
static __thread int is_away, depth, took_it[64];
static void *(*save)(void);
static void (*restore)(void *);
static int (*ensure)(void);
static void (*release)(int);

__attribute__((constructor)) static void find(void) {
    save = dlsym(RTLD_NEXT, "PyEval_SaveThread");
    restore = dlsym(RTLD_NEXT, "PyEval_RestoreThread");
    ensure = dlsym(RTLD_NEXT, "PyGILState_Ensure");
    release = dlsym(RTLD_NEXT, "PyGILState_Release");
}

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void give(void) { if (!is_away) { is_away = 1; since = now(); } }
static int take(void) { if (!is_away) return 0; is_away = 0; total += now() - since; return 1; }

void *PyEval_SaveThread(void) { void *state = save(); give(); return state; }
void PyEval_RestoreThread(void *state) { take(); restore(state); }
int PyGILState_Ensure(void) { int was_away = take(); if (depth < 64) took_it[depth] = was_away; depth++; return ensure(); }
void PyGILState_Release(int state) { release(state); depth--; if (depth >= 0 && depth < 64 && took_it[depth]) give(); }

long long lock_clock_away(void) { return total; }
