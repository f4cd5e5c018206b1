/* ---- 13 execute: exceptions ----------------------------------------------------------------
   In C++ a function of the user's may throw, on whatever thread it runs. The run then ends as after
   an error, and the call that began it throws the exception on. In C nothing is caught. */
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
/* result = call; where that throws, the first exception is kept in *thrown, and result = instead.
   sync: the lock to take for that; NULL = it is held. */
#define SPIPE_PRIV_CALL(sync, thrown, result, call, instead)                                       \
    do {                                                                                           \
        try {                                                                                      \
            result = call;                                                                         \
        } catch (...) {                                                                            \
            spipe_priv_caught(sync, thrown);                                                       \
            result = instead;                                                                      \
        }                                                                                          \
    } while (0)

SPIPE_PRIV_RARE void spipe_priv_caught(spipe_priv_sync_t *sync, void **thrown) {
    std::exception_ptr *e = new (std::nothrow) std::exception_ptr(std::current_exception());
    if (!e) std::terminate();
    if (sync) spipe_priv_lock(sync);
    if (!*thrown) {
        *thrown = e;
        e = NULL;
    }
    if (sync) spipe_priv_unlock(sync);
    delete e;
}

/* Throws what was kept, if anything was. The last that a function does. */
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
#define SPIPE_PRIV_CALL(sync, thrown, result, call, instead)                                       \
    do {                                                                                           \
        (void)(thrown);                                                                            \
        result = call;                                                                             \
    } while (0)

SPIPE_PRIV_RARE void spipe_priv_rethrow(void **thrown) { (void)thrown; }
#endif
