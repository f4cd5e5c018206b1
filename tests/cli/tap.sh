# tap.sh -- TAP for the scripts of this folder, as tests/tap.h is for programs.
n=0 failed=0
ok() { # STATUS TEXT
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else failed=$((failed + 1)) && echo "not ok $n - $2"; fi
}
skip() { # TEXT REASON
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}
skip_all() {
    echo "1..0 # SKIP $1"
    exit 0
}
done_testing() {
    echo "1..$n"
    exit $((failed > 0))
}
