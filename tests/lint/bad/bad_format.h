/* bad_format.h -- not as clang-format writes it. */
static int format(int x)
{
  return x+1;
}
