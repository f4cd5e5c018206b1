/* bad_line_choice.h -- two choices in one line. */
static int line_choice(int x) {
    return larger(x < 0 ? -1 : 1, x > 9 ? 9 : x);
}
