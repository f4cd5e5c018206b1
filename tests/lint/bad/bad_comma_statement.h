/* bad_comma_statement.h -- a comma between statements. */
static void comma_statement(int *a, int *b) {
    if (a) *a = 1, *b = 2;
}
