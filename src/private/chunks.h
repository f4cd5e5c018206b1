/* ---- 4 execute: what a stage asks of its chunk ---------------------------------------------
   Buffers as pointers, grid sizes, and why a stage gives up. What is wrong is noted in words; the
   run fails with them when the stage returns. */
SPIPE_PRIV_RARE void spipe_priv_note_down(const spipe_chunk_t *c, cudaError_t error,
                                          const char *format, va_list args) {
    spipe_priv_note_t *n = c->note;
    if (!n || n->error != cudaSuccess) return;
    n->error = error;
    vsnprintf(n->text, sizeof n->text, format, args);
}

SPIPE_API cudaError_t spipe_chunk_fail(const spipe_chunk_t *chunk, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (chunk) spipe_priv_note_down(chunk, cudaErrorUnknown, format, args);
    va_end(args);
    return cudaErrorUnknown;
}

/* Why a call of the user's failed, in words; its error is e, or what was noted. A number that is no
   error of CUDA's may be another library's, or EOF. */
SPIPE_PRIV_RARE const char *spipe_priv_why(spipe_priv_note_t *n, cudaError_t *e) {
    const char *name = n->error == cudaSuccess ? cudaGetErrorName(*e) : "";
    if (n->error == cudaSuccess && *e == cudaErrorNotReady) {
        return "it returned cudaErrorNotReady, which cudaStreamQuery and cudaEventQuery leave as "
               "CUDA's last error; clear it after them with cudaGetLastError, or return another";
    }
    if (n->error == cudaSuccess && *e == cudaErrorInvalidConfiguration) {
        return "invalid configuration: a grid has at most 2147483647 x 65535 x 65535 blocks, a "
               "block 1024 threads; SPIPE_LAUNCH names the grid if it is given the chunk, not its "
               "stream";
    }
    if (strncmp(name, "unrecognized", 12) == 0) {
        snprintf(n->text, sizeof n->text,
                 "it returned %d, which is no cudaError_t; return cudaSuccess, an error of CUDA's, "
                 "or in a stage what spipe_chunk_fail gives",
                 (int)*e);
        return n->text;
    }
    if (n->error == cudaSuccess) return cudaGetErrorString(*e);
    if (*e == cudaSuccess || n->error == cudaErrorInvalidValue) *e = n->error;
    return n->text;
}

/* Memory for a host stage that goes on though the buffer it asks for is not there. */
SPIPE_PRIV_RARE void *spipe_priv_scratch(const spipe_chunk_t *c, size_t size) {
    void **block = (void **)calloc(c->count + 1, size > sizeof *block ? size : sizeof *block);
    if (!block) return NULL;
    *block = c->note->scratch;
    c->note->scratch = (void *)block;
    return (void *)(block + 1);
}

SPIPE_PRIV_RARE void spipe_priv_free_scratch(spipe_priv_note_t *n) {
    while (n->scratch) {
        void **block = (void **)n->scratch;
        n->scratch = *block;
        free((void *)block);
    }
}

/* Notes what is wrong with buffer i, and does not return where the caller catches exceptions, if
   the stage may be left so (how). */
SPIPE_PRIV_RARE void *spipe_priv_wrong_buf(const spipe_chunk_t *c, int i, size_t size, int how,
                                           const char *format, ...) {
    va_list args;
    va_start(args, format);
    spipe_priv_note_down(c, cudaErrorInvalidValue, format, args);
    va_end(args);
    if (how & SPIPE_PRIV_MAY_LEAVE) spipe_priv_leave_stage(c->note);
    if (i >= 0 && i < c->num_buffers && c->data[i]) return c->data[i];
    return c->stream ? NULL : spipe_priv_scratch(c, size);
}

/* A buffer that does not exist, or has elements of another size. A chunk without a note, which the
   user made by hand, is not checked. */
SPIPE_PRIV_RARE void *spipe_priv_other_buf(const spipe_chunk_t *c, int i, size_t size, int how) {
    const int there = i >= 0 && i < c->num_buffers && i < SPIPE_MAX_BUFFERS;
    if (!c->note) return i >= 0 && i < SPIPE_MAX_BUFFERS ? c->data[i] : NULL;
    if (!there) {
        return spipe_priv_wrong_buf(c, i, size, how,
                                    "it takes buffer %d, and the pipeline has %d, from 0", i,
                                    c->num_buffers);
    }
    if (!c->kind[i]) {
        return spipe_priv_wrong_buf(c, i, size, how,
                                    "it takes buffer %d and did not declare it; add SPIPE_BIT(%d) "
                                    "to what it reads or writes (resident buffers stay on the GPU)",
                                    i, i);
    }
    return spipe_priv_wrong_buf(c, i, size, how,
                                "it takes buffer %d (%s) for elements of %zu bytes, and they have "
                                "%zu; give both one type (of several values: SPIPE_BUF_ROW)",
                                i, spipe_priv_kind(c->kind[i])->name, size, c->elem_bytes[i]);
}

/* An input as memory that is not const, so that the stage may write into it. */
SPIPE_PRIV_RARE void *spipe_priv_input_to_write(const spipe_chunk_t *c, int i, size_t size,
                                                int how) {
    if (!c->note || !(c->note->never_written & SPIPE_BIT(i))) return c->data[i];
    return spipe_priv_wrong_buf(
        c, i, size, how,
        "it takes buffer %d (input) as if to write into it, which an "
        "elementwise stage never does, nor any with SPIPE_SCHEDULE_ZERO_COPY; take "
        "const elements, or add the buffer as in/out",
        i);
}

SPIPE_API SPIPE_PRIV_ATTRIBUTE((hot)) void *spipe_priv_buf(const spipe_chunk_t *c, int i,
                                                           size_t size, int how) {
    if (i >= 0 && i < SPIPE_MAX_BUFFERS) {
        if (c->elem_bytes[i] == size || spipe_priv_kind(c->kind[i])->once) {
            if ((how & SPIPE_PRIV_READS) || !spipe_priv_is_input(c->kind[i])) return c->data[i];
            return spipe_priv_input_to_write(c, i, size, how);
        }
    }
    return spipe_priv_other_buf(c, i, size, how);
}

/* Checks the first chunk of SPIPE_MAP_STAGE, which reads buffer 0 and writes buffer 1. */
SPIPE_API SPIPE_PRIV_ATTRIBUTE((cold)) void spipe_priv_check_map(const spipe_chunk_t *c, int how) {
    const spipe_priv_kind_t *from = spipe_priv_kind(c->kind[0]), *to = spipe_priv_kind(c->kind[1]);
    if (!c->note || c->num_buffers < 2) return; /* SPIPE_BUF reports a missing buffer */
    if ((from->in || !from->out) && (to->out || !to->in)) return;
    (void)spipe_priv_wrong_buf(c, 0, 1, how,
                               "SPIPE_MAP_STAGE reads buffer 0 and writes buffer 1, and they are "
                               "%s and %s; add the input first, or write the stage out",
                               from->name, to->name);
}

SPIPE_API unsigned spipe_blocks(size_t count, unsigned threads) {
    const size_t t = threads > 0 ? threads : 1;
    const size_t blocks = count / t + (count % t != 0);
    if (blocks == 0) return 1;
    return blocks < (size_t)INT_MAX ? (unsigned)blocks : (unsigned)INT_MAX;
}
