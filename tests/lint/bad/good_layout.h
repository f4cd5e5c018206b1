/* good_layout.h -- what the layout rules accept; some bad_ files beside it have one fault each. */
#ifndef GOOD_LAYOUT_H
#define GOOD_LAYOUT_H

#define GOOD_LARGER(a, b) ((a) > (b) ? (a) : (b))
#define GOOD_BOTH(a, b)                                                                            \
    do {                                                                                           \
        good_call(a, b);                                                                           \
        good_call(b, a);                                                                           \
    } while (0)

typedef struct good {
    int first, second;
    int list[3];
} good_t;

/* a = 1, b = 2; in a comment, and x ? y : z ? 1 : 2. */
static int good_call(int a, int b) { return a > 0 ? a : b; }

static void good_launch(int *x, int *y) { good_kernel<<<1, 256>>>(x, y); }

static int good_all(const good_t *g, int n) {
    static const char *const text = "a = 1, b = 2; x ? 1 : y ? 2 : 3";
    int i, second, sum = 0, list[] = {1, 2, 3};
    const good_t *at = g, *end = g + n;
    for (i = 0, at = g; at < end; ++i, ++at) sum += at->first;
    switch (n) {
    case 1: sum = 1; break;
    case 2: sum = 2; return sum;
    default: break;
    }
    /* Two choices, the second with a name. */
    second = n < 0 ? 1 : 2;
    return good_call(n > 0 ? sum : list[0], second) + (text[0] == ';');
}

#ifdef __cplusplus
static std::map<std::pair<int, std::pair<int, int>>, int> good_map, another_map;
#endif

#endif
