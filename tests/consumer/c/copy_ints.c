/* A user's program in C: no kernel of its own, so nothing but a C compiler is needed. */
#include "streampipe.h"

static cudaError_t copy_stage(const spipe_chunk_t *c, void *user) {
    (void)user;
    return cudaMemcpyAsync(c->data[1], c->data[0], c->count * sizeof(int), cudaMemcpyDeviceToDevice,
                           c->stream);
}

int main(void) {
    enum {
        N = 100003
    };

    static int x[N], y[N];
    spipe_desc_t d = spipe_desc_default();
    int i;
    for (i = 0; i < N; ++i) x[i] = i;
    d.count = N;
    d.chunk = 1000;
    spipe_add_input(&d, x, sizeof *x);
    spipe_add_output(&d, y, sizeof *y);
    spipe_add_stage(&d, "copy", copy_stage, NULL);
    SPIPE_CHECK_RUN(&d, NULL);
    for (i = 0; i < N; ++i)
        if (y[i] != i) return 1;
    printf("all %d are right\n", (int)N);
    return 0;
}
