/* ---- 13 resources: space -------------------------------------------------------------------
   Parts of a block of memory, lent and given back: the first gap that is large enough. Knows
   addresses only; nothing of CUDA or locks. */
typedef struct spipe_priv_span {
    size_t at, bytes;
} spipe_priv_span_t;

typedef struct spipe_priv_space {
    unsigned char *base; /* NULL = there is no block yet */
    size_t bytes, used, most;
    spipe_priv_span_t *spans; /* the parts lent, by address */
    size_t num, capacity;
} spipe_priv_space_t;

/* Puts a span before number k. 0: there is no memory to write that down. */
SPIPE_PRIV_RARE int spipe_priv_space_insert(spipe_priv_space_t *s, size_t k, size_t at,
                                            size_t bytes) {
    if (s->num == s->capacity) {
        const size_t capacity = s->capacity > 0 ? 2 * s->capacity : 16;
        void *more = realloc((void *)s->spans, capacity * sizeof *s->spans);
        if (!more) return 0;
        s->spans = (spipe_priv_span_t *)more;
        s->capacity = capacity;
    }
    memmove(&s->spans[k + 1], &s->spans[k], (s->num - k) * sizeof *s->spans);
    s->spans[k].at = at;
    s->spans[k].bytes = bytes;
    ++s->num;
    s->used += bytes;
    if (s->most < s->used) s->most = s->used;
    return 1;
}

/* Lends a part; NULL: no gap is large enough. It lends the same part as before if that is free, so
   that addresses stay valid. */
SPIPE_PRIV_RARE unsigned char *spipe_priv_space_take(spipe_priv_space_t *s, size_t bytes,
                                                     const unsigned char *before) {
    const size_t align = 512, wanted = before ? (size_t)(before - s->base) : SIZE_MAX;
    size_t k, from = 0, at = SIZE_MAX, place = 0;
    bytes = (bytes + align - 1) / align * align;
    for (k = 0; k <= s->num; ++k) {
        const size_t to = k < s->num ? s->spans[k].at : s->bytes;
        const int fits = to - from >= bytes;
        if (fits && wanted >= from && wanted < to && to - wanted >= bytes) {
            at = wanted;
            place = k;
            break;
        }
        if (fits && at == SIZE_MAX) {
            at = from;
            place = k;
        }
        if (k < s->num) from = to + s->spans[k].bytes;
    }
    if (at == SIZE_MAX || !spipe_priv_space_insert(s, place, at, bytes)) return NULL;
    return s->base + at;
}

SPIPE_PRIV_RARE void spipe_priv_space_give(spipe_priv_space_t *s, const unsigned char *part) {
    size_t k = 0;
    while (k < s->num && s->base + s->spans[k].at != part) ++k;
    if (k == s->num) return;
    s->used -= s->spans[k].bytes;
    --s->num;
    memmove(&s->spans[k], &s->spans[k + 1], (s->num - k) * sizeof *s->spans);
}
