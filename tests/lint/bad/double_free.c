/* One fault: the same memory is freed twice, on one of two paths. */
#include <stdlib.h>

static int give_up(void *memory, int size) {
    if (size < 10) free(memory);
    return size;
}
int main(int argc, char **argv) {
    void *memory = malloc(10);
    (void)argv;
    if (!memory) return 1;
    argc = give_up(memory, argc);
    free(memory);
    return argc;
}
