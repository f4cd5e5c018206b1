/* ---- 5 report ------------------------------------------------------------------------------
   What a run did, taken from its state and put into words. Reads a pipeline; writes its report. */
SPIPE_API const char *spipe_schedule_name(spipe_schedule_t schedule) {
    static const char *const names[] = {"auto", "engines", "serial", "zero-copy"};
    return names[schedule >= SPIPE_SCHEDULE_ENGINES && schedule <= SPIPE_SCHEDULE_ZERO_COPY
                     ? (int)schedule
                     : 0];
}

/* What overlapped, for a schedule that the library chose. */
SPIPE_PRIV_RARE const char *spipe_priv_what_overlapped(const spipe_priv_pipeline_t *p) {
    if (p->report.num_chunks == 1) return "one chunk, so nothing overlaps";
    if (p->route.blocks) return "little overlaps: CUDA's copies of pageable memory block";
    return "both copy engines and the kernels work at once";
}

SPIPE_PRIV_RARE void spipe_priv_report_counts(spipe_priv_pipeline_t *p) {
    spipe_report_t *r = &p->report;
    const spipe_priv_run_t *run = &p->run;
    r->total = run->total == SPIPE_AUTO ? 0 : run->total;
    r->chunks_done = run->at.completed;
    r->num_chunks = run->num_chunks == SIZE_MAX ? 0 : run->num_chunks;
    r->count_done = run->at.completed * p->plan.chunk;
    if (r->count_done > run->total) r->count_done = run->total;
    r->bytes_in = run->moved[0];
    r->bytes_out = run->moved[1];
}

SPIPE_PRIV_RARE void spipe_priv_report_plan(spipe_priv_pipeline_t *p) {
    spipe_report_t *r = &p->report;
    const spipe_plan_t *plan = &p->plan;
    r->chunk = plan->chunk;
    r->depth = plan->depth;
    r->schedule = plan->schedule;
    r->staged = plan->staging == SPIPE_STAGING_COPY;
    r->why_chunk = plan->why_chunk;
    r->why_schedule = plan->why_schedule;
    r->why_staging = plan->why_staging;
    r->found = plan->found;
}

SPIPE_PRIV_RARE void spipe_priv_report_threads(spipe_priv_pipeline_t *p) {
    const spipe_priv_steer_t *s = &p->workers.steer;
    const spipe_priv_window_t *const seen[2] = {&s->now, &s->other};
    spipe_report_t *r = &p->report;
    int i;
    r->fill_threads = spipe_priv_num_workers(p, SPIPE_PRIV_FILL);
    r->drain_threads = spipe_priv_num_workers(p, SPIPE_PRIV_DRAIN);
    r->host_threads = spipe_priv_num_workers(p, SPIPE_PRIV_HOST);
    r->threads = r->fill_threads > r->drain_threads ? r->fill_threads : r->drain_threads;
    for (i = 0; i < 2; ++i) {
        r->seen_threads[i] = seen[i]->threads;
        r->seen_waited[i] = seen[i]->waited;
        r->seen_idle[i] = seen[i]->idle;
    }
}

SPIPE_PRIV_RARE void spipe_priv_report(spipe_priv_pipeline_t *p, spipe_report_t *to) {
    spipe_report_t *r = &p->report;
    r->failure = p->failure;
    memcpy(r->device, p->request.facts.name, sizeof r->device);
    spipe_priv_report_counts(p);
    spipe_priv_report_plan(p);
    r->num_stages = p->request.desc.num_stages;
    r->num_streams = p->streams.num;
    spipe_priv_report_threads(p);
    r->device_bytes = p->memory.device_bytes + p->memory.apart_bytes;
    r->pinned_bytes = p->memory.pageable ? 0 : p->memory.pinned_bytes;
    if (!to) return;
    *to = *r;
    if (!to->why_schedule) to->why_schedule = spipe_priv_what_overlapped(p);
}

SPIPE_PRIV_RARE double spipe_priv_gbps(size_t bytes, double ms) {
    return ms > 0.0 ? (double)bytes / ms * 1e-6 : 0.0;
}

SPIPE_PRIV_RARE const char *spipe_priv_s(size_t n) { return n == 1 ? "" : "s"; }

/* What a long run saw of its threads, and why there are so many. */
SPIPE_PRIV_RARE void spipe_priv_print_seen(const spipe_report_t *r, FILE *to) {
    if (r->seen_threads[0] == 0) return;
    fprintf(to, "  seen      %zu thread%s: no chunk was ready %.0f %% of the time, %.1f idle",
            r->seen_threads[0], spipe_priv_s(r->seen_threads[0]), 100.0 * r->seen_waited[0],
            r->seen_idle[0]);
    if (r->seen_threads[1] > 0) {
        fprintf(to, "; with %zu %.0f %%, %.1f", r->seen_threads[1], 100.0 * r->seen_waited[1],
                r->seen_idle[1]);
    }
    fprintf(to, "\n");
}

SPIPE_PRIV_RARE void spipe_priv_print_choices(const spipe_report_t *r, FILE *to) {
    const char *how = r->trying ? ", trying neighbours" : "";
    if (r->replayed) how = ", replayed";
    fprintf(to, "  work      %zu elements in %zu chunk%s of %zu, %d stage%s\n  chunk     %s\n",
            r->count_done, r->chunks_done, spipe_priv_s(r->chunks_done), r->chunk, r->num_stages,
            spipe_priv_s((size_t)r->num_stages), r->why_chunk);
    fprintf(to, "  schedule  %s, %zu slot%s, %d stream%s%s: %s\n  staging   %s\n",
            spipe_schedule_name(r->schedule), r->depth, spipe_priv_s(r->depth), r->num_streams,
            spipe_priv_s((size_t)r->num_streams), how, r->why_schedule, r->why_staging);
    fprintf(to, "  host      %zu thread%s to fill, %zu to drain", r->fill_threads,
            spipe_priv_s(r->fill_threads), r->drain_threads);
    if (r->host_threads > 0) fprintf(to, ", %zu for host stages", r->host_threads);
    fprintf(to, "\n");
    spipe_priv_print_seen(r, to);
}

enum {
    SPIPE_PRIV_COLUMNS = 88, /* width of the verdict's lines, without their label */
    SPIPE_PRIV_WORTH_SAYING_MS = 5,
    SPIPE_PRIV_WORTH_SAYING_BYTES = 1 << 20
};

/* Prints time that only a first run takes: CUDA's start, if it is a tenth of the run; and new
   pages, if they are an eighth of the bytes moved. Later runs over the same arrays take neither. */
SPIPE_PRIV_RARE void spipe_priv_print_first(const spipe_report_t *r, FILE *to) {
    const double all = r->wall_ms + r->setup_ms;
    const size_t moved = r->bytes_in + r->bytes_out;
    const int new_pages =
        r->new_page_bytes > moved / 8 && r->new_page_bytes >= SPIPE_PRIV_WORTH_SAYING_BYTES;
    if (r->start_ms > 0.1 * all && r->start_ms >= (double)SPIPE_PRIV_WORTH_SAYING_MS) {
        fprintf(to,
                "  first     %.1f ms of that CUDA took to start: a second run takes %s %.1f ms\n",
                r->start_ms, new_pages ? "less than" : "about", all - r->start_ms);
    }
    if (!new_pages) return;
    fprintf(to,
            "  pages     %.1f MiB were new: the system makes memory when it is first written; over "
            "arrays\n            that were written before, a run takes less" SPIPE_PRIV_OWN_FIGURES
            "\n",
            (double)r->new_page_bytes / 1048576.0);
}

SPIPE_PRIV_RARE void spipe_priv_print_figures(const spipe_report_t *r, FILE *to) {
    const double mib = 1048576.0;
    fprintf(to, "  memory    %.1f MiB device, %.1f MiB pinned\n", (double)r->device_bytes / mib,
            (double)r->pinned_bytes / mib);
    fprintf(to, "  in        %.1f MiB, %.2f GB/s\n", (double)r->bytes_in / mib,
            spipe_priv_gbps(r->bytes_in, r->wall_ms));
    fprintf(to, "  out       %.1f MiB, %.2f GB/s\n", (double)r->bytes_out / mib,
            spipe_priv_gbps(r->bytes_out, r->wall_ms));
    fprintf(to, "  time      %.3f ms, and %.3f ms to set up" SPIPE_PRIV_TIMES "\n", r->wall_ms,
            r->setup_ms);
    spipe_priv_print_first(r, to);
    if (r->runs_beside == 0) return;
    fprintf(to,
            "  beside    %zu run%s on the same resources; %.3f ms waited for "
            "memory" SPIPE_PRIV_OWN_FIGURES "\n",
            r->runs_beside, spipe_priv_s(r->runs_beside), r->waited_ms);
}

SPIPE_PRIV_RARE void spipe_priv_print_devices(const spipe_report_t *r, FILE *to) {
    int i;
    for (i = 0; i < r->num_devices; ++i) {
        fprintf(to, "  device %-2d %zu chunks%s\n", r->device_numbers[i], r->device_chunks[i],
                r->devices_failed & SPIPE_BIT(i) ? ", then it failed" : "");
    }
}

/* A name in so many columns, at most 14. */
SPIPE_PRIV_RARE void spipe_priv_print_name(const char *name, int columns, FILE *to) {
    char text[64];
    const char *end = text;
    (void)snprintf(text, sizeof text, "%s", name);
    spipe_priv_make_printable(text);
    for (; columns > 0 && *end; --columns) (void)spipe_priv_next_char(&end);
    fprintf(to, "%.*s%*s", (int)(end - text), text, columns, "");
}

/* What a timeline found: how busy each engine was, what that means, and the verdict's lines. */
SPIPE_PRIV_RARE void spipe_priv_print_engines(const spipe_report_t *r, FILE *to) {
    static const char *const names[] = {"fill", "copy in", "stages", "host", "copy out", "drain"};
    int i;
    fprintf(to, "  recorded  %16.3f ms   busy %%   idle between\n", r->timed_ms);
    for (i = 0; i < (int)(sizeof names / sizeof *names); ++i) {
        if (!(r->busy_ms[i] > 0.0)) continue;
        fprintf(to, "  %-9s %16.3f ms %8.1f %11.3f ms\n", names[i], r->busy_ms[i],
                100.0 * r->busy_ms[i] / r->timed_ms, r->idle_ms[i]);
    }
    for (i = 0; i < r->num_stages && r->num_stages > 1; ++i) {
        fputs("    ", to);
        spipe_priv_print_name(r->stage_names[i], 14, to);
        fprintf(to, " %9.3f ms %8.1f\n", r->stage_ms[i], 100.0 * r->stage_ms[i] / r->timed_ms);
    }
}

/* Prints n characters of a line behind a label, and goes on below where it gets too long. */
SPIPE_PRIV_RARE void spipe_priv_print_wrapped(const char *label, const char *line, int n,
                                              FILE *to) {
    int indent = 0;
    while (n > 0) {
        int here = n;
        if (here > SPIPE_PRIV_COLUMNS - indent) {
            for (here = SPIPE_PRIV_COLUMNS - indent; here > 0 && line[here] != ' ';) --here;
            if (here == 0) here = n; /* a word longer than a line */
        }
        fprintf(to, "  %-9s %*s%.*s\n", label, indent, "", here, line);
        here += here < n; /* skip the space */
        line += here;
        n -= here;
        label = "";
        indent = 2;
    }
}

SPIPE_PRIV_RARE void spipe_priv_print_verdict(const spipe_report_t *r, FILE *to) {
    const char *line = r->verdict;
    if (!(r->timed_ms > 0.0)) return;
    spipe_priv_print_engines(r, to);
    fprintf(to, "  overlap   %.0f %% of what can overlap; without any it takes %.3f ms (%.2f x)\n",
            100.0 * r->overlap, r->serial_ms, r->serial_ms / r->timed_ms);
    fprintf(to, "  bound     %.3f ms of work of the busiest engine, %.0f %% of the run\n",
            r->bound_ms, 100.0 * r->bound_ms / r->timed_ms);
    fprintf(to, "  sync      %.2f us on average from when an operation is ready to its begin\n",
            r->sync_us);
    while (*line) {
        const int n = (int)strcspn(line, "\n");
        spipe_priv_print_wrapped(line == r->verdict ? "verdict" : "", line, n, to);
        line += n + (line[n] == '\n');
    }
}

SPIPE_API cudaError_t spipe_report_print(const spipe_report_t *r, FILE *to) {
    if (!r || !to) return cudaErrorInvalidValue;
    fprintf(to, "streampipe on %s\n", r->device[0] ? r->device : "no device");
    if (r->failure.error != cudaSuccess) {
        fprintf(to, "  FAILED    %s (%s)\n  whole     %zu chunks\n", r->failure.message,
                spipe_error_name(r->failure.error), r->failure.chunks_whole);
    }
    if (r->depth > 0) {
        spipe_priv_print_choices(r, to);
        spipe_priv_print_figures(r, to);
    }
    spipe_priv_print_devices(r, to);
    spipe_priv_print_verdict(r, to);
    return ferror(to) ? cudaErrorOperatingSystem : cudaSuccess;
}
