/* ---- 3 describe: kinds of buffers -----------------------------------------------------------
   One table says what each kind of buffer is. Code that treats kinds differently reads it. */
typedef struct spipe_priv_kind_row {
    int in, out;      /* its chunks are copied to the device; back to the host */
    int array;        /* they are parts of a host array */
    int hosted;       /* a function of the user's fills or drains them; the adder sets its caller */
    int in_order;     /* which gets one chunk after another */
    int halo;         /* it may have one */
    int once;         /* on the device it is one block for the whole run, not a part of each slot */
    const char *name; /* in messages */
} spipe_priv_kind_t;

/* In the order of spipe_kind_t; the first row is for what is none of them. */
static const spipe_priv_kind_t spipe_priv_kinds[] = {
    /* in, out, array, hosted, in_order, halo, once, name */
    {0, 0, 0, 0, 0, 0, 0, "unknown"},
    {1, 0, 1, 0, 0, 1, 0, "input"},
    {0, 1, 1, 0, 0, 0, 0, "output"},
    {1, 1, 1, 0, 0, 0, 0, "in/out"},
    {0, 0, 0, 0, 0, 0, 0, "temp"},
    {0, 0, 0, 0, 0, 0, 1, "resident"},
    {1, 0, 0, 1, 1, 1, 0, "source"},
    {0, 1, 0, 1, 1, 0, 0, "sink"},
    {1, 0, 0, 1, 0, 1, 0, "positioned source"},
    {0, 1, 0, 1, 0, 0, 0, "positioned sink"},
};

/* Does not compile while a kind has no row. */
typedef char spipe_priv_each_kind_has_a_row
    [sizeof spipe_priv_kinds / sizeof *spipe_priv_kinds == SPIPE_PRIV_ROWS ? 1 : -1];

SPIPE_PRIV_LOCAL const spipe_priv_kind_t *spipe_priv_kind(spipe_kind_t kind) {
    return &spipe_priv_kinds[(unsigned)kind < SPIPE_PRIV_ROWS ? (int)kind : 0];
}

/* Whether stages only read it: an array of the user's that is not copied back. */
SPIPE_PRIV_LOCAL int spipe_priv_is_input(spipe_kind_t kind) {
    return spipe_priv_kind(kind)->array && !spipe_priv_kind(kind)->out;
}

/* Whether a function of the user's gets its chunks in order: a source's (out = 0), a sink's (1). */
SPIPE_PRIV_RARE int spipe_priv_in_order(const spipe_buffer_desc_t *b, int out) {
    const spipe_priv_kind_t *k = spipe_priv_kind(b->kind);
    return k->in_order && (out ? k->out : k->in);
}

/* The first such buffer; -1 = there is none. */
SPIPE_PRIV_RARE int spipe_priv_first_in_order(const spipe_desc_t *d, int out) {
    int i;
    for (i = 0; i < d->num_buffers; ++i) {
        if (spipe_priv_in_order(&d->buffers[i], out)) return i;
    }
    return -1;
}
