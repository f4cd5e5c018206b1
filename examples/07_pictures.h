/*  07_pictures.h -- for 07_timeline: a verdict in lines, and a timeline as files.          */
#ifndef PICTURES_OF_A_RUN_H
#define PICTURES_OF_A_RUN_H

#include "ex_common.h"
#include "streampipe_timeline.h"

/* Prints a text in lines of at most 100 columns. */
static inline void print_wrapped(const char *text) {
    int column = 0;
    for (;;) {
        const int word = (int)strcspn(text, " \n");
        if (column > 0 && column + 1 + word > 100) column = printf("\n   ") - 1;
        column += printf("%s%.*s", column > 0 ? " " : "", word, text);
        text += word;
        if (*text != ' ') {
            printf("\n");
            column = 0;
        }
        if (!*text++) return;
    }
}

/* One page, into a folder that is there. */
static inline void write_page(const spipe_timeline_t *t, const char *folder, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%.400s/%s", folder, name);
    SPIPE_CHECK(spipe_timeline_write_html(t, path));
}

/* The pictures, into a folder that is there. */
static inline void write_pictures(const spipe_timeline_t *t, const spipe_report_t *r,
                                  const char *folder) {
    char path[4][512];
    int i;
    for (i = 0; i < 4; ++i) {
        static const char *const ends[] = {"timeline.svg", "timeline.html", "trace.json",
                                           "report.json"};
        snprintf(path[i], sizeof path[i], "%.400s/%s", folder, ends[i]);
    }
    SPIPE_CHECK(spipe_timeline_write_svg(t, path[0]));
    SPIPE_CHECK(spipe_timeline_write_html(t, path[1]));
    SPIPE_CHECK(spipe_timeline_write_trace(t, path[2]));
    SPIPE_CHECK(spipe_report_write_json(r, path[3]));
    printf("\na picture       %s\na page to zoom  %s\n", path[0], path[1]);
    printf("a trace         %s (for ui.perfetto.dev or speedscope.app)\n", path[2]);
    printf("the report      %s\n", path[3]);
}

#endif /* PICTURES_OF_A_RUN_H */
