/*  sample_common.h -- what async_sample.cu and multicopy_sample.cu share: variants of one work, run
    in random order round by round, each output checked, times compared within a round. */
#ifndef SAMPLE_COMMON_H
#define SAMPLE_COMMON_H

#include "bench_common.h"

typedef struct sample_variant {
    std::string name;
    std::function<cudaError_t()> run;
    std::vector<double> ms;
} sample_variant_t;

typedef struct sample {
    std::vector<sample_variant_t> variants; /* the first is serial, the last streampipe */
    std::function<void()> reset;            /* before each run, not timed: poisons the output */
    std::function<int()> right;             /* after each run, not timed: 1 when it is correct */
} sample_t;

static inline double sample_run_once(const sample_t *s, const sample_variant_t *v) {
    s->reset();
    SPIPE_CHECK(cudaDeviceSynchronize());
    const double begin = bench_now_ms();
    SPIPE_CHECK(v->run());
    const double ms = bench_now_ms() - begin;
    SPIPE_CHECK(cudaDeviceSynchronize());
    if (s->right()) return ms;
    fprintf(stderr, "bench: %s: wrong output\n", v->name.c_str());
    exit(1);
}

static inline void sample_measure(sample_t *s, int warm, int rounds) {
    std::mt19937 rng(1);
    for (int r = -warm; r < rounds; ++r) {
        for (size_t k : bench_order(s->variants.size(), &rng)) {
            const double ms = sample_run_once(s, &s->variants[k]);
            if (r >= 0) s->variants[k].ms.push_back(ms);
        }
    }
}

/* Prints the table; the ratio of the best of the sample's own variants to streampipe. */
static inline double sample_print(const sample_t *s, const char *title) {
    const std::vector<sample_variant_t> &v = s->variants;
    const sample_variant_t *best = &v[0], *own = &v.back();
    printf("%s; %zu rounds, median [quartiles] ms, times as fast as serial\n", title,
           own->ms.size());
    for (const sample_variant_t &each : v) {
        const bench_spread_t ms = bench_spread(each.ms);
        if (&each != own && ms.median < bench_median(best->ms)) best = &each;
        printf("  %-34s %8.3f [%.3f %.3f]  %.2f x\n", each.name.c_str(), ms.median, ms.q1, ms.q3,
               bench_median(bench_ratio(v[0].ms, each.ms)));
    }
    const bench_spread_t r = bench_spread(bench_ratio(best->ms, own->ms));
    printf("  streampipe is %.3f x [%.3f %.3f] as fast as %s\n", r.median, r.q1, r.q3,
           best->name.c_str());
    return r.median;
}

/* --rounds N, --targets, --smoke, and --charts, which changes nothing; all else is refused. */
typedef struct sample_options {
    int rounds, targets, smoke;
} sample_options_t;

static inline sample_options_t sample_parse(int argc, char **argv) {
    sample_options_t o = {21, 0, 0};
    for (int k = 1; k < argc; ++k) {
        const std::string a = argv[k];
        if (a == "--targets")
            o.targets = 1;
        else if (a == "--smoke")
            o.smoke = 1;
        else if (a == "--charts")
            continue; /* bench.cu's */
        else if (a == "--rounds" && k + 1 < argc)
            o.rounds = std::max(1, atoi(argv[++k]));
        else {
            fprintf(stderr, "usage: %s [--rounds N] [--targets] [--smoke]\n", argv[0]);
            exit(2);
        }
    }
    if (o.smoke) o.rounds = 3;
    return o;
}

/* The exit status: the target is to be faster than the sample's best. */
static inline int sample_verdict(const sample_options_t *o, double ratio) {
    const int met = ratio > 1.0;
    if (!o->smoke) printf("  target: faster than the sample's best: %s\n", met ? "met" : "MISSED");
    return o->targets && !o->smoke && !met;
}

#endif /* SAMPLE_COMMON_H */
