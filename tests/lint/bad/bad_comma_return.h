/* bad_comma_return.h -- a comma after return. */
static int comma_return(int *a) {
    return (void)++*a, 3;
}
