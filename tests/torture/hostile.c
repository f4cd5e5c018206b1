/*  hostile.c -- a system that is as unkind to threads as POSIX lets it be, to be loaded before a
    program: LD_PRELOAD=hostile.so PROGRAM. tests/cli/hostile.sh builds it and runs tests in it.

    A thread is held up at random around locks, signals and yields; a wait for a condition returns
    without a signal, or late; a thread starts late. So what a thread read before it was held up is
    old when it goes on: a fault in the order of things shows, which ThreadSanitizer does not see.
    Environment: HOSTILE_SEED, the draws; HOSTILE_ONE_IN, calls of which one is held up (300).    */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum {
    SHORT_NAP = 2000000,  /* ns, at most */
    LONG_NAP = 60000000,  /* one in 16 */
    NO_SIGNAL_ONE_IN = 20 /* waits that return without one */
};

typedef int (*lock_fn)(pthread_mutex_t *);
typedef int (*wait_fn)(pthread_cond_t *, pthread_mutex_t *);
typedef int (*timed_fn)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
typedef int (*clock_fn)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
typedef int (*wake_fn)(pthread_cond_t *);
typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static struct {
    lock_fn lock, unlock;
    wait_fn wait;
    timed_fn timed;
    clock_fn clocked;
    wake_fn signal, broadcast;
    create_fn create;
    int (*yield)(void);
} system_has;

static unsigned seed = 1, one_in = 300, num_threads;
static __thread unsigned state; /* of the draws of this thread; 0 = none yet */

/* ---- what the system has --------------------------------------------------------------------- */
static unsigned setting(const char *name, unsigned otherwise) {
    const char *text = getenv(name);
    return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

/* Puts the address of the next function of this name into a pointer to a function. */
static void find(void *pointer, const char *name) {
    void **at = (void **)pointer;
    *at = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2"); /* conditions of two kinds have one name */
    if (!*at) *at = dlsym(RTLD_NEXT, name);
    if (!*at) abort();
}

__attribute__((constructor)) static void begin(void) {
    if (system_has.unlock) return;
    seed = setting("HOSTILE_SEED", seed);
    one_in = setting("HOSTILE_ONE_IN", one_in);
    find(&system_has.lock, "pthread_mutex_lock");
    find(&system_has.wait, "pthread_cond_wait");
    find(&system_has.timed, "pthread_cond_timedwait");
    find(&system_has.clocked, "pthread_cond_clockwait");
    find(&system_has.signal, "pthread_cond_signal");
    find(&system_has.broadcast, "pthread_cond_broadcast");
    find(&system_has.create, "pthread_create");
    find(&system_has.yield, "sched_yield");
    find(&system_has.unlock, "pthread_mutex_unlock"); /* last: all are there */
}

/* ---- chance ---------------------------------------------------------------------------------- */
static unsigned draw(void) {
    if (state == 0) {
        const unsigned number = __atomic_add_fetch(&num_threads, 1, __ATOMIC_RELAXED);
        state = (number * 2654435761u ^ (seed * 40503u + 12345u)) | 1;
    }
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static int chance(unsigned n) { return n > 0 && draw() % n == 0; }

/* A thread cannot be cancelled while it sleeps here: locking and unlocking, where it may sleep, are
   no cancellation points, so a cancellation there would end the program in a noexcept function. */
static void nap(void) {
    const unsigned x = draw();
    const struct timespec pause = {0, (long)((x >> 8) % (x % 16 == 0 ? LONG_NAP : SHORT_NAP))};
    const int before = errno;
    int cancels;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    (void)nanosleep(&pause, NULL);
    (void)pthread_setcancelstate(cancels, &cancels);
    errno = before;
}

static void hold_up(void) {
    begin();
    if (chance(one_in)) nap();
}

/* Others get the lock for a while. */
static void without_lock(pthread_mutex_t *m) {
    (void)system_has.unlock(m);
    if (chance(4))
        nap();
    else
        (void)system_has.yield();
    (void)system_has.lock(m);
}

/* Whether a wait returns at once. */
static int returns_without(pthread_mutex_t *m) {
    begin();
    if (!chance(NO_SIGNAL_ONE_IN)) return 0;
    without_lock(m);
    return 1;
}

static int late(pthread_mutex_t *m, int result) {
    if (chance(8)) without_lock(m);
    return result;
}

/* ---- in the place of the system's ------------------------------------------------------------ */
int pthread_mutex_lock(pthread_mutex_t *m) {
    hold_up();
    return system_has.lock(m);
}

int pthread_mutex_unlock(pthread_mutex_t *m) {
    int result;
    begin();
    result = system_has.unlock(m);
    hold_up();
    return result;
}

int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) {
    if (returns_without(m)) return 0;
    return late(m, system_has.wait(c, m));
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until) {
    if (returns_without(m)) return 0;
    return late(m, system_has.timed(c, m, until));
}

int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock,
                           const struct timespec *until) {
    if (returns_without(m)) return 0;
    return late(m, system_has.clocked(c, m, clock, until));
}

int pthread_cond_signal(pthread_cond_t *c) {
    hold_up();
    return system_has.signal(c);
}

int pthread_cond_broadcast(pthread_cond_t *c) {
    hold_up();
    return system_has.broadcast(c);
}

int sched_yield(void) {
    hold_up();
    return system_has.yield();
}

typedef struct start {
    void *(*fn)(void *);
    void *arg;
} start_t;

static void *start_late(void *arg) {
    const start_t s = *(start_t *)arg;
    free(arg);
    if (chance(3)) nap();
    return s.fn(s.arg);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg) {
    start_t *s = (start_t *)malloc(sizeof *s);
    int result;
    if (!s) return EAGAIN;
    begin();
    s->fn = fn;
    s->arg = arg;
    result = system_has.create(thread, attr, start_late, s);
    if (result != 0)
        free(s);
    else if (chance(4))
        nap();
    return result;
}
