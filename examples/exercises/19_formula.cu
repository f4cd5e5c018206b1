/*  19_formula.cu -- how long will n chunks take?

    Task     Copy in, kernel and copy out take T ms each. In n chunks the three overlap, but every
             step of a chunk has a fixed cost of C ms in addition. Predict the time of n chunks. The
             judge compares it with three engines that take one chunk after the other, and asks
             which n is best.
    Try it   make exercise N=19                                                                   */
#include "exercise.h"

#include <math.h>

static const double T = 1.6, C = 0.02;

static double predicted_ms(int n) {
    /* WRITE HERE: the time of n chunks: the first goes through three steps, each of the others adds
   one. */
    return 3 * T / n;
    /* END */
}

/* The same by doing: three engines, each of which takes one chunk after the other. */
static double taken_ms(int n) {
    double free_at[3] = {0, 0, 0};
    for (int chunk = 0; chunk < n; ++chunk) {
        double ready = 0;
        for (double &engine : free_at) {
            engine = fmax(engine, ready) + T / n + C;
            ready = engine;
        }
    }
    return free_at[2];
}

int main() {
    int best = 1, best_predicted = 1;
    for (int n = 1; n <= 64; ++n) {
        if (taken_ms(n) < taken_ms(best)) best = n;
        if (predicted_ms(n) < predicted_ms(best_predicted)) best_predicted = n;
        if (fabs(predicted_ms(n) - taken_ms(n)) < 1e-6) continue;
        printf("wrong: %d chunks take %.3f ms, predicted %.3f ms\n", n, taken_ms(n),
               predicted_ms(n));
        return 1;
    }
    judge("best number of chunks", &best_predicted, 1, [best](int) { return best; });
    printf("%d chunks are best: %.3f ms instead of %.3f ms\n", best, taken_ms(best), taken_ms(1));
    return judge_done();
}

/* Hint: how long is one step of one chunk? How many steps pass until the last chunk has ended? */
