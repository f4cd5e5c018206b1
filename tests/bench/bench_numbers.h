/*  bench_numbers.h -- the arithmetic of the benchmarks' tables: medians, ratios round by round, the
    fastest of several, geometric means, random order. C++14, nothing of CUDA. */
#ifndef BENCH_NUMBERS_H
#define BENCH_NUMBERS_H

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

typedef struct bench_quartiles {
    double q1, median, q3;
} bench_spread_t;

/* Between the two nearest ranks, linearly. */
static inline double bench_quantile(const std::vector<double> &sorted, double q) {
    if (sorted.empty()) return 0;
    const double at = q * (double)(sorted.size() - 1);
    const size_t lower = (size_t)at, upper = std::min(lower + 1, sorted.size() - 1);
    return sorted[lower] + (at - (double)lower) * (sorted[upper] - sorted[lower]);
}

static inline bench_spread_t bench_spread(std::vector<double> x) {
    std::sort(x.begin(), x.end());
    const bench_spread_t s = {bench_quantile(x, 0.25), bench_quantile(x, 0.5),
                              bench_quantile(x, 0.75)};
    return s;
}

static inline double bench_median(const std::vector<double> &x) { return bench_spread(x).median; }

/* a / b, round by round: what drifts slowly hits both alike and cancels. */
static inline std::vector<double> bench_ratio(const std::vector<double> &a,
                                              const std::vector<double> &b) {
    std::vector<double> r;
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) r.push_back(a[i] / b[i]);
    return r;
}

static inline double bench_geometric_mean(const std::vector<double> &x) {
    double sum = 0;
    for (double each : x) sum += std::log(each);
    return x.empty() ? 0 : std::exp(sum / (double)x.size());
}

/* Half the rounds: 0 = the first, third and so on, 1 = the others. */
static inline std::vector<double> bench_half(const std::vector<double> &ms, size_t which) {
    std::vector<double> half;
    for (size_t k = which; k < ms.size(); k += 2) half.push_back(ms[k]);
    return half;
}

/* Which of several ways has the least median in that half of the rounds. */
static inline size_t bench_fastest_in(const std::vector<std::vector<double>> &ways, size_t which) {
    size_t best = 0;
    double least = 0;
    for (size_t w = 0; w < ways.size(); ++w) {
        const double median = bench_median(bench_half(ways[w], which));
        if (w > 0 && median >= least) continue;
        best = w;
        least = median;
    }
    return best;
}

/* Of several ways, in two halves of the rounds, the times of the one that was the fastest in the
   other half. The fastest of all rounds would have been chosen for its luck in just these. */
static inline std::vector<double> bench_fastest(const std::vector<std::vector<double>> &ways) {
    std::vector<double> fastest;
    if (ways.empty()) return fastest;
    if (ways.size() == 1 || ways[0].size() < 2) return ways[0];
    const size_t best[2] = {bench_fastest_in(ways, 0), bench_fastest_in(ways, 1)};
    for (size_t k = 0; k < ways[0].size(); ++k) fastest.push_back(ways[best[(k + 1) % 2]][k]);
    return fastest;
}

/* 0 .. n-1, shuffled. */
static inline std::vector<size_t> bench_order(size_t n, std::mt19937 *rng) {
    std::vector<size_t> order(n);
    for (size_t i = 0; i < n; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), *rng);
    return order;
}

#endif /* BENCH_NUMBERS_H */
