# lint_common.sh -- what the scripts of this folder share: results as TAP. Each sets out, a scratch
# folder, before it reads this.
rm -rf "$out" && mkdir -p "$out"
n=0 failed=0

report() { # rule status log
    n=$((n + 1))
    if [ "$2" = 0 ]; then echo "ok $n - $1"
    else failed=1; echo "not ok $n - $1"
        # Of a tool that draws pictures, only the lines that say where and what.
        { grep -E '^[^ #].*:[0-9]+:([0-9]+:)? (error|warning|performance|portability)' "$3" || cat "$3"; } |
            head -n 20 | cut -c 1-240 | sed 's/^# //; s/^/# /'
    fi
}
skip() { n=$((n + 1)); echo "ok $n - $1 # SKIP $2"; }
# What takes long: a rule and a command, run at the end, JOBS at a time, and reported in order.
jobs=0
job() { # rule command
    jobs=$((jobs + 1))
    printf '%s\n' "$1" > "$out/job$jobs.rule"
    printf '%s\n' "$2" > "$out/job$jobs.sh"
}
holds() { # rule command...
    rule=$1; shift
    if "$@" > "$out/log" 2>&1; then report "$rule" 0; grep '^# ' "$out/log"
    else report "$rule" 1 "$out/log"; fi
}
refused() { # rule what-it-must-say command...
    rule=$1 text=$2; shift 2
    if "$@" > "$out/log" 2>&1; then echo "it was accepted" >> "$out/log"; status=1
    else grep -qF -e "$text" "$out/log"; status=$?; fi
    report "$rule" $status "$out/log"
}
done_testing() {
    [ $jobs = 0 ] || seq $jobs | xargs -P "${JOBS:-2}" -I{} sh -c "sh $out/job{}.sh > $out/job{}.log 2>&1; echo \$? > $out/job{}.status"
    for k in $(seq $jobs); do report "$(cat "$out/job$k.rule")" "$(cat "$out/job$k.status")" "$out/job$k.log"; done
    echo "1..$n"
    exit $failed
}
