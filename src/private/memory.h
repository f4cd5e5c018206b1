/* ---- 4 execute: memory ---------------------------------------------------------------------
   Device and pinned arenas, and the slots laid out in them from the plan. Writes
   spipe_priv_memory_t. */
enum {
    SPIPE_PRIV_HUGE_PAGE = 2 << 20, /* bytes: 512 times fewer pages to touch and to pin */
    SPIPE_PRIV_SMALL_REST = 8       /* a ring that needs less than 1/8 of its last huge page ends in
                                       pages of 4 KiB instead */
};

/* A buffer's part of a slot from an arena, its first own element aligned, with a guard before and
   after it; base NULL only counts. */
SPIPE_PRIV_RARE unsigned char *spipe_priv_carve(unsigned char *base, size_t *used,
                                                const spipe_buffer_desc_t *b, size_t elements,
                                                size_t guard) {
    const size_t before = b->halo_before * b->elem_bytes + guard;
    const size_t at = (*used + before + 511) & ~(size_t)511;
    *used = at + (elements + b->halo_after) * b->elem_bytes + guard;
    return base ? base + at : NULL;
}

/* How many slots a pipeline keeps structs for: a kept one may change its plan. */
SPIPE_PRIV_RARE size_t spipe_priv_num_slots(const spipe_priv_pipeline_t *p) {
    return p->request.kept ? SPIPE_MAX_DEPTH : p->plan.depth;
}

SPIPE_PRIV_RARE int spipe_priv_has_host_stage(const spipe_desc_t *d) {
    int i;
    for (i = 0; i < d->num_stages; ++i) {
        if (d->stages[i].host) return 1;
    }
    return 0;
}

/* The slots' structs in one block; a run with one slot uses memory.single instead. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_create_slots(spipe_priv_pipeline_t *p) {
    spipe_priv_memory_t *m = &p->memory;
    const size_t num = spipe_priv_num_slots(p), stages = (size_t)p->request.desc.num_stages;
    const size_t mirror = stages * sizeof *m->slots->mirror;
    const int mirrors = spipe_priv_has_host_stage(&p->request.desc);
    const size_t bytes = num * (sizeof *m->slots + (mirrors ? mirror : 0));
    size_t k;
    m->num_slots = num;
    if (num == 1 && !spipe_priv_needs_events(p)) {
        memset((void *)&m->single, 0, sizeof m->single);
        m->slots = &m->single;
        return cudaSuccess;
    }
    m->slots = (spipe_priv_slot_t *)calloc(1, bytes);
    if (!m->slots) return cudaErrorMemoryAllocation;
    for (k = 0; k < num && mirrors; ++k) {
        unsigned char *at = (unsigned char *)(m->slots + num) + k * mirror;
        m->slots[k].mirror = (unsigned char *(*)[SPIPE_MAX_BUFFERS])(void *)at;
    }
    return cudaSuccess;
}

SPIPE_PRIV_RARE void spipe_priv_layout_resident(spipe_priv_pipeline_t *p, size_t *device) {
    int i;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        if (!spipe_priv_kind(b->kind)->once) continue;
        p->memory.resident[i] = spipe_priv_carve(p->memory.device, device, b, 1, p->memory.guard);
    }
}

/* A mirror of a buffer for each host stage, because two may run side by side. */
SPIPE_PRIV_RARE void spipe_priv_layout_mirrors(spipe_priv_pipeline_t *p, spipe_priv_slot_t *slot,
                                               int i, size_t elements, size_t *pinned) {
    int s;
    if (!slot->mirror) return;
    for (s = 0; s < p->request.desc.num_stages; ++s) {
        const spipe_stage_desc_t *st = &p->request.desc.stages[s];
        slot->mirror[s][i] = NULL;
        if (!st->host || !((st->reads | st->writes) & SPIPE_BIT(i))) continue;
        slot->mirror[s][i] = spipe_priv_carve(p->memory.pinned, pinned, &p->request.desc.buffers[i],
                                              elements, p->memory.guard);
    }
}

/* Whether each slot has memory on the device for a buffer. */
SPIPE_PRIV_RARE int spipe_priv_is_on_device(const spipe_priv_pipeline_t *p, int i) {
    const spipe_priv_kind_t *k = spipe_priv_kind(p->request.desc.buffers[i].kind);
    if (k->once || p->request.desc.buffers[i].on_device) return !k->once;
    return p->plan.schedule != SPIPE_SCHEDULE_ZERO_COPY || (!k->in && !k->out);
}

/* The tickets of a split source lie behind its elements, and their guard, in the slot. */
SPIPE_PRIV_RARE size_t spipe_priv_ticket_place(size_t end) { return (end + 15) & ~(size_t)15; }

SPIPE_PRIV_RARE unsigned char *spipe_priv_tickets(const spipe_priv_pipeline_t *p,
                                                  const spipe_priv_slot_t *slot, int i) {
    const size_t bytes = p->plan.chunk * p->request.desc.buffers[i].elem_bytes;
    return slot->pin_in[i] + spipe_priv_ticket_place(bytes + p->memory.guard);
}

/* A slot's pinned parts. What goes out lies where arrays came in: a chunk is copied out when all of
   it has been copied in, and is drained before the slot is filled again. Not over a source with a
   halo, from which the next chunk takes its own; and not with zero-copy, where kernels read and
   write the parts at once. */
SPIPE_PRIV_RARE void spipe_priv_layout_pins(spipe_priv_pipeline_t *p, spipe_priv_slot_t *slot,
                                            size_t *pinned) {
    const size_t elements = p->plan.chunk, guard = p->memory.guard;
    const int zero_copy = p->plan.schedule == SPIPE_SCHEDULE_ZERO_COPY;
    unsigned char *base = p->memory.pinned;
    size_t in = *pinned, out;
    int pass, i;
    for (pass = 0; pass < 2; ++pass) { /* sources with halos first */
        out = in;
        for (i = 0; i < p->request.desc.num_buffers; ++i) {
            const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
            const int stays = spipe_priv_in_order(b, 0) && (b->halo_before || b->halo_after);
            if (!spipe_priv_kind(b->kind)->in || stays != (pass == 0)) continue;
            if (p->route.path[i] != SPIPE_PRIV_PATH_STAGED) continue;
            slot->pin_in[i] = spipe_priv_carve(base, &in, b, elements, guard);
            in = spipe_priv_ticket_place(in) + elements * b->ticket_bytes;
        }
    }
    if (zero_copy) out = in;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        if (p->route.path[i] != SPIPE_PRIV_PATH_STAGED || !spipe_priv_kind(b->kind)->out) continue;
        slot->pin_out[i] = slot->pin_in[i];
        if (zero_copy && spipe_priv_kind(b->kind)->in) continue;
        slot->pin_out[i] = spipe_priv_carve(base, &out, b, elements, guard);
    }
    *pinned = in > out ? in : out;
}

SPIPE_PRIV_RARE void spipe_priv_layout_slot(spipe_priv_pipeline_t *p, spipe_priv_slot_t *slot,
                                            size_t *device, size_t *pinned) {
    const size_t elements = p->plan.chunk;
    int i;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
        slot->dev[i] = slot->pin_in[i] = slot->pin_out[i] = NULL;
        if (spipe_priv_kind(b->kind)->once) continue;
        if (spipe_priv_is_on_device(p, i)) {
            slot->dev[i] = spipe_priv_carve(p->memory.device, device, b, elements, p->memory.guard);
        }
        spipe_priv_layout_mirrors(p, slot, i, elements, pinned);
    }
    spipe_priv_layout_pins(p, slot, pinned);
}

/* Lays everything out; called first to count bytes, then to assign addresses. */
SPIPE_PRIV_RARE void spipe_priv_layout(spipe_priv_pipeline_t *p, size_t *device, size_t *pinned) {
    size_t k;
    *device = *pinned = 0;
    spipe_priv_layout_resident(p, device);
    for (k = 0; k < p->plan.depth; ++k) {
        spipe_priv_layout_slot(p, &p->memory.slots[k], device, pinned);
    }
}

/* If a tool checks memory, each buffer of each slot is an allocation of its own, so that the tool
   sees accesses outside a buffer. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_place_apart(spipe_priv_pipeline_t *p) {
    spipe_priv_memory_t *m = &p->memory;
    const int num = p->request.desc.num_buffers;
    const size_t elements = p->plan.chunk;
    size_t k;
    int i;
    m->apart = (void **)calloc((p->plan.depth + 1) * SPIPE_MAX_BUFFERS, sizeof *m->apart);
    if (!m->apart) return cudaErrorMemoryAllocation;
    for (k = 0; k <= p->plan.depth; ++k) { /* the last is for resident buffers */
        for (i = 0; i < num; ++i) {
            const spipe_buffer_desc_t *b = &p->request.desc.buffers[i];
            const int resident = spipe_priv_kind(b->kind)->once;
            const size_t before = b->halo_before * b->elem_bytes;
            const size_t own = resident ? 1 : elements;
            unsigned char **at = resident ? &m->resident[i] : &m->slots[k % m->num_slots].dev[i];
            const size_t bytes = before + (own + b->halo_after) * b->elem_bytes;
            if (k < p->plan.depth ? !spipe_priv_is_on_device(p, i) : !resident) continue;
            SPIPE_TRY(cudaMalloc(&m->apart[m->num_apart], bytes));
            m->apart_bytes += bytes;
            *at = (unsigned char *)m->apart[m->num_apart++] + before;
        }
    }
    return cudaSuccess;
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_free_apart(spipe_priv_memory_t *m) {
    cudaError_t e = cudaSuccess;
    while (m->num_apart > 0) spipe_priv_keep_error(&e, cudaFree(m->apart[--m->num_apart]));
    free((void *)m->apart);
    m->apart = NULL;
    m->apart_bytes = 0;
    return e;
}

/* Frees both arenas, or gives them back. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_free_arenas(spipe_priv_pipeline_t *p) {
    spipe_priv_memory_t *m = &p->memory;
    cudaError_t e = cudaSuccess;
    if (p->provider) return p->provider->free_arenas(p);
    e = spipe_priv_free_apart(m);
    if (m->device) spipe_priv_keep_error(&e, cudaFree(m->device));
    if (!m->pinned_base)
        spipe_priv_keep_error(&e, spipe_pinned_free(m->pinned));
    else if (!m->pageable)
        spipe_priv_keep_error(&e, spipe_priv_unpin_and_free(m->pinned, m->pinned_base));
    else
        free(m->pinned_base);
    m->device = m->pinned = m->pinned_base = NULL;
    m->device_bytes = m->pinned_bytes = 0;
    return e;
}

/* Touches the pinned arena: one thread takes ten times as long as the workers. In working.h. */
SPIPE_PRIV_RARE void spipe_priv_touch(spipe_priv_pipeline_t *p);

/* Allocates so many bytes, aligned to a page, and to a huge page if there is room for one; *base:
   what to free. NULL: there is no memory. */
SPIPE_PRIV_RARE unsigned char *spipe_priv_new_pages(size_t bytes, unsigned char **base) {
    const size_t huge = (size_t)SPIPE_PRIV_HUGE_PAGE;
    const size_t page = bytes < huge ? 4096 : huge;
    unsigned char *at;
    *base = bytes > 0 ? (unsigned char *)malloc(bytes + page) : NULL;
    if (!*base) return NULL;
    at = *base + (page - ((uintptr_t)*base & (page - 1)));
#if defined(MADV_HUGEPAGE) && !defined(HOSTCUDA_TASKS) /* modelled pinning needs no huge pages */
    if (page == huge) (void)madvise(at, bytes, MADV_HUGEPAGE);
#endif
    return at;
}

/* Pinned memory for the slots. Memory that was touched before is pinned in place about ten times
   faster than CUDA allocates pinned memory; if the system refuses, CUDA allocates it. If smaller
   rings were refused, too, slots are pageable: CUDA's copies keep the streams' order all the
   same. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_pin_ring(spipe_priv_pipeline_t *p, size_t bytes) {
    spipe_priv_memory_t *m = &p->memory;
    m->pinned = spipe_priv_new_pages(bytes, &m->pinned_base);
    if (m->pinned) {
        m->pageable = p->plan.pageable_slots;
        if (!m->pageable) spipe_priv_touch(p);
        if (m->pageable || spipe_pin(m->pinned, bytes) == cudaSuccess) return cudaSuccess;
        free(m->pinned_base);
        m->pinned_base = NULL;
    }
    return spipe_pinned_alloc((void **)&m->pinned, bytes);
}

SPIPE_PRIV_RARE cudaError_t spipe_priv_no_memory(spipe_priv_pipeline_t *p, cudaError_t e,
                                                 size_t bytes, const char *of, const char *also) {
    (void)cudaGetLastError();
    return spipe_priv_refuse(&p->failure, e,
                             "no room for %zu bytes of %s memory (%zu slots of %zu elements): %s; "
                             "lower chunk or depth%s",
                             bytes, of, p->plan.depth, p->plan.chunk, cudaGetErrorString(e), also);
}

/* Allocates both arenas. The pinned one is a whole number of huge pages: touching and pinning a
   rest in pages of 4 KiB took up to 1 ms (H100 and H200, 2026-11-24), unless it is a small one. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_allocate_arenas(spipe_priv_pipeline_t *p, size_t device,
                                                       size_t pinned) {
    const size_t huge = (size_t)SPIPE_PRIV_HUGE_PAGE, rest = pinned % huge;
    spipe_priv_memory_t *m = &p->memory;
    cudaError_t e = cudaSuccess;
    if (p->provider) {
        e = p->provider->arenas(p, device, pinned);
        m->lacks = e == cudaErrorMemoryAllocation;
        return e;
    }
    if (pinned > huge && rest > huge / SPIPE_PRIV_SMALL_REST) pinned += huge - rest;
    if (device > 0) e = cudaMalloc((void **)&m->device, device);
    m->lacks = e == cudaErrorMemoryAllocation;
    if (e != cudaSuccess) return spipe_priv_no_memory(p, e, device, "device", "");
    m->device_bytes = device;
    m->pinned_bytes = pinned;
    e = spipe_priv_pin_ring(p, pinned);
    if (e == cudaSuccess) return e;
    m->pinned_bytes = 0;
    m->refused = pinned;
    return spipe_priv_no_memory(p, e, pinned, "pinned host",
                                ", or leave staging and schedule to the library");
}

/* Makes the arenas as large as the plan needs; they never shrink. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_grow_arenas(spipe_priv_pipeline_t *p, size_t device,
                                                   size_t pinned) {
    spipe_priv_memory_t *m = &p->memory;
    const size_t wanted = pinned;
    cudaError_t e;
    m->refused = 0;
    m->lacks = 0;
    if (device <= m->device_bytes && pinned <= m->pinned_bytes) return cudaSuccess;
    if (device < m->device_bytes) device = m->device_bytes;
    if (pinned < m->pinned_bytes) pinned = m->pinned_bytes;
    SPIPE_TRY(spipe_priv_free_arenas(p));
    e = spipe_priv_allocate_arenas(p, device, pinned);
    if (m->refused > 0) m->refused = wanted;
    return e;
}

/* What stages on the device see of each slot; only count and position change from chunk to
   chunk. */
SPIPE_PRIV_RARE void spipe_priv_prepare_views(spipe_priv_pipeline_t *p) {
    spipe_priv_memory_t *m = &p->memory;
    size_t k;
    int i;
    m->in_place = 0;
    for (i = 0; i < p->request.desc.num_buffers; ++i) {
        if (p->route.path[i] == SPIPE_PRIV_PATH_ZERO_COPY) m->in_place |= SPIPE_BIT(i);
    }
    for (k = 0; k < p->plan.depth; ++k) {
        spipe_priv_slot_t *slot = &m->slots[k];
        slot->view.slot = (int)k;
        slot->view.num_buffers = p->request.desc.num_buffers;
        slot->view.note = &p->note;
        for (i = 0; i < p->request.desc.num_buffers; ++i) {
            const unsigned char *pin = slot->pin_in[i] ? slot->pin_in[i] : slot->pin_out[i];
            unsigned char *at = slot->dev[i];
            if (!at && pin) at = m->pinned_alias + (pin - m->pinned);
            if (spipe_priv_kind(p->request.desc.buffers[i].kind)->once) at = m->resident[i];
            slot->view.data[i] = at;
            slot->view.kind[i] = p->request.desc.buffers[i].kind;
            slot->view.elem_bytes[i] = p->request.desc.buffers[i].elem_bytes;
        }
    }
}

/* Memory for the plan in use. Allocates nothing where the arenas are large enough. */
SPIPE_PRIV_RARE cudaError_t spipe_priv_arrange_memory(spipe_priv_pipeline_t *p) {
    spipe_priv_memory_t *m = &p->memory;
    size_t device, pinned;
    m->guard = p->request.desc.checked ? SPIPE_PRIV_GUARD : 0;
    spipe_priv_layout(p, &device, &pinned);
    SPIPE_TRY(spipe_priv_free_apart(m));
    SPIPE_TRY(spipe_priv_grow_arenas(p, p->request.apart ? 0 : device, pinned));
    m->pinned_alias = m->pinned;
    if (m->pinned && p->plan.schedule == SPIPE_SCHEDULE_ZERO_COPY) {
        SPIPE_TRY(cudaHostGetDevicePointer((void **)&m->pinned_alias, m->pinned, 0));
    }
    spipe_priv_layout(p, &device, &pinned);
    if (p->request.apart) {
        const cudaError_t e = spipe_priv_place_apart(p);
        m->lacks = e == cudaErrorMemoryAllocation;
        if (e != cudaSuccess) return spipe_priv_no_memory(p, e, device, "device", "");
    }
    spipe_priv_prepare_views(p);
    return cudaSuccess;
}
