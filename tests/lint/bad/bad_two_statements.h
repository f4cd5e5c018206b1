/* bad_two_statements.h -- two statements in one line. */
static int two_statements(int x) {
    ++x; --x;
    return x;
}
