#include "streampipe_tools.h"
static __global__ void burn(const float *x, float *y, size_t n, int it) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        float v = x[i]; for (int k = 0; k < it; ++k) v = v * 1.0000001f + 0.5f; y[i] = v; }
}
static cudaError_t st(const spipe_chunk_t *c, void *u) {
    unsigned g = spipe_blocks(c->count, 256); if (g > 132*8) g = 132*8;
    return SPIPE_LAUNCH(burn, g, 256, 0, c->stream, SPIPE_BUF(c,0,const float), SPIPE_BUF(c,1,float), c->count, *(int*)u);
}
static spipe_span_t spans[100000];
int main(void) {
    size_t sizes[] = {(size_t)4<<20, (size_t)128<<20, (size_t)512<<20};
    for (int s = 0; s < 3; ++s) for (int it = 1; it < 3000; it = it == 1 ? 700 : it == 700 ? 2000 : 9999) {
        size_t n = sizes[s]; float *x, *y; int its = it;
        SPIPE_CHECK(spipe_pinned_alloc((void**)&x, n*4)); SPIPE_CHECK(spipe_pinned_alloc((void**)&y, n*4)); memset(x,0,n*4); memset(y,0,n*4);
        spipe_desc_t d = spipe_desc_default(); d.count = n; spipe_add_input(&d,x,4); spipe_add_output(&d,y,4); spipe_add_stage(&d,"burn",st,&its);
        spipe_pipeline_t *p = (spipe_pipeline_t*)malloc(sizeof *p); spipe_report_t r; double plain = 1e9, watched = 1e9, diff = 0;
        SPIPE_CHECK(spipe_pipeline_create(p,&d,NULL));
        for (int k = 0; k < 9; ++k) { SPIPE_CHECK(spipe_pipeline_run(p,&r)); if (r.wall_ms < plain) plain = r.wall_ms; }
        spipe_timeline_t t = spipe_timeline_default(); t.spans = spans; t.capacity = 100000; p->desc.timeline = &t;
        for (int k = 0; k < 5; ++k) { SPIPE_CHECK(spipe_pipeline_run(p,&r)); if (r.wall_ms < watched) watched = r.wall_ms; double q = (r.wall_ms-r.timed_ms)/r.wall_ms; if (q > diff) diff = q; }
        printf("== %zu MiB it %d: plain %.4f watched %.4f (%.3f) worst (wall-timed)/wall %.4f\n", n*4>>20, it, plain, watched, watched/plain, diff);
        spipe_report_print(&r, stdout); if (s == 0) spipe_timeline_print(&t, stdout, 110);
        SPIPE_CHECK(spipe_pipeline_destroy(p)); free(p); spipe_pinned_free(x); spipe_pinned_free(y);
    }
    /* empty pairs, tiny kernels */
    cudaEvent_t a,b; cudaEventCreate(&a); cudaEventCreate(&b); cudaStream_t q; spipe_stream_create(&q, SPIPE_PRIORITY_DEFAULT); float *dv; cudaMalloc(&dv, 1<<20);
    for (int k = 0; k < 6; ++k) { float m1, m2; cudaEventRecord(a,q); cudaEventRecord(b,q); cudaStreamSynchronize(q); cudaEventElapsedTime(&m1,a,b);
      cudaEventRecord(a,q); burn<<<1,32,0,q>>>(dv,dv,32,1); cudaEventRecord(b,q); cudaStreamSynchronize(q); cudaEventElapsedTime(&m2,a,b); printf("empty %.2f us, tiny kernel %.2f us\n", m1*1e3, m2*1e3); }
    return 0;
}
