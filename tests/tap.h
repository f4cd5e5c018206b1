/*  tap.h -- the whole test framework: a check prints one line of TAP, the Test Anything Protocol.

    #include "tap.h"
    int main(void) {
        tap_ok(1 + 1 == 2, "one and one make %d", 2);
        tap_skip("peer copies arrive", "needs 2 GPUs");
        return tap_done();
    }
    prints
        ok 1 - one and one make 2
        ok 2 - peer copies arrive # SKIP needs 2 GPUs
        1..2

    The text names the rule that holds, not the function called: it is read by whoever breaks it.
    The plan comes last and tests/tap_run insists on it, so a program that dies half way has failed.
    Call from one thread. C99 and C++11.                                                     */
#ifndef TAP_H
#define TAP_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__GNUC__)
#define TAP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TAP_PRINTF(fmt, args)
#endif

static int tap_run;    /* checks so far, skipped ones too */
static int tap_failed; /* of these, the ones that did not hold */

/*  A check. Its value is the condition's, so that a test can stop where going on is senseless:
    if (!tap_ok(p != NULL, "memory is given")) return tap_done();                             */
#define tap_ok(cond, ...) tap_result((cond) ? 1 : 0, #cond, __FILE__, __LINE__, __VA_ARGS__)

/*  A check that this machine cannot make. Reported as skipped, never as passed. */
#define tap_skip(rule, reason) tap_skipped((rule), (reason))

TAP_PRINTF(5, 6)

static inline int tap_result(int held, const char *cond, const char *file, int line,
                             const char *fmt, ...) {
    va_list args;
    tap_run++;
    if (!held) tap_failed++;
    printf("%s %d - ", held ? "ok" : "not ok", tap_run);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    if (!held) printf("# %s:%d: %s\n", file, line, cond);
    fflush(stdout); /* so that a crash shows what went before it */
    return held;
}

static inline void tap_skipped(const char *rule, const char *reason) {
    tap_run++;
    printf("ok %d - %s # SKIP %s\n", tap_run, rule, reason);
    fflush(stdout);
}

/*  Nothing in this program can run here: says so and ends the program. Call it first. */
static inline void tap_skip_all(const char *reason) {
    printf("1..0 # SKIP %s\n", reason);
    fflush(stdout);
    exit(0);
}

/*  A remark for whoever reads the log: measured figures, the seed of the random data. */
TAP_PRINTF(1, 2)

static inline void tap_note(const char *fmt, ...) {
    va_list args;
    printf("# ");
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}

/*  `make check-all` sets THOROUGH for its plain build: there a test tries every case. */
static inline int tap_thorough(void) { return getenv("THOROUGH") != NULL; }

/*  Of many alike, every so many-th case is tried: each in a thorough run, else one in `plain`, and
    one in `instrumented` under a sanitizer, where a case takes ten times as long. */
static inline size_t tap_every(size_t plain, size_t instrumented) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    (void)plain;
    return instrumented;
#else
    (void)instrumented;
    return tap_thorough() ? 1 : plain;
#endif
}

/*  Prints the plan; the value is main's. */
static inline int tap_done(void) {
    printf("1..%d\n", tap_run);
    fflush(stdout);
    return tap_failed ? 1 : 0;
}

#endif /* TAP_H */
