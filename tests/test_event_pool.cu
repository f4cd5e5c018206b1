/*  test_event_pool.cu -- an event of a pool has one holder at a time, even after it was
    released twice. */
#include "pipe_common.h"

enum {
    NUM = 5
};

static void test_released_twice(void) {
    spipe_event_pool_t pool;
    cudaEvent_t e[NUM], again[NUM];
    int i, j, refused = 1, distinct = 1;
    SPIPE_CHECK(spipe_event_pool_create(&pool));
    for (i = 0; i < NUM; ++i) SPIPE_CHECK(spipe_event_acquire(&pool, &e[i]));
    for (i = 0; i + 1 < NUM; ++i) { /* the last stays out, so there is always room for one more */
        SPIPE_CHECK(spipe_event_release(&pool, e[i]));
        for (j = 0; j <= i; ++j) {
            refused &= spipe_event_release(&pool, e[j]) == cudaErrorInvalidValue;
        }
    }
    tap_ok(refused, "an event that was released is not taken again");
    for (i = 0; i + 1 < NUM; ++i) {
        SPIPE_CHECK(spipe_event_acquire(&pool, &again[i]));
        distinct &= again[i] != e[NUM - 1];
        for (j = 0; j < i; ++j) distinct &= again[i] != again[j];
    }
    tap_ok(distinct && pool.num_total == NUM,
           "so no two holders get the same one, and none is made");
    for (i = 0; i + 1 < NUM; ++i) SPIPE_CHECK(spipe_event_release(&pool, again[i]));
    SPIPE_CHECK(spipe_event_release(&pool, e[NUM - 1]));
    tap_ok(spipe_event_pool_destroy(&pool) == cudaSuccess, "and all are there in the end");
}

int main(void) {
    test_released_twice();
    return tap_done();
}
