/*  gate.h -- a gate that stages, jobs and other functions of a test wait behind until it is opened, so
    that the test knows what runs meanwhile. */
#ifndef GATE_H
#define GATE_H

#include <pthread.h>

/* Open at first. */
static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int open, waiting;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 1, 0};

static inline void gate_pass(void) {
    pthread_mutex_lock(&gate.lock);
    ++gate.waiting;
    pthread_cond_broadcast(&gate.changed);
    while (!gate.open) pthread_cond_wait(&gate.changed, &gate.lock);
    --gate.waiting;
    pthread_mutex_unlock(&gate.lock);
}

static inline void gate_set(int open) {
    pthread_mutex_lock(&gate.lock);
    gate.open = open;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

/* Until so many wait. */
static inline void gate_await(int waiting) {
    pthread_mutex_lock(&gate.lock);
    while (gate.waiting < waiting) pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

#endif /* GATE_H */
