/*  test_bench_numbers.cu -- the arithmetic that the bench's tables rest on, with numbers whose
    answer is known. */
#include "bench/bench_numbers.h"
#include "tap.h"

typedef std::vector<double> times_t;

static void test_spread(void) {
    const bench_spread_t odd = bench_spread({5, 1, 4, 2, 3}), even = bench_spread({4, 1, 3, 2});
    tap_ok(odd.q1 == 2 && odd.median == 3 && odd.q3 == 4, "the quartiles of five numbers");
    tap_ok(even.median == 2.5 && even.q1 == 1.75 && even.q3 == 3.25, "of four, between two");
    tap_ok(bench_ratio({2, 9}, {1, 3}) == times_t({2, 3}), "ratios go round by round");
    tap_ok(std::fabs(bench_geometric_mean({0.5, 2}) - 1) < 1e-15 && bench_geometric_mean({}) == 0,
           "twice as fast and half as fast have a geometric mean of 1");
}

static void test_fastest(void) {
    tap_ok(bench_fastest({}).empty(), "of no ways none is the fastest");
    tap_ok(bench_fastest({{3, 1}}) == times_t({3, 1}), "of one way, that one");
    tap_ok(bench_fastest({{3, 3, 3, 3}, {2, 2, 2, 2}}) == times_t({2, 2, 2, 2}),
           "the faster of two ways in both halves is the fastest");
    tap_ok(bench_fastest({{1, 3, 1, 3}, {2, 2, 2, 2}}) == times_t({2, 3, 2, 3}),
           "each half is compared with what was the fastest in the other");
    const std::vector<times_t> ways = {{5, 1, 5, 1, 5}, {4, 9, 4, 9, 4}, {4, 8, 4, 8, 4}};
    tap_ok(bench_fastest_in(ways, 0) == 1 && bench_fastest_in(ways, 1) == 0,
           "the fastest of one half of the rounds, the first of equals, whatever the other half");
    tap_ok(bench_half(ways[0], 0) == times_t({5, 5, 5}) &&
               bench_half(ways[0], 1) == times_t({1, 1}),
           "the first round and every second one from there are a half, the others are one");
}

/* Equal ways, which differ by chance only: none of them is faster than any other. */
static void test_luck(void) {
    enum {
        ROWS = 2000,
        ROUNDS = 15,
        WAYS = 2
    };

    std::mt19937 rng(1);
    std::normal_distribution<double> chance(1.0, 0.05);
    double fair = 0, lucky = 0;
    for (int row = 0; row < ROWS; ++row) {
        std::vector<times_t> ways(WAYS, times_t(ROUNDS));
        times_t ours(ROUNDS);
        for (times_t &way : ways) {
            for (double &ms : way) ms = chance(rng);
        }
        for (double &ms : ours) ms = chance(rng);
        const int first = bench_median(ways[0]) < bench_median(ways[1]);
        fair += bench_median(bench_ratio(bench_fastest(ways), ours)) / ROWS;
        lucky += bench_median(bench_ratio(ways[first ? 0 : 1], ours)) / ROWS;
    }
    tap_note("equal ways: %.4f of the fastest, %.4f of the luckiest", fair, lucky);
    tap_ok(fair > 0.998 && fair < 1.004, "of equal ways the fastest is as fast as another");
    tap_ok(lucky < fair - 0.003, "the one chosen by the same rounds looks faster than it is");
}

int main(void) {
    test_spread();
    test_fastest();
    test_luck();
    return tap_done();
}
