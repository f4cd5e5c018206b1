/*  19_doctor.cu -- do two operations overlap? Measures it, and asks the doctor why they do not.

    nvcc -O3 -I.. -I../extras -o 19_doctor 19_doctor.cu && ./19_doctor  (no GPU: make examples)
    You learn   time each operation alone, then both together: the sum of the two times minus the
                time together was hidden. If it is 0, spipe_doctor says why and what to change.
    Mind        two kernels that overlap slow each other down, so less of their time can be hidden.
    Expect      (hostcuda) 3 copy engines, kernels of different streams run at once: yes
            a copy in beside a kernel        copy       kernel       both  hidden  concurrent
            pinned, two streams             0.082 ms   0.090 ms   0.092 ms   98 %  yes
            one stream for both             0.082 ms   0.090 ms   0.168 ms    6 %  no
              LOOK HERE 3 different streams? 2, 1 of them given twice
                        cure: use a different stream for each operation that should overlap
            stream 0 and a blocking one     0.082 ms   0.090 ms   0.168 ms    6 %  no
              LOOK HERE 2 non-blocking streams? of 2: legacy default stream 1, blocking 1
                        cure: create them with spipe_stream_create, or with cudaStreamNonBlock
            pageable memory                 0.693 ms   0.701 ms   1.392 ms    0 %  no
              LOOK HERE 1 pinned memory for transfers? it is pageable
                        cure: let streampipe stage it (the default); spipe_pin it if it is used
            right: the CPU finds the same                                                         */
#include "ex_common.h"
#include "streampipe_tools.h"

static const int N = EX_HOSTCUDA ? 1 << 20 : 1 << 24, COPY = 1, KERNEL = 2;
static const size_t BYTES = N * sizeof(unsigned);
static const spipe_finding_t NONE = SPIPE_NUM_FINDINGS;

typedef struct setup {
    const char *name;
    unsigned *host;
    cudaStream_t first, second; /* for the copy, for the kernel */
    spipe_finding_t reason;     /* why they do not overlap, NONE = they do */
} setup_t;

static unsigned *to, *x, *y, steps, pageable[N]; /* to: the copy's; x, y: the kernel's */

/* The shortest of four times by the GPU's clock, from before both operations to after both. */
static double time_ms(const setup_t *s, int what) {
    spipe_timer_t timer;
    float ms, least = 1e30f;
    SPIPE_CHECK(spipe_timer_create(&timer));
    for (int k = 0; k < 4; ++k) {
        SPIPE_CHECK(cudaDeviceSynchronize());
        SPIPE_CHECK(spipe_timer_start(&timer, s->first));
        SPIPE_CHECK(spipe_stream_wait(s->second, s->first)); /* none starts before the clock, */
        if (what & COPY)
            SPIPE_CHECK(cudaMemcpyAsync(to, s->host, BYTES, cudaMemcpyHostToDevice, s->first));
        if (what & KERNEL) SPIPE_CHECK(ex_busy(y, x, steps, N, s->second));
        SPIPE_CHECK(spipe_stream_wait(s->first, s->second)); /* which stops when both are done */
        SPIPE_CHECK(spipe_timer_stop(&timer, s->first));
        SPIPE_CHECK(spipe_timer_ms(&timer, &ms));
        least = ms < least ? ms : least;
    }
    SPIPE_CHECK(spipe_timer_destroy(&timer));
    return (double)least;
}

/* Prints the doctor's first finding and its cure; 1 if our mistake is among all findings. */
static int ask_doctor(const setup_t *s) {
    spipe_doctor_desc_t d = spipe_doctor_default();
    const cudaStream_t two[2] = {s->first, s->second};
    spipe_checkup_t c;
    char line[256], more = 1;
    FILE *text = tmpfile();
    if (!text) return 0;
    d.pointer = s->host;
    d.bytes = d.probe_bytes = BYTES;
    d.streams = two;
    d.num_streams = 2;
    SPIPE_CHECK(spipe_doctor(&d, &c, text)); /* to stdout: good results, too */
    for (rewind(text); more && fgets(line, sizeof line, text);) {
        more = !strstr(line, "cure:");
        if (!more || strstr(line, "LOOK HERE")) fputs(line, stdout);
    }
    fclose(text);
    return s->reason == NONE || c.verdict[s->reason] == SPIPE_VERDICT_LOOK;
}

static int examine(const setup_t *s) {
    const double copy = time_ms(s, COPY);
    steps = ex_busy_steps(y, N, copy); /* as long as the copy, so that noise hides neither */
    const double kernel = time_ms(s, KERNEL), hidden = copy + kernel - time_ms(s, COPY | KERNEL);
    const double part = hidden / (copy < kernel ? copy : kernel); /* share of the shorter */
    const char *overlaps = part > 0.5 ? "yes" : "no";
    printf("%-29s %7.3f ms %7.3f ms %7.3f ms %4.0f %%  %s\n", s->name, copy, kernel,
           copy + kernel - hidden, part > 0 ? 100 * part : 0.0, overlaps);
    int right = ask_doctor(s) && (s->reason == NONE) == (part > 0.5);
    SPIPE_CHECK(cudaMemcpy(s->host, y, BYTES, cudaMemcpyDeviceToHost));
    right &= ex_busy_right(s->host, steps, N);
    SPIPE_CHECK(cudaMemcpy(s->host, to, BYTES, cudaMemcpyDeviceToHost));
    return right & ex_busy_right(s->host, 0, N); /* ... and host has its old contents */
}

int main(void) {
    spipe_device_t gpu;
    cudaStream_t s[2], blocking;
    unsigned *pinned;
    ex_begin();
    SPIPE_CHECK(spipe_device_get(&gpu, -1));
    SPIPE_CHECK(cudaStreamCreate(&blocking));
    for (cudaStream_t &t : s) SPIPE_CHECK(spipe_stream_create(&t, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(spipe_pinned_alloc((void **)&pinned, BYTES));
    for (unsigned **p : {&to, &x, &y}) SPIPE_CHECK(cudaMalloc((void **)p, BYTES));
    for (unsigned *p : {pinned, pageable}) ex_fill(p, N);
    SPIPE_CHECK(cudaMemcpy(x, pinned, BYTES, cudaMemcpyHostToDevice));
    printf("%d copy engines, kernels of different streams run at once: %s\n%-29s %s\n",
           gpu.copy_engines, gpu.concurrent_kernels ? "yes" : "no", "a copy in beside a kernel",
           "   copy       kernel       both  hidden  concurrent");
    const setup_t setups[4] = {
        {"pinned, two streams", pinned, s[0], s[1], NONE},
        {"one stream for both", pinned, s[0], s[0], SPIPE_FIND_DIFFERENT},
        {"stream 0 and a blocking one", pinned, NULL, blocking, SPIPE_FIND_NON_BLOCKING},
        {"pageable memory", pageable, s[0], s[1], SPIPE_FIND_PINNED},
    };
    int right = 1, k = gpu.host_page_tables ? 3 : 4; /* else pageable copies are as fast */
    for (const setup_t *u = setups; u < setups + k; ++u) right &= examine(u);
    for (unsigned *p : {to, x, y}) SPIPE_CHECK(cudaFree(p));
    SPIPE_CHECK(spipe_pinned_free(pinned));
    for (cudaStream_t t : {s[0], s[1], blocking}) SPIPE_CHECK(cudaStreamDestroy(t));
    return ex_verdict(right);
}
