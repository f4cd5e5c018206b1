# No comma operator as a statement, `a = 1, b = 2;`, and none after return. Commas in declarations, in
# the header of a for, in calls, launches (<<< >>>) and initialisers are no operators, or belong there.
function begin() { depth = 0; words[0] = ""; kind[0] = "{" }
function save(    i) { saved_depth = depth; for (i = 0; i <= depth; i++) { saved[i] = words[i]; saved_kind[i] = kind[i] } }
function restore(    i) { depth = saved_depth; for (i = 0; i <= depth; i++) { words[i] = saved[i]; kind[i] = saved_kind[i] } }
# Without labels, and without the headers of if, for, while and switch.
function bare(s) {
    while (sub(/^ *(else|do|(if|for|while|switch) *\(\)|case [^:]*:|default *:|[A-Za-z_][A-Za-z0-9_]* *:[^:])/, "", s));
    sub(/^ */, "", s)
    return s
}
function judge(s) {
    s = bare(s)
    while (gsub(/<[A-Za-z0-9_:,* ]*>/, "", s));
    if (s !~ /,/) return
    # `int a, b`, `T *a, b`, `ns::type a, b`: a type and a name stand before the first comma, = or (.
    if (s ~ /^return[^A-Za-z0-9_]/) fault("a comma after return: make two statements of it")
    else if (s !~ /^[A-Za-z_][A-Za-z0-9_:]*(\(\)|\[\])*( +|[ ]*[*&]+ *)(const +)?[*& ]*[A-Za-z_]/ || s ~ /^(delete|throw|goto) /)
        fault("a comma between statements: end the first with ;")
}
function take(text,    i, n, c) {
    gsub(/<<</, "(", text)
    gsub(/>>>/, ")", text)
    n = length(text)
    for (i = 1; i <= n; i++) {
        c = substr(text, i, 1)
        if (c == "(" || c == "[" || c == "{") {
            # What stands before a block is its head; before an initialiser, it goes on after it.
            if (c == "{" && words[depth] !~ /[=,(] *$/) words[depth] = ""
            depth++; kind[depth] = c; words[depth] = ""
        } else if (c == ")" || c == "]" || c == "}") {
            if (depth > 0) depth--
            words[depth] = words[depth] (c == ")" ? "()" : c == "]" ? "[]" : "")
        } else if (c == ";") {
            if (kind[depth] == "{") judge(words[depth])
            words[depth] = ""
        } else words[depth] = words[depth] c
    }
    words[depth] = words[depth] " "
}
