/* bad_members.h -- 21 members, of which a nested struct without a name has two. */
typedef struct members {
    int one, two[2], three : 3; /* four, five; */
    double (*four)(int five, int six);

    struct {
        int five, six;
    };

    union {
        int first;
        float second;
    } seven;
#if BAD_MEMBERS
    struct members *eight, *nine;
#endif
    char a, b, c, d, e, f, g, h, i, j, k, l;
} members_t;
