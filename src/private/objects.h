/* ---- 8 streams: objects --------------------------------------------------------------------
   What every object of the library knows of itself: its address, its process, its device, and the
   calls on it that are under way. Uses threads, device. */

/* What every call on an object returns in a process that was forked from the one that made it, as
   CUDA's own calls do there. */
#define SPIPE_PRIV_FORKED cudaErrorInitializationError
#define SPIPE_PRIV_FORKED_WORDS(what)                                                              \
    "the " what " made in another process, and this one was forked from it: CUDA does not work "   \
    "here; fork before CUDA is used, or start another program (exec)"

enum {
    SPIPE_PRIV_ALONE = INT_MIN / 2 /* owner.calls while a call allows no other */
};

/* Makes an object one of this process and of a device, or of the current one. */
SPIPE_PRIV_LOCAL void spipe_priv_own_on(spipe_priv_owner_t *o, const void *object, int device) {
    memset(o, 0, sizeof *o);
    o->device = device;
    o->process = spipe_priv_process();
    SPIPE_PRIV_STORE(o->self, object);
}

SPIPE_PRIV_LOCAL cudaError_t spipe_priv_own(spipe_priv_owner_t *o, const void *object) {
    int device;
    SPIPE_TRY(spipe_priv_take_error(cudaGetDevice(&device)));
    spipe_priv_own_on(o, object, device);
    return cudaSuccess;
}

/* Whether an object was made here, and not destroyed. Reads nothing else of it. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_is_owned(const spipe_priv_owner_t *o, const void *object) {
    if (SPIPE_PRIV_LOAD(o->self) != object) return cudaErrorInvalidValue;
    return o->process == spipe_priv_process() ? cudaSuccess : SPIPE_PRIV_FORKED;
}

SPIPE_PRIV_LOCAL void spipe_priv_end_call_on(spipe_priv_owner_t *o, int alone) {
    (void)SPIPE_PRIV_ADD(o->calls, alone ? -SPIPE_PRIV_ALONE : -1);
}

/* Begins a call on an object: one that allows others, or is alone. A call that another forbids
   is refused at once, since it would read what that one writes. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_begin_call_on(spipe_priv_owner_t *o, const void *object,
                                                      int alone) {
    SPIPE_TRY(spipe_priv_is_owned(o, object));
    if (alone && !spipe_priv_exchange_if(&o->calls, 0, SPIPE_PRIV_ALONE)) {
        return cudaErrorNotPermitted;
    }
    if (!alone && SPIPE_PRIV_ADD(o->calls, 1) < 0) {
        spipe_priv_end_call_on(o, 0);
        return cudaErrorNotPermitted;
    }
    if (SPIPE_PRIV_LOAD(o->self) == object) return cudaSuccess;
    spipe_priv_end_call_on(o, alone); /* it was destroyed in between */
    return cudaErrorInvalidValue;
}

/* Whether there is nothing to destroy: a zeroed object, or one that was destroyed. */
SPIPE_PRIV_LOCAL int spipe_priv_is_dead(const spipe_priv_owner_t *o) {
    return !SPIPE_PRIV_LOAD(o->self);
}

/* Begins to destroy an object. *forked = 1: only host memory is to be freed, without a call of
   CUDA's, a lock or a thread. If the process was forked in the middle of a call, that memory is
   left, too, because the call may have been freeing it. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_begin_destroy(spipe_priv_owner_t *o, const void *object,
                                                      int *forked) {
    const cudaError_t e = spipe_priv_begin_call_on(o, object, 1);
    *forked = e == SPIPE_PRIV_FORKED;
    if (!*forked || o->calls == 0) return *forked ? cudaSuccess : e;
    SPIPE_PRIV_STORE(o->self, NULL);
    return e;
}

/* From here on the object is dead; returns what destroy does. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_end_destroy(spipe_priv_owner_t *o, int forked,
                                                    cudaError_t e) {
    SPIPE_PRIV_STORE(o->self, NULL);
    if (!forked) spipe_priv_end_call_on(o, 1);
    return forked ? SPIPE_PRIV_FORKED : e;
}

/* The same with the object's device as the current one, for calls whose result depends on it. */
SPIPE_PRIV_LOCAL cudaError_t spipe_priv_begin_call_there(spipe_priv_owner_t *o, const void *object,
                                                         int alone, int *before) {
    cudaError_t e;
    SPIPE_TRY(spipe_priv_begin_call_on(o, object, alone));
    e = spipe_priv_take_error(spipe_priv_use_device(o->device, before));
    if (e != cudaSuccess) spipe_priv_end_call_on(o, alone);
    return e;
}

SPIPE_PRIV_LOCAL void spipe_priv_end_call_there(spipe_priv_owner_t *o, int alone, int before) {
    if (before != o->device) (void)cudaSetDevice(before);
    spipe_priv_end_call_on(o, alone);
}
