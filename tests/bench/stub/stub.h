/*  stub.h -- how often the stub runtime was called, by name, so that two programs can be shown to
    make the same calls. */
#ifndef STUB_H
#define STUB_H

typedef struct stub_count {
    const char *name;
    unsigned long calls;
} stub_count_t;

/* All counters, the last one with name NULL; all zero after stub_reset. */
const stub_count_t *stub_counts(void);
void stub_reset(void);

#endif /* STUB_H */
