/* ---- 4 execute: exceptions -----------------------------------------------------------------
   In C++ a function of the user's may throw, on whatever thread it runs. The run then ends as after
   an error, and the call that began it throws the exception on. In C nothing is caught. */
#if SPIPE_PRIV_CATCHES
/* Leaves a stage that took a wrong buffer; what is wrong stands in the chunk's note. */
struct spipe_priv_refused : public std::exception {
    explicit spipe_priv_refused(const char *why) : why_(why) {}

    const char *what() const noexcept override { return why_; }

  private:
    const char *why_;
};

SPIPE_PRIV_RARE void spipe_priv_leave_stage(const spipe_priv_note_t *note) {
    if (note->catches) throw spipe_priv_refused(note->text);
}

/* result = call; where that throws, the first exception is kept in *thrown, what it says of itself
   in *note (or NULL), and result = instead. sync: the lock to take for that; NULL = it is held. */
#define SPIPE_PRIV_CALL(sync, thrown, note, result, call, instead)                                 \
    do {                                                                                           \
        try {                                                                                      \
            result = call;                                                                         \
        } catch (const spipe_priv_refused &) {                                                     \
            result = instead;                                                                      \
        } catch (...) {                                                                            \
            spipe_priv_caught(sync, thrown, note);                                                 \
            result = instead;                                                                      \
        }                                                                                          \
    } while (0)

SPIPE_PRIV_RARE void spipe_priv_note_exception(spipe_priv_note_t *note) {
    note->error = cudaErrorUnknown;
    snprintf(note->text, sizeof note->text, "an exception");
    try {
        throw;
    } catch (const std::exception &x) {
        snprintf(note->text, sizeof note->text, "an exception: %s", x.what());
    } catch (...) { /* an exception without a text */
    }
}

SPIPE_PRIV_RARE void spipe_priv_caught(spipe_priv_sync_t *sync, void **thrown,
                                       spipe_priv_note_t *note) {
    std::exception_ptr *e = new (std::nothrow) std::exception_ptr(std::current_exception());
    if (!e) std::terminate();
    if (note) spipe_priv_note_exception(note);
    if (sync) spipe_priv_lock(sync);
    if (!*thrown) {
        *thrown = e;
        e = NULL;
    }
    if (sync) spipe_priv_unlock(sync);
    delete e;
}

/* Frees the kept exception, if there is one. */
SPIPE_PRIV_RARE void spipe_priv_drop_thrown(void **thrown) {
    delete (std::exception_ptr *)*thrown;
    *thrown = NULL;
}

/* Throws the kept exception, if there is one; call it last. */
SPIPE_PRIV_RARE void spipe_priv_rethrow(void **thrown) {
    std::exception_ptr *e = (std::exception_ptr *)*thrown;
    std::exception_ptr copy;
    if (!e) return;
    *thrown = NULL;
    copy = *e;
    delete e;
    std::rethrow_exception(copy);
}

#else
SPIPE_PRIV_RARE void spipe_priv_leave_stage(const spipe_priv_note_t *note) { (void)note; }

#define SPIPE_PRIV_CALL(sync, thrown, note, result, call, instead)                                 \
    do {                                                                                           \
        (void)(note);                                                                              \
        (void)(thrown);                                                                            \
        result = call;                                                                             \
    } while (0)

SPIPE_PRIV_RARE void spipe_priv_drop_thrown(void **thrown) { (void)thrown; }

SPIPE_PRIV_RARE void spipe_priv_rethrow(void **thrown) { (void)thrown; }
#endif
