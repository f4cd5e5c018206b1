/* ---- 1 config: threads and clock -----------------------------------------------------------
   Locks, conditions, threads, CPUs and time. Knows pthreads; knows nothing of CUDA. */
#if defined(SPIPE_NO_THREADS)
typedef int spipe_priv_mutex_t;
typedef int spipe_priv_cond_t;

SPIPE_PRIV_LOCAL void spipe_priv_mutex_create(spipe_priv_mutex_t *m) { *m = 0; }

SPIPE_PRIV_LOCAL void spipe_priv_mutex_destroy(spipe_priv_mutex_t *m) { *m = 0; }

SPIPE_PRIV_LOCAL void spipe_priv_mutex_lock(spipe_priv_mutex_t *m) { (void)m; }

SPIPE_PRIV_LOCAL void spipe_priv_mutex_unlock(spipe_priv_mutex_t *m) { (void)m; }

SPIPE_PRIV_LOCAL void spipe_priv_cond_create(spipe_priv_cond_t *c) { *c = 0; }

SPIPE_PRIV_LOCAL void spipe_priv_cond_destroy(spipe_priv_cond_t *c) { *c = 0; }

SPIPE_PRIV_LOCAL void spipe_priv_cond_wait(spipe_priv_cond_t *c, spipe_priv_mutex_t *m) {
    (void)c;
    (void)m;
}

SPIPE_PRIV_LOCAL void spipe_priv_cond_signal(spipe_priv_cond_t *c) { (void)c; }

SPIPE_PRIV_LOCAL void spipe_priv_cond_broadcast(spipe_priv_cond_t *c) { (void)c; }

SPIPE_PRIV_LOCAL void spipe_priv_give_up_cpu(void) {}

/* Without threads it always returns NULL. */
SPIPE_PRIV_LOCAL void *spipe_priv_thread_start(void *(*fn)(void *arg), void *arg) {
    (void)fn;
    (void)arg;
    return NULL;
}

SPIPE_PRIV_LOCAL void spipe_priv_thread_join(void *thread) { (void)thread; }
#else
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#define SPIPE_PRIV_PAUSE() __builtin_ia32_pause()
#else
#define SPIPE_PRIV_PAUSE() ((void)0)
#endif

enum {
    SPIPE_PRIV_LOCK_TRIES = 100
};

typedef pthread_mutex_t spipe_priv_mutex_t;
typedef pthread_cond_t spipe_priv_cond_t;

SPIPE_PRIV_LOCAL void spipe_priv_mutex_create(spipe_priv_mutex_t *m) {
    (void)pthread_mutex_init(m, NULL);
}

SPIPE_PRIV_LOCAL void spipe_priv_mutex_destroy(spipe_priv_mutex_t *m) {
    (void)pthread_mutex_destroy(m);
}

/* Tries for a few microseconds before it sleeps: locks are held for less than waking up takes. */
SPIPE_PRIV_LOCAL void spipe_priv_mutex_lock(spipe_priv_mutex_t *m) {
    int k;
    for (k = 0; k < SPIPE_PRIV_LOCK_TRIES; ++k) {
        if (pthread_mutex_trylock(m) == 0) return;
        SPIPE_PRIV_PAUSE();
    }
    (void)pthread_mutex_lock(m);
}

SPIPE_PRIV_LOCAL void spipe_priv_mutex_unlock(spipe_priv_mutex_t *m) {
    (void)pthread_mutex_unlock(m);
}

SPIPE_PRIV_LOCAL void spipe_priv_cond_create(spipe_priv_cond_t *c) {
    (void)pthread_cond_init(c, NULL);
}

SPIPE_PRIV_LOCAL void spipe_priv_cond_destroy(spipe_priv_cond_t *c) {
    (void)pthread_cond_destroy(c);
}

SPIPE_PRIV_LOCAL void spipe_priv_cond_wait(spipe_priv_cond_t *c, spipe_priv_mutex_t *m) {
    (void)pthread_cond_wait(c, m);
}

SPIPE_PRIV_LOCAL void spipe_priv_cond_signal(spipe_priv_cond_t *c) { (void)pthread_cond_signal(c); }

SPIPE_PRIV_LOCAL void spipe_priv_cond_broadcast(spipe_priv_cond_t *c) {
    (void)pthread_cond_broadcast(c);
}

SPIPE_PRIV_LOCAL void spipe_priv_give_up_cpu(void) { (void)sched_yield(); }

/* Starts a thread that blocks all signals except those of its own faults, because the user's
   handlers expect to interrupt the user's threads. NULL: there is no thread. */
SPIPE_PRIV_RARE void *spipe_priv_thread_start(void *(*fn)(void *arg), void *arg) {
    pthread_t *t = (pthread_t *)malloc(sizeof *t);
    int failed;
#if defined(SIG_SETMASK) && !defined(_WIN32) /* strict C99 does not declare SIG_SETMASK */
    static const unsigned char own[] = {SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS};
    sigset_t others, before;
    size_t i;
    (void)sigfillset(&others);
    for (i = 0; i < sizeof own; ++i) (void)sigdelset(&others, own[i]);
    (void)pthread_sigmask(SIG_SETMASK, &others, &before);
#endif
    failed = !t || pthread_create(t, NULL, fn, arg) != 0;
#if defined(SIG_SETMASK) && !defined(_WIN32)
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
#endif
    if (!failed) return t;
    free(t);
    return NULL;
}

SPIPE_PRIV_LOCAL void spipe_priv_thread_join(void *thread) {
    pthread_t *t = (pthread_t *)thread;
    if (!t) return;
    (void)pthread_join(*t, NULL);
    free(t);
}
#endif

/* Numbers that one thread writes under a lock, and that others read without it: at any time, so a
   thread that waits for such a number does not hold up those that work. */
#if defined(SPIPE_NO_THREADS)
#define SPIPE_PRIV_LOAD(x)         (x)
#define SPIPE_PRIV_STORE(x, value) ((x) = (value))
#define SPIPE_PRIV_ADD(x, value)   ((x) += (value))
#else
#define SPIPE_PRIV_LOAD(x)         __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define SPIPE_PRIV_STORE(x, value) __atomic_store_n(&(x), value, __ATOMIC_RELEASE)
#define SPIPE_PRIV_ADD(x, value)   __atomic_add_fetch(&(x), value, __ATOMIC_ACQ_REL)
#endif

/* Writes a number if it is what it should be. */
SPIPE_PRIV_LOCAL int spipe_priv_exchange_if(int *x, int from, int to) {
#if defined(SPIPE_NO_THREADS)
    const int is = *x == from;
    if (is) *x = to;
    return is;
#else
    return __atomic_compare_exchange_n(x, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
#endif
}

/* A number that differs between processes. */
SPIPE_PRIV_LOCAL long spipe_priv_process(void) {
#if defined(_WIN32)
    return 0;
#else
    return (long)getpid();
#endif
}

/* One lock, and one condition for "something changed". */
struct spipe_priv_sync {
    spipe_priv_mutex_t lock;
    spipe_priv_cond_t changed;
    int single_threaded; /* 1 = no second thread exists, so locking is skipped */
    long process;        /* that made it */
};

SPIPE_PRIV_LOCAL void spipe_priv_lock(spipe_priv_sync_t *s) {
    if (!s->single_threaded) spipe_priv_mutex_lock(&s->lock);
}

SPIPE_PRIV_LOCAL void spipe_priv_unlock(spipe_priv_sync_t *s) {
    if (!s->single_threaded) spipe_priv_mutex_unlock(&s->lock);
}

/* Waits until another thread calls spipe_priv_wake; called with the lock held. */
SPIPE_PRIV_LOCAL void spipe_priv_wait(spipe_priv_sync_t *s) {
    spipe_priv_cond_wait(&s->changed, &s->lock);
}

SPIPE_PRIV_LOCAL void spipe_priv_wake(spipe_priv_sync_t *s) {
    spipe_priv_cond_broadcast(&s->changed);
}

SPIPE_PRIV_LOCAL spipe_priv_sync_t *spipe_priv_sync_create(void) {
    spipe_priv_sync_t *s = (spipe_priv_sync_t *)calloc(1, sizeof *s);
    if (!s) return NULL;
    spipe_priv_mutex_create(&s->lock);
    spipe_priv_cond_create(&s->changed);
    s->process = spipe_priv_process();
    return s;
}

/* Whether this process was forked from the one that made it: then threads that are not here may
   hold the lock, and wait for the condition, for ever. */
SPIPE_PRIV_LOCAL int spipe_priv_sync_is_forked(const spipe_priv_sync_t *s) {
    return s->process != spipe_priv_process();
}

SPIPE_PRIV_LOCAL void spipe_priv_sync_destroy(spipe_priv_sync_t *s) {
    if (s && !spipe_priv_sync_is_forked(s)) {
        spipe_priv_cond_destroy(&s->changed);
        spipe_priv_mutex_destroy(&s->lock);
    }
    free(s);
}

/* A number that differs between threads. */
SPIPE_PRIV_RARE uintptr_t spipe_priv_this_thread(void) {
#if defined(SPIPE_NO_THREADS)
    return 0;
#else
    return (uintptr_t)pthread_self();
#endif
}

/* The number of CPUs that this thread may run on. */
SPIPE_PRIV_LOCAL size_t spipe_priv_num_cpus(void) {
    long n = 0;
#if defined(__linux__) && defined(CPU_SET) /* which strict C99 hides */
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) n = CPU_COUNT(&cpus);
#endif
#if defined(_SC_NPROCESSORS_ONLN)
    if (n == 0) n = sysconf(_SC_NPROCESSORS_ONLN); /* reads a file: 3 us */
#elif defined(_WIN32)
    if (getenv("NUMBER_OF_PROCESSORS")) n = atol(getenv("NUMBER_OF_PROCESSORS"));
#endif
    return n > 0 ? (size_t)n : 1;
}

/* Seconds from an arbitrary start. Strict C99 hides the monotonic clock; then the time of day. */
SPIPE_PRIV_LOCAL double spipe_priv_seconds(void) {
#if defined(CLOCK_MONOTONIC)
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#elif defined(_MSC_VER)
    return (double)clock() / CLOCKS_PER_SEC; /* the wall clock on Windows */
#else
    struct timeval now;
    gettimeofday(&now, NULL);
    return (double)now.tv_sec + 1e-6 * (double)now.tv_usec;
#endif
}

/* Holds off pthread_cancel for the calling thread: if it ended in the middle of a run, or while it
   waits, it would keep for ever what others wait for. Returns the state to restore. */
SPIPE_PRIV_RARE int spipe_priv_hold_off_cancel(void) {
    int before = 0;
#if defined(PTHREAD_CANCEL_DISABLE)
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
#endif
    return before;
}

SPIPE_PRIV_RARE void spipe_priv_let_cancel(int before) {
#if defined(PTHREAD_CANCEL_DISABLE)
    int held_off;
    (void)pthread_setcancelstate(before, &held_off);
#else
    (void)before;
#endif
}

/* Sleeps for so many microseconds, to which Linux adds some. select ends a thread that was
   cancelled, which must not happen in a run. */
SPIPE_PRIV_RARE void spipe_priv_nap(int us) {
#if defined(SPIPE_NO_THREADS) || defined(_WIN32)
    (void)us;
    spipe_priv_give_up_cpu();
#else
    struct timeval shortest = {0, 0};
    const int cancels = spipe_priv_hold_off_cancel();
    shortest.tv_usec = us;
    (void)select(0, NULL, NULL, NULL, &shortest);
    spipe_priv_let_cancel(cancels);
#endif
}
