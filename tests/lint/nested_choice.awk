# At most one ?: in an expression: a second one belongs into an if, a table or a function. The
# arguments of a call are expressions of their own, but what stands around the call counts with each.
function begin() { depth = 0; count[0] = most[0] = 0 }
function save(    i) { saved_depth = depth; for (i = 0; i <= depth; i++) { saved[i] = count[i]; saved_most[i] = most[i] } }
function restore(    i) { depth = saved_depth; for (i = 0; i <= depth; i++) { count[i] = saved[i]; most[i] = saved_most[i] } }
function close_one(    inner) {
    inner = most[depth] > count[depth] ? most[depth] : count[depth]
    if (depth > 0) depth--
    return inner
}
function take(text,    i, n, c, inner) {
    n = length(text)
    for (i = 1; i <= n; i++) {
        c = substr(text, i, 1)
        if (c == "?") count[depth]++
        else if (c == "(" || c == "[" || c == "{") { depth++; count[depth] = most[depth] = 0; continue }
        else if (c == ")" || c == "]") { inner = close_one(); count[depth] += inner }
        else if (c == "}") { close_one(); count[depth] = most[depth] = 0 }
        else if (c == ";") count[depth] = most[depth] = 0
        else if (c == ",") { if (count[depth] > most[depth]) most[depth] = count[depth]; count[depth] = 0 }
        else continue
        if (count[depth] > 1) {
            fault("more than one ?: in an expression: use an if, a table or a function")
            count[depth] = most[depth] = 0
        }
    }
}
