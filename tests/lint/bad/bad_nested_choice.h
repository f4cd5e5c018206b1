/* bad_nested_choice.h -- a choice within a choice. */
static int nested_choice(int x) {
    return x < 0 ? -1 : (x > 0 ? 1 : 0);
}
